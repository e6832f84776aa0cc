// The kernel's log: forms of lines, what drivers write when hardware fails, and Xid by both
// sources.
#include <gtest/gtest.h>

#include <algorithm>

#include "check/kernel_log.h"
#include "check/log_rules.h"
#include "check/machine.h"
#include "check/xid.h"

namespace ff::check {
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
  LogLine parse(std::string_view line) { return parse_log_line(line, kNowNs); }
};

TEST_F(LogLineTest, OfDmesg) {
  const LogLine line = parse("[12345.678901] nvme nvme0: timeout");
  EXPECT_EQ(line.boot_ns, 12'345'678'901 * kMicrosecond);
  EXPECT_FALSE(line.wall_ns.has_value());
  EXPECT_EQ(line.text, "nvme nvme0: timeout");
  EXPECT_EQ(parse("<4>[    1.000002] x").boot_ns, 1'000'002 * kMicrosecond);
  EXPECT_EQ(parse("<4>[    1.000002] x").text, "x");
  const LogLine human = parse("[Sun Nov 22 11:59:58 2026] x y");
  EXPECT_EQ(human.wall_ns, at(-1, 0, 0, -2));
  EXPECT_EQ(human.text, "x y");
}

TEST_F(LogLineTest, OfSyslogAndTheJournal) {
  const LogLine old = parse("Nov 23 11:00:00 node7 kernel: [  99.5] EXT4-fs error (device sda1)");
  EXPECT_EQ(old.wall_ns, at(0, -1, 0, 0));
  EXPECT_EQ(old.text, "EXT4-fs error (device sda1)");
  // A line of a day that has not come is of last year.
  EXPECT_EQ(parse("Dec 24 12:00:00 node7 kernel: x").wall_ns, at(31 - 365, 0, 0, 0));
  const LogLine iso = parse("2026-11-23T13:30:00.250000+02:00 node7 kernel: x");
  EXPECT_EQ(iso.wall_ns, at(0, 0, -30, 0) + kSecond / 4);
  EXPECT_EQ(iso.text, "x");
  EXPECT_EQ(parse("2026-11-23T12:00:00+0000 n kernel: x").wall_ns, kNowNs);
  EXPECT_EQ(parse("2026-11-23T12:00:00Z n kernel: x").wall_ns, kNowNs);
}

TEST_F(LogLineTest, WhatHasNoTimeIsText) {
  for (const char* const line : {"", "x", "[", "[x] y", "<", "<999999> x", "[1.2", "2026-99-99T x",
                                 "Foo 99 99:99:99 x", "[99999999999999999999.1] x"}) {
    const LogLine parsed = parse(line);
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

TEST(LogRules, KnowWhatDriversWrite) {
  const std::vector<std::pair<const char*, const char*>> lines = {
      {"log.mce", "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: b200000000000000"},
      {"log.mce", "{1}[Hardware Error]: event severity: fatal"},
      {"log.mce", "CPU12: Core temperature above threshold, cpu clock throttled"},
      {"log.edac", "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0"},
      {"log.edac", "EDAC MC1: 1 UE memory read error on DIMM_B2"},
      {"log.edac", "Memory failure: 0x12345: recovery action for dirty LRU page: Recovered"},
      {"log.pcie",
       "pcieport 0000:3a:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer"},
      {"log.pcie", "pcieport 0000:3a:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=x"},
      {"log.pcie", "pcieport 0000:00:1c.0: pciehp: Slot(3): Link Down"},
      {"log.nvme", "nvme nvme0: I/O 12 QID 3 timeout, aborting"},
      {"log.nvme", "nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10"},
      {"log.disk", "blk_update_request: critical medium error, dev sdb, sector 1234 op 0x0:(READ)"},
      {"log.disk", "I/O error, dev sdb, sector 1234 op 0x0:(READ) flags 0x0 phys_seg 1"},
      {"log.disk", "ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x0"},
      {"log.fs", "EXT4-fs error (device sda1): ext4_lookup:1785: inode #2: comm ls: deleted inode"},
      {"log.fs", "EXT4-fs (sda1): Remounting filesystem read-only"},
      {"log.fs", "XFS (sdb1): Metadata corruption detected at xfs_agi_verify"},
      {"log.fs", "XFS (sdb1): Corruption of in-memory data detected.  Shutting down filesystem"},
      {"log.ib", "mlx5_core 0000:61:00.0: poll_health:800: device's health compromised - reached"},
      {"log.ib", "mlx5_core 0000:41:00.0 enp65s0f0np0: Link down"},
      {"log.kernel", "Out of memory: Killed process 4242 (python3) total-vm:1kB"},
      {"log.kernel", "watchdog: BUG: soft lockup - CPU#7 stuck for 22s! [kworker/7:1:33]"},
      {"log.kernel", "INFO: task jbd2/sda1-8:321 blocked for more than 120 seconds."},
  };
  for (const auto& [name, text] : lines) {
    const LogRule* const rule = find_rule(text);
    ASSERT_NE(rule, nullptr) << text;
    EXPECT_STREQ(rule->name, name) << text;
    EXPECT_GE(rule->verdict, Verdict::degraded) << text;
    EXPECT_STRNE(rule->hint, "") << text;
  }
  for (const char* const fine : {"nvme nvme0: 8/0/0 default/read/poll queues",
                                 "EDAC MC0: Giving out device to module skx_edac",
                                 "mlx5_core 0000:41:00.0 enp65s0f0np0: Link up",
                                 "EXT4-fs (sda1): mounted filesystem with ordered data mode",
                                 "pcieport 0000:00:1c.0: AER: enabled with IRQ 24", "usb 1-1: x"}) {
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
  // A log of the tree's own.
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
  EXPECT_TRUE(is_told(twice, Verdict::degraded, "2 times, last: "));
  EXPECT_EQ(twice.found.find('\x1b'), std::string::npos) << "a log is anybody's";
  EXPECT_EQ(twice.value, 2);
  const auto unknown = std::ranges::find_if(
      findings, [](const Finding& one) { return one.found.starts_with("Xid 5000"); });
  ASSERT_NE(unknown, findings.end());
  EXPECT_TRUE(is_told(*unknown, Verdict::degraded, "Xid 5000"));
  EXPECT_EQ(of(findings, "log.mce", "").verdict, Verdict::pass);
}

TEST_F(LogTest, WordsAreToldWithWhatTheyMean) {
  const std::string line = "EDAC MC0: 1 UE memory read error on DIMM_B2";
  EXPECT_TRUE(is_told(of(judge({line}), "log.edac", "uncorrected"), Verdict::fail, "DIMM_B2"));
  EXPECT_EQ(of(judge({}), "log.edac", "").verdict, Verdict::pass);
}

TEST_F(LogTest, WithoutALogNothingPasses) {
  EXPECT_TRUE(all_are(machine_.run("log.kernel"), Verdict::could_not_run));
  machine_.log_file = "/machine/none";
  EXPECT_TRUE(all_are(machine_.run("log.kernel"), Verdict::could_not_run));
}

}  // namespace
}  // namespace ff::check
