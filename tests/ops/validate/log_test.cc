// The kernel log: line formats, messages of drivers about failing hardware, and Xid by both
// sources.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ops/validate/kernel_log.h"
#include "ops/validate/log_rules.h"
#include "ops/validate/machine.h"
#include "ops/validate/xid.h"

namespace ff::validate {
namespace {

// 2026-11-23T12:00:00Z, as Machine has it.
int64_t at(int days, int hours, int minutes, int seconds) {
  return kNowNs + ((int64_t{days} * 24 + hours) * 3600 + minutes * 60 + seconds) * kSecond;
}

class LogLineTest : public testing::Test {
 protected:
  LogLineTest() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
  KernelLogLine parse(std::string_view line) { return parse_kernel_log_line(line, kNowNs); }
};

TEST_F(LogLineTest, OfDmesg) {
  const KernelLogLine line = parse("[12345.678901] nvme nvme0: timeout");
  EXPECT_EQ(line.boot_ns, 12'345'678'901 * kMicrosecond);
  EXPECT_FALSE(line.wall_ns.has_value());
  EXPECT_EQ(line.text, "nvme nvme0: timeout");
  EXPECT_EQ(parse("<4>[    1.000002] x").boot_ns, 1'000'002 * kMicrosecond);
  EXPECT_EQ(parse("<4>[    1.000002] x").text, "x");
  const KernelLogLine human = parse("[Sun Nov 22 11:59:58 2026] x y");
  EXPECT_EQ(human.wall_ns, at(-1, 0, 0, -2));
  EXPECT_EQ(human.text, "x y");
}

TEST_F(LogLineTest, OfSyslogAndTheJournal) {
  const KernelLogLine old =
      parse("Nov 23 11:00:00 node7 kernel: [  99.5] EXT4-fs error (device sda1)");
  EXPECT_EQ(old.wall_ns, at(0, -1, 0, 0));
  EXPECT_EQ(old.text, "EXT4-fs error (device sda1)");
  // A future day belongs to last year.
  EXPECT_EQ(parse("Dec 24 12:00:00 node7 kernel: x").wall_ns, at(31 - 365, 0, 0, 0));
  const KernelLogLine iso = parse("2026-11-23T13:30:00.250000+02:00 node7 kernel: x");
  EXPECT_EQ(iso.wall_ns, at(0, 0, -30, 0) + kSecond / 4);
  EXPECT_EQ(iso.text, "x");
  EXPECT_EQ(parse("2026-11-23T12:00:00+0000 n kernel: x").wall_ns, kNowNs);
  EXPECT_EQ(parse("2026-11-23T12:00:00Z n kernel: x").wall_ns, kNowNs);
}

TEST_F(LogLineTest, WhatHasNoTimeIsText) {
  for (const char* const line : {"", "x", "[", "[x] y", "<", "<999999> x", "[1.2", "2026-99-99T x",
                                 "Foo 99 99:99:99 x", "[99999999999999999999.1] x"}) {
    const KernelLogLine parsed = parse(line);
    EXPECT_FALSE(parsed.wall_ns && parsed.boot_ns) << line;
  }
  EXPECT_EQ(parse("plain words\r").text, "plain words");
}

TEST(Kmsg, OnlyTheKernelIsBelieved) {
  const auto line =
      parse_kmsg("4,1234,5678901234,-;NVRM: Xid (PCI:0000:3b:00): 79\n SUBSYSTEM=pci\n");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->boot_ns, 5'678'901'234 * kMicrosecond);
  EXPECT_EQ(line->text, "NVRM: Xid (PCI:0000:3b:00): 79");
  EXPECT_FALSE(parse_kmsg("12,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79").has_value())
      << "a program wrote it";
  for (const char* const none : {"", ";", "4;x", "4,1,x,-;y", "a,1,2,-;y"}) {
    EXPECT_FALSE(parse_kmsg(none).has_value()) << none;
  }
}

TEST_F(LogLineTest, WordsOfOtherProgramsAreNotTheKernels) {
  const KernelLogLine sshd = parse("Nov 23 11:00:00 node7 sshd[812]: I/O error, dev sda kernel: x");
  EXPECT_TRUE(sshd.wall_ns.has_value());
  EXPECT_EQ(sshd.text, "");
  EXPECT_EQ(parse("2026-11-23T11:00:00+00:00 node7 gpud: saw NVRM: Xid (PCI:1): 79").text, "");
  // dmesg with ISO times prints no host, and drivers may print anything.
  const KernelLogLine dmesg = parse("2026-11-23T12:00:00,500000+00:00 nvme nvme0: from kernel: x");
  EXPECT_EQ(dmesg.wall_ns, kNowNs + kSecond / 2);
  EXPECT_EQ(dmesg.text, "nvme nvme0: from kernel: x");
}

TEST_F(LogLineTest, TimesThatNoClockShowsAreText) {
  for (const char* const line :
       {"[1.18446744073709551615] x", "9999-11-23T01:02:03+00:00 n kernel: x",
        "1900-01-01T01:02:03+00:00 n kernel: x", "2026-11-23T01:02:03+1",
        "2026-11-23T01:02:03+000"}) {
    const KernelLogLine parsed = parse(line);
    EXPECT_FALSE(parsed.has_time()) << line;
    EXPECT_EQ(parsed.text, line);
  }
}

// Rules and messages of drivers of Linux 5.10 to 6.12.
struct LogCase {
  const char* name;
  Verdict verdict;
  const char* text;
};
constexpr auto kFail = Verdict::fail, kDegraded = Verdict::degraded;
constexpr LogCase kSaid[] = {
    {"log.mce", kFail, "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 5: be00"},
    {"log.mce", kDegraded, "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: 9c0000400104"},
    {"log.mce", kDegraded, "mce: [Hardware Error]: Machine check events logged"},
    {"log.mce", kFail, "mce: Uncorrected hardware memory error in user-access at 3f2a1c0"},
    {"log.mce", kFail, "{1}[Hardware Error]: event severity: fatal"},
    {"log.mce", kFail, "{2}[Hardware Error]: event severity: recoverable"},
    {"log.mce", kDegraded, "{3}[Hardware Error]: event severity: corrected"},
    {"log.mce", kFail, "[Hardware Error]: System Fatal error."},
    {"log.mce", kFail, "[Hardware Error]: Uncorrected, software containable error."},
    {"log.mce", kDegraded, "[Hardware Error]: Deferred error, no action required."},
    {"log.mce", kDegraded, "[Hardware Error]: Corrected error, no action required."},
    {"log.mce", kDegraded,
     "CPU12: Core temperature above threshold, cpu clock throttled (total 1)"},
    {"log.mce", kDegraded, "CPU7: Core temperature is above threshold, cpu clock is throttled"},
    {"log.mce", kDegraded,
     "mce: CPU0: Package temperature is above threshold, cpu clock is throttled"},
    {"log.edac", kDegraded, "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0"},
    {"log.edac", kDegraded, "EDAC MC0: 1 CE on mc#0csrow#3channel#0 (csrow:3 channel:0 page:0x1)"},
    {"log.edac", kFail, "EDAC MC1: 1 UE memory read error on DIMM_B2"},
    {"log.edac", kFail, "Memory failure: 0x12345: recovery action for dirty LRU page: Recovered"},
    {"log.pcie", kDegraded, "pcieport 0000:3a:00.0: PCIe Bus Error: severity=Corrected, type=x"},
    {"log.pcie", kDegraded, "nvidia 0000:21:00.0: PCIe Bus Error: severity=Correctable, type=x"},
    {"log.pcie", kFail, "pcieport 0000:3a:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), x"},
    {"log.pcie", kFail, "nvme 0000:c1:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal)"},
    {"log.pcie", kFail,
     "pcieport 0000:20:01.1: DPC: containment event, status:0x1f01 source:0x0000"},
    {"log.pcie", kFail, "pcieport 0000:00:1c.0: pciehp: Slot(3): Link Down"},
    {"log.nvme", kDegraded, "nvme nvme0: I/O 12 QID 3 timeout, aborting"},
    {"log.nvme", kDegraded,
     "nvme nvme0: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 3 timeout, aborting req_op:READ(0)"},
    {"log.nvme", kFail, "nvme nvme1: controller is down; will reset: CSTS=0xffffffff"},
    {"log.nvme", kFail, "nvme nvme1: Device not ready; aborting reset, CSTS=0x1"},
    {"log.nvme", kFail, "nvme nvme1: Removing after probe failure status: -19"},
    {"log.nvme", kFail, "nvme nvme1: Disabling device after reset failure: -19"},
    {"log.disk", kFail, "blk_update_request: critical medium error, dev sdb, sector 1234 op 0x0"},
    {"log.disk", kFail, "I/O error, dev sdb, sector 1234 op 0x0:(READ) flags 0x0 phys_seg 1"},
    {"log.disk", kDegraded, "ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x0"},
    {"log.fs", kFail, "EXT4-fs error (device sda1): ext4_lookup:1785: inode #2: comm ls: deleted"},
    {"log.fs", kFail, "EXT4-fs (sda1): Remounting filesystem read-only"},
    {"log.fs", kFail, "XFS (sdb1): Metadata corruption detected at xfs_agi_verify+0x5e/0x120"},
    {"log.fs", kFail,
     "XFS (sdb1): Corruption of in-memory data detected.  Shutting down filesystem"},
    {"log.fs", kFail,
     "XFS (sdb1): metadata I/O error in \"xfs_buf_ioend\" at daddr 0x1 len 8 error 5"},
    {"log.fs", kFail, "XFS (sdb1): Log I/O Error (0x2) detected at x.  Shutting down filesystem."},
    {"log.fs", kFail, "BTRFS critical (device sdc): corrupt leaf: root=1 block=1 slot=1"},
    {"log.fs", kFail, "BTRFS error (device sdc): bdev /dev/sdc errs: wr 1, rd 0, flush 0"},
    {"log.ib", kFail,
     "mlx5_core 0000:61:00.0: poll_health:800:(pid 0): device's health compromised - reached miss"},
    {"log.ib", kFail, "mlx5_core 0000:61:00.0: poll_health:1103:(pid 0): Fatal error 1 detected"},
    {"log.ib", kDegraded,
     "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature"},
    {"log.ib", kDegraded,
     "mlx5_core 0000:12:00.0: mlx5_pcie_event:299: Detected insufficient power on the PCIe slot "
     "(27W)."},
    {"log.ib", kDegraded, "mlx5_core 0000:41:00.0 enp65s0f0np0: Link down"},
    {"log.gpu", kFail, "NVRM: GPU 0000:21:00.0: RmInitAdapter failed! (0x62:0xffff:2351)"},
    {"log.gpu", kFail,
     "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"},
    {"log.gpu", kDegraded,
     "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted"},
    {"log.kernel", kDegraded, "Out of memory: Killed process 4242 (python3) total-vm:1kB"},
    {"log.kernel", kFail, "watchdog: Watchdog detected hard LOCKUP on cpu 3"},
    {"log.kernel", kDegraded, "watchdog: BUG: soft lockup - CPU#7 stuck for 22s! [kworker/7:1:33]"},
    {"log.kernel", kDegraded, "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:"},
    {"log.kernel", kDegraded, "rcu: INFO: rcu_preempt self-detected stall on CPU"},
    {"log.kernel", kDegraded, "INFO: task jbd2/sda1-8:321 blocked for more than 120 seconds."},
};

TEST(LogRules, KnowWhatDriversWrite) {
  std::set<const LogRule*> met;
  for (const LogCase& said : kSaid) {
    const LogRule* const rule = find_rule(said.text);
    ASSERT_NE(rule, nullptr) << said.text;
    EXPECT_STREQ(rule->name, said.name) << said.text;
    EXPECT_EQ(rule->verdict, said.verdict) << said.text;
    EXPECT_STRNE(rule->hint, "") << said.text;
    met.insert(rule);
  }
  for (const LogRule& rule : log_rules()) {
    if (rule.verdict == Verdict::skipped) continue;
    EXPECT_TRUE(met.contains(&rule))
        << rule.about << ": no driver of this test says " << rule.words[0];
  }
}

TEST(LogRules, KnowWhatIsNoTrouble) {
  for (const char* const fine :
       {"nvme nvme0: 8/0/0 default/read/poll queues",
        "nvme nvme0: Shutdown timeout set to 10 seconds",
        "EDAC MC0: Giving out device to module skx_edac",
        "mlx5_core 0000:41:00.0 enp65s0f0np0: Link up",
        "mlx5_core 0000:61:00.0: Port module event: module 0, Cable plugged",
        "EXT4-fs (sda1): mounted filesystem with ordered data mode",
        "EXT4-fs (sda1): re-mounted. Opts: errors=remount-ro", "XFS (nvme0n1): Ending clean mount",
        "BTRFS info (device sdc): has skinny extents",
        "mce: CPU0: Thermal monitoring enabled (TM1)", "nvidia-nvswitch0: open (major=510)",
        "Memory cgroup out of memory: Killed process 7 (x)",
        "pcieport 0000:00:1c.0: AER: enabled with IRQ 24", "usb 1-1: x",
        "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0",
        "I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2"}) {
    EXPECT_EQ(find_rule(fine), nullptr) << fine;
  }
}

TEST(Xids, OfThePapersTableHaveBothSources) {
  int total = 0;
  for (const Xid& xid : xid_table()) {
    total += xid.count;
    EXPECT_NE(xid_hint(xid), "") << xid.code;
    EXPECT_TRUE(xid.count == 0 || xid.of != XidClass::none) << xid.code;
  }
  EXPECT_EQ(total, 12'970) << "Table VI";
  // The stricter of both decides.
  EXPECT_EQ(xid_verdict(*find_xid(79)), Verdict::fail);
  EXPECT_EQ(xid_verdict(*find_xid(69)), Verdict::fail) << "NVIDIA: the program; paper: the GPU";
  EXPECT_EQ(xid_verdict(*find_xid(95)), Verdict::fail) << "NVIDIA: reset; paper: memory";
  EXPECT_EQ(xid_verdict(*find_xid(63)), Verdict::degraded);
  EXPECT_EQ(xid_verdict(*find_xid(74)), Verdict::degraded);
  EXPECT_EQ(xid_verdict(*find_xid(31)), Verdict::pass) << "both: the program";
}

TEST(Xids, AreReadFromTheDriversLines) {
  const auto full = parse_xid("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen");
  ASSERT_TRUE(full.has_value());
  EXPECT_EQ(full->device, "0000:3b:00");
  EXPECT_EQ(full->code, 79);
  EXPECT_EQ(parse_xid("NVRM: Xid (0000:03:00): 13, Graphics Exception")->code, 13);
  for (const char* const none :
       {"NVRM: Xid", "NVRM: Xid (PCI:0000:3b:00)", "NVRM: Xid (PCI:0000:3b:00): x",
        "NVRM: Xid (PCI:0000:3b:00): 99999999999", "Xid (PCI:0000:3b:00): 79"}) {
    EXPECT_FALSE(parse_xid(none).has_value()) << none;
  }
}

class LogTest : public testing::Test {
 protected:
  // A log within the tree.
  std::vector<Finding> judge(const std::vector<std::string>& texts) {
    std::string log = "/var/log/kern.log\n";
    for (const std::string& text : texts) {
      log += "    2026-11-23T11:00:00+00:00 node kernel: " + text + "\n";
    }
    machine_.patch(log);
    return machine_.run("log.kernel");
  }
  static Finding of(const std::vector<Finding>& findings, const std::string& name,
                    const std::string& part) {
    for (const Finding& one : findings) {
      if (one.name == name && one.part.find(part) != one.part.npos) return one;
    }
    ADD_FAILURE() << "nothing of " << name << " " << part;
    return {};
  }
  Machine machine_{""};
};

TEST_F(LogTest, EachXidOfEachGpuIsOneFinding) {
  std::vector<std::string> texts = {"NVRM: Xid (PCI:0000:3b:00): 5000, new"};
  for (const Xid& xid : xid_table()) {
    texts.push_back(fmt::format("NVRM: Xid (PCI:0000:3b:00): {}, pid=7, name=x", xid.code));
  }
  texts.push_back("NVRM: Xid (PCI:0000:86:00): 74, again");
  texts.push_back("NVRM: Xid (PCI:0000:86:00): 74, last \x1b[31m");
  const auto findings = judge(texts);
  const auto xids = std::ranges::count(findings, std::string("log.xid"), &Finding::name);
  EXPECT_EQ(xids, static_cast<ptrdiff_t>(xid_table().size()) + 2);
  const Finding twice = of(findings, "log.xid", "0000:86:00");
  EXPECT_TRUE(is_finding(twice, Verdict::degraded, "2 times, last: "));
  EXPECT_EQ(twice.found.find('\x1b'), std::string::npos) << "a log is anybody's";
  EXPECT_EQ(twice.value, 2);
  const auto unknown = std::ranges::find_if(
      findings, [](const Finding& one) { return one.found.starts_with("Xid 5000"); });
  ASSERT_NE(unknown, findings.end());
  EXPECT_TRUE(is_finding(*unknown, Verdict::degraded, "Xid 5000"));
  EXPECT_EQ(of(findings, "log.mce", "").verdict, Verdict::pass);
}

TEST_F(LogTest, WordsAreToldWithWhatTheyMean) {
  const std::string line = "EDAC MC0: 1 UE memory read error on DIMM_B2";
  EXPECT_TRUE(is_finding(of(judge({line}), "log.edac", "uncorrected"), Verdict::fail, "DIMM_B2"));
  EXPECT_EQ(of(judge({"usb 1-1: new device"}), "log.edac", "").verdict, Verdict::pass);
}

// Drivers report links as down until they come up during boot.
TEST_F(LogTest, LinksThatAreNotUpYetAreNoTrouble) {
  const std::string down = "mlx5_core 0000:41:00.0 enp65s0f0np0: Link down";
  EXPECT_EQ(of(judge({"[   12.500000] " + down}), "log.ib", "").verdict, Verdict::pass);
  EXPECT_TRUE(
      is_finding(of(judge({"[ 4000.500000] " + down}), "log.ib", "link"), Verdict::degraded, down));
  EXPECT_TRUE(is_finding(of(judge({down}), "log.ib", "link"), Verdict::degraded, down));
}

TEST_F(LogTest, AProgramsFaultPassesAndSaysWhatToDo) {
  const Finding fault =
      of(judge({"NVRM: Xid (PCI:0000:3b:00): 31, pid=7, MMU Fault"}), "log.xid", "3b");
  EXPECT_TRUE(is_finding(fault, Verdict::pass, "Xid 31, GPU memory page fault: NVRM: "));
  EXPECT_TRUE(fault.found.ends_with("MMU Fault")) << fault.found;
  EXPECT_NE(fault.hint, "");
}

// Rotated, truncated, or not from the kernel: none of these passes.
TEST_F(LogTest, WhatIsNoLogOfTheKernelsIsNotJudged) {
  for (const char* const text :
       {"", "what is this", "Nov 23 11:00:00 node7 sshd[812]: Accepted publickey for root"}) {
    machine_.patch(fmt::format("/var/log/kern.log = {}\n", text));
    EXPECT_TRUE(all_are(machine_.run("log.kernel"), Verdict::could_not_run)) << text;
    machine_.log_file = "/machine/var/log/kern.log";
    const auto findings = machine_.run("log.kernel");
    EXPECT_TRUE(is_finding(findings.at(0), Verdict::could_not_run, "no line looks like")) << text;
    machine_.log_file.clear();
  }
  // A saved log may have no timestamps if it has other kernel lines.
  machine_.patch("/var/log/saved = NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus\n");
  machine_.log_file = "/machine/var/log/saved";
  EXPECT_TRUE(is_finding(of(machine_.run("log.kernel"), "log.xid", "3b"), Verdict::fail, "Xid 79"));
}

TEST_F(LogTest, AnOlderFileIsReadToo) {
  machine_.patch(
      "/var/log/messages.1\n"
      "    Nov 22 11:00:00 node7 kernel: EDAC MC1: 1 UE memory read error on DIMM_B2\n"
      "/var/log/messages\n    Nov 23 11:00:00 node7 kernel: usb 1-1: new device\n");
  EXPECT_TRUE(
      is_finding(of(machine_.run("log.kernel"), "log.edac", "uncorrected"), Verdict::fail, "B2"));
}

TEST_F(LogTest, WithoutALogNothingPasses) {
  EXPECT_TRUE(all_are(machine_.run("log.kernel"), Verdict::could_not_run));
  machine_.log_file = "/machine/none";
  EXPECT_TRUE(all_are(machine_.run("log.kernel"), Verdict::could_not_run));
}

}  // namespace
}  // namespace ff::validate
