// The kernel log: line formats, messages of drivers about failing hardware, and Xid by both
// sources.
#include <gtest/gtest.h>

#include <algorithm>

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

// dmesg and journalctl print the time before the first line of a message alone.
TEST_F(LogTest, FurtherLinesOfAMessageBelongToIt) {
  const std::string probe =
      "NVRM: The NVIDIA GPU 0000:b3:00.0\n"
      "                   NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
      "                   NVRM: fallen off the bus and is not responding to commands.\n";
  for (const bool saved : {false, true}) {
    machine_.patch("/var/log/kern.log\n    Nov 23 11:00:00 node7 kernel: " + probe);
    if (saved) machine_.log_file = "/machine/var/log/kern.log";
    const Finding lost = of(machine_.run("log.kernel"), "log.gpu", "fallen off the bus");
    EXPECT_TRUE(is_finding(lost, Verdict::fail, "NVIDIA GPU 0000:b3:00.0")) << saved;
    // Another program's are not the kernel's.
    machine_.patch(
        "/var/log/kern.log\n    Nov 23 11:00:00 node7 kernel: usb 1-1: new device\n"
        "    Nov 23 11:00:00 node7 gpud[812]: " +
        probe);
    EXPECT_EQ(of(machine_.run("log.kernel"), "log.gpu", "").verdict, Verdict::pass) << saved;
  }
}

TEST_F(LogTest, WithoutALogNothingPasses) {
  EXPECT_TRUE(all_are(machine_.run("log.kernel"), Verdict::could_not_run));
  machine_.log_file = "/machine/none";
  EXPECT_TRUE(all_are(machine_.run("log.kernel"), Verdict::could_not_run));
}

}  // namespace
}  // namespace ff::validate
