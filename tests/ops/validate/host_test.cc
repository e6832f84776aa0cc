// Host checks: processors, memory, kernel and processes, on recorded machines, intact and with one
// broken part.
#include "ops/validate/host.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/validate/machine.h"

namespace ff::validate {
namespace {

const std::string kCpus = "/sys/devices/system/cpu";
const std::string kEdac = "/sys/devices/system/edac/mc";
const std::string kEntries = "/sys/firmware/dmi/entries";

class HostTest : public testing::Test {
 protected:
  HostTest() {
    for (Machine* const machine : {&pcie8_, &dgx_}) {
      machine->adopt();
      for (const char* const check : {"host.throttle", "host.kernel", "memory.edac"}) {
        machine->remember(check);
      }
    }
  }
  static Finding only(Machine& machine, std::string_view check) {
    const auto findings = machine.run(check);
    EXPECT_EQ(findings.size(), 1u) << check;
    return findings.at(0);
  }
  Machine pcie8_{"pcie8"}, dgx_{"dgx"};
};

// Processors
// ---------------------------------------------------------------------------------------

TEST_F(HostTest, ProcessorsOfANode) {
  const CpuFacts facts = cpu_facts(pcie8_.tree);
  EXPECT_EQ(facts.models, std::set<std::string>{"AMD EPYC 7543 32-Core Processor"});
  EXPECT_EQ(facts.microcode, std::set<std::string>{"0xa0011d1"});
  EXPECT_EQ(facts.sockets, 2u);
  EXPECT_EQ(facts.online.size(), 64u);
  EXPECT_FALSE(facts.counts_throttling);
  EXPECT_TRUE(facts.has_cpufreq);
  EXPECT_TRUE(cpu_facts(dgx_.tree).counts_throttling);
  EXPECT_TRUE(
      is_finding(only(pcie8_, "host.cpu"), Verdict::pass, "64 of 64 cores online, 2 sockets"));
}

TEST_F(HostTest, CoresThatAreOfflineAreDegradedUnlessAdopted) {
  EXPECT_TRUE(is_finding(only(dgx_, "host.cpu"), Verdict::pass, "112 of 224 cores online"));
  dgx_.inventory.reset();
  const Finding off = only(dgx_, "host.cpu");
  EXPECT_TRUE(is_finding(off, Verdict::degraded, "offline: 112-223"));
  EXPECT_NE(off.hint.find("adopt"), std::string::npos);
  pcie8_.patch(kCpus + "/online = 0-6,8-30,32-63\n");
  EXPECT_TRUE(is_finding(only(pcie8_, "host.cpu"), Verdict::degraded, "offline: 7, 31"));
}

TEST_F(HostTest, MixedModelsAndMicrocodeAreDegraded) {
  pcie8_.patch("/proc/cpuinfo +=\n    processor	: 64\n    microcode	: 0xa0011ce\n");
  EXPECT_TRUE(
      is_finding(only(pcie8_, "host.cpu"), Verdict::degraded, "microcode 0xa0011ce, 0xa0011d1"));
  Machine mixed("pcie8");
  mixed.patch("/proc/cpuinfo +=\n    processor	: 64\n    model name	: AMD EPYC 7742\n");
  EXPECT_TRUE(is_finding(only(mixed, "host.cpu"), Verdict::degraded, "AMD EPYC 7742"));
}

TEST_F(HostTest, ProcessorsSlowedDownByHeatAreDegraded) {
  EXPECT_TRUE(is_finding(only(dgx_, "host.throttle"), Verdict::pass, "0 times since the last run"));
  // Two cores of the first socket, and its socket counter once.
  dgx_.patch("for 3 40\n" + kCpus +
             "/cpu@/thermal_throttle/core_throttle_count = 6\nend\nfor 0-55\n" + kCpus +
             "/cpu@/thermal_throttle/package_throttle_count = 1\nend\n");
  const Finding slow = only(dgx_, "host.throttle");
  EXPECT_TRUE(is_finding(slow, Verdict::degraded, "13 times since the last run"));
  EXPECT_EQ(slow.value, 13);
  dgx_.remember("host.throttle");
  EXPECT_TRUE(is_finding(only(dgx_, "host.throttle"), Verdict::pass, "0 times"));
  dgx_.before.clear();
  EXPECT_TRUE(
      is_finding(only(dgx_, "host.throttle"), Verdict::degraded, "13 times since the boot"));
}

TEST_F(HostTest, CountersOfHeatThatAreMissing) {
  EXPECT_TRUE(is_finding(only(pcie8_, "host.throttle"), Verdict::skipped, "not Intel"));
  dgx_.patch("- " + kCpus + "/cpu3/thermal_throttle\n- " + kCpus +
             "/cpu4/thermal_throttle/package_throttle_count\n");
  EXPECT_TRUE(is_finding(only(dgx_, "host.throttle"), Verdict::could_not_run, "cores 3-4 cannot"));
  // Old processors have no socket counter.
  dgx_.patch("for 0-111\n- " + kCpus + "/cpu@/thermal_throttle/package_throttle_count\n" + kCpus +
             "/cpu@/thermal_throttle/core_throttle_count = 0\nend\n");
  EXPECT_TRUE(is_finding(only(dgx_, "host.throttle"), Verdict::pass, "0 times"));
  dgx_.patch("for 0-111\n- " + kCpus + "/cpu@/thermal_throttle\nend\n");
  EXPECT_TRUE(is_finding(only(dgx_, "host.throttle"), Verdict::fail, "no counters"));
}

TEST_F(HostTest, FrequenciesThatAreLimitedAreDegraded) {
  EXPECT_TRUE(is_finding(only(pcie8_, "host.frequency"), Verdict::pass, "performance on 64 cores"));
  pcie8_.patch("for 8-15\n" + kCpus + "/cpu@/cpufreq/scaling_max_freq = 1500000\nend\n");
  EXPECT_TRUE(is_finding(only(pcie8_, "host.frequency"), Verdict::degraded,
                         "limited to 1.50 of 2.80 GHz on 8-15"));
  pcie8_.patch("for 8-15\n" + kCpus + "/cpu@/cpufreq/scaling_max_freq = 2700000\nend\n");
  EXPECT_TRUE(is_finding(only(pcie8_, "host.frequency"), Verdict::pass, "performance"));
}

TEST_F(HostTest, GovernorsThatDifferOrSaveAreDegraded) {
  pcie8_.patch("for 0-3\n" + kCpus + "/cpu@/cpufreq/scaling_governor = schedutil\nend\n");
  const Finding mixed = only(pcie8_, "host.frequency");
  EXPECT_TRUE(is_finding(mixed, Verdict::degraded, "performance on 60, schedutil on 4 cores"));
  pcie8_.patch("for 0-63\n" + kCpus + "/cpu@/cpufreq/scaling_governor = powersave\nend\n");
  EXPECT_TRUE(is_finding(only(pcie8_, "host.frequency"), Verdict::degraded, "powersave on 64"));
  // With drivers that choose themselves, it follows the load.
  EXPECT_TRUE(is_finding(only(dgx_, "host.frequency"), Verdict::pass, "powersave on 112"));
  pcie8_.patch(kCpus + "/amd_pstate/status = active\n");
  EXPECT_TRUE(is_finding(only(pcie8_, "host.frequency"), Verdict::pass, "powersave on 64"));
  dgx_.patch(kCpus + "/intel_pstate/status = passive\n");
  EXPECT_TRUE(is_finding(only(dgx_, "host.frequency"), Verdict::degraded, "powersave on 112"));
}

TEST_F(HostTest, FrequenciesThatCannotBeReadAreNotJudged) {
  pcie8_.patch("- " + kCpus + "/cpufreq/policy9/scaling_max_freq\n");
  EXPECT_TRUE(is_finding(only(pcie8_, "host.frequency"), Verdict::could_not_run, "read on 9"));
  pcie8_.patch("for 0-63\n- " + kCpus + "/cpu@/cpufreq\nend\n");
  EXPECT_TRUE(is_finding(only(pcie8_, "host.frequency"), Verdict::fail, "does not control"));
}

// Memory
// -------------------------------------------------------------------------------------------

TEST_F(HostTest, ModulesOfANode) {
  const auto modules = dimms(pcie8_.tree);
  ASSERT_TRUE(modules.ok());
  ASSERT_EQ(modules->size(), 16u);
  const Dimm& last = modules->back();
  EXPECT_EQ(last.slot, "P1 CHANNEL H DIMM 0");
  EXPECT_EQ(last.bank, "P1 CHANNEL H");
  EXPECT_EQ(last.bytes, 32 * kGiB);
  EXPECT_EQ(last.rated_mts, 3200u);
  EXPECT_EQ(last.configured_mts, 3200u);
  EXPECT_EQ(dimms(dgx_.tree)->front().slot, "CPU0_DIMM_A1");
  EXPECT_EQ(dimms(dgx_.tree)->size(), 32u);
  EXPECT_TRUE(all_are(pcie8_.run("host.dimms"), Verdict::pass));
}

std::string module(uint16_t size, uint8_t length = 0x28) {
  std::string raw(length, '\0');
  raw[0] = 17;
  raw[1] = static_cast<char>(length);
  raw[0x0c] = static_cast<char>(size);
  raw[0x0d] = static_cast<char>(size >> 8);
  raw[0x10] = 1;
  return raw + std::string("A1\0\0", 4);
}

TEST(Dimms, SizesAreReadInEachOfTheirForms) {
  EXPECT_EQ(parse_dimm(module(16'384))->bytes, 16 * kGiB);
  EXPECT_EQ(parse_dimm(module(0x8000 | 512))->bytes, 512 * kKiB);
  EXPECT_EQ(parse_dimm(module(0xffff))->bytes, 0u);
  EXPECT_TRUE(parse_dimm(module(0xffff))->is_present);
  EXPECT_FALSE(parse_dimm(module(0))->is_present);
  std::string large = module(0x7fff);
  large[0x1e] = 2;  // 0x00020000 MiB
  EXPECT_EQ(parse_dimm(large)->bytes, 128 * kGiB);
  EXPECT_EQ(parse_dimm(module(1024, 0x17))->slot, "A1") << "as old as it may be";
}

TEST(Dimms, WhatIsCutOrAnotherIsNone) {
  const std::string whole = module(16'384);
  for (size_t size = 0; size < 0x28; size++)
    EXPECT_FALSE(parse_dimm(whole.substr(0, size))) << size;
  EXPECT_TRUE(parse_dimm(whole.substr(0, 0x28)).has_value()) << "without its strings";
  EXPECT_EQ(parse_dimm(whole.substr(0, 0x28))->slot, "");
  std::string other = whole;
  other[0] = 16;
  EXPECT_FALSE(parse_dimm(other).has_value());
  EXPECT_FALSE(parse_dimm(module(1024, 0x16)).has_value());
}

TEST_F(HostTest, AModuleThatIsSlowerThanOthersIsDegradedByName) {
  pcie8_.patch(kEntries +
               "/17-3/raw = hex 11 28 33 11 0a 11 fe ff 48 00 40 00 ff 7f 09 00 01 02 1a 80 40"
               " 80 0c 00*5 00 80 00 00 6a 0a 00*6 \"DIMM 0\" 00 \"P0 CHANNEL D\" 00*2\n");
  const Finding slow = pcie8_.about("host.dimms", "P0 CHANNEL D DIMM 0");
  EXPECT_TRUE(is_finding(slow, Verdict::degraded, "32.0GiB, 2666 MT/s"));
  EXPECT_EQ(slow.expected, "3200 MT/s");
  EXPECT_EQ(std::ranges::count(pcie8_.run("host.dimms"), Verdict::pass, &Finding::verdict), 15);
}

TEST_F(HostTest, ASpeedThatTheFirmwareDoesNotSayIsNotJudged) {
  pcie8_.patch(kEntries +
               "/17-3/raw = hex 11 28 33 11 0a 11 fe ff 48 00 40 00 ff 7f 09 00 01 02 1a 80 40"
               " 80 0c 00*5 00 80 00 00 00 00 00*6 \"DIMM 0\" 00 \"P0 CHANNEL D\" 00*2\n");
  EXPECT_TRUE(is_finding(pcie8_.about("host.dimms", "P0 CHANNEL D DIMM 0"), Verdict::could_not_run,
                         "speed unknown"));
}

TEST_F(HostTest, MemoryIsHeldAgainstItsModules) {
  const Finding whole = only(pcie8_, "host.memory");
  EXPECT_TRUE(is_finding(whole, Verdict::pass, "503GiB on 2 NUMA nodes"));
  EXPECT_EQ(whole.expected, "512GiB");
  EXPECT_EQ(whole.better, Better::higher) << "its history counts, too";
  pcie8_.patch("/proc/meminfo\n    MemTotal:       461000000 kB\n    Hugetlb:        2097152 kB\n");
  const Finding less = only(pcie8_, "host.memory");
  EXPECT_TRUE(
      is_finding(less, Verdict::degraded, "440GiB on 2 NUMA nodes, 2.00GiB of them huge pages"));
  EXPECT_EQ(less.source, "the modules (SMBIOS)");
}

TEST_F(HostTest, MemoryOfWhichModulesAreNotSeenIsNotJudged) {
  pcie8_.watched.refused = {"/machine" + kEntries + "/17-9/raw"};
  for (const char* const check : {"host.memory", "host.dimms"}) {
    const Finding unseen = only(pcie8_, check);
    EXPECT_TRUE(is_finding(unseen, Verdict::could_not_run, "permission denied")) << check;
    EXPECT_NE(unseen.hint.find("root"), std::string::npos);
  }
}

// The firmware of most virtual machines names no modules.
TEST_F(HostTest, AGuestWithoutModules) {
  Machine guest("");
  guest.patch("/proc/meminfo\n    MemTotal:       24669120 kB\n");
  EXPECT_TRUE(is_finding(only(guest, "host.memory"), Verdict::could_not_run, "names no module"));
  EXPECT_TRUE(is_finding(only(guest, "host.dimms"), Verdict::could_not_run, "names no module"));
  guest.adopt();
  EXPECT_TRUE(is_finding(only(guest, "host.memory"), Verdict::pass, "23.5GiB on 1 NUMA nodes"));
  EXPECT_TRUE(is_finding(only(guest, "host.dimms"), Verdict::skipped, "names no module"));
}

TEST_F(HostTest, ErrorsOfMemoryNameTheModule) {
  EXPECT_TRUE(all_are(pcie8_.run("memory.edac"), Verdict::pass));
  pcie8_.patch(kEdac + "/mc1/ce_count = 41\n" + kEdac + "/mc1/rank3/dimm_ce_count = 41\n");
  EXPECT_TRUE(is_finding(pcie8_.about("memory.edac", "mc1"), Verdict::degraded,
                         "41 corrected, 0 uncorrected since the boot, 41 of them new "
                         "(mc#1csrow#0channel#3)"));
  EXPECT_EQ(pcie8_.about("memory.edac", "mc0").verdict, Verdict::pass);
  pcie8_.remember("memory.edac");
  EXPECT_TRUE(is_finding(pcie8_.about("memory.edac", "mc1"), Verdict::pass, "0 of them new"));
}

TEST_F(HostTest, UncorrectedErrorsOfMemoryFail) {
  dgx_.patch(kEdac + "/mc6/ue_count = 1\n" + kEdac + "/mc6/dimm2/dimm_ue_count = 1\n");
  EXPECT_TRUE(is_finding(dgx_.about("memory.edac", "mc6"), Verdict::fail,
                         "(CPU_SrcID#1_MC#2_Chan#1_DIMM#0)"));
  dgx_.remember("memory.edac");
  EXPECT_EQ(dgx_.about("memory.edac", "mc6").verdict, Verdict::fail) << "until the next boot";
  dgx_.patch("- " + kEdac + "/mc6/ue_count\n");
  EXPECT_TRUE(
      is_finding(dgx_.about("memory.edac", "mc6"), Verdict::could_not_run, "cannot be read"));
}

// The kernel and its processes
// -----------------------------------------------------------------------

TEST_F(HostTest, TaintsByHardwareFail) {
  const auto taint = [&](const char* bits) {
    pcie8_.patch(fmt::format("/proc/sys/kernel/tainted = {}\n", bits));
    return pcie8_.about("host.kernel", "taint");
  };
  EXPECT_TRUE(is_finding(taint("12289"), Verdict::pass, "no fault")) << "a driver's module";
  EXPECT_TRUE(is_finding(taint("12305"), Verdict::fail, "machine check"));
  EXPECT_TRUE(is_finding(taint("32"), Verdict::fail, "page of memory was corrupt"));
  EXPECT_TRUE(is_finding(taint("128"), Verdict::fail, "oops"));
  EXPECT_TRUE(is_finding(taint("16384"), Verdict::degraded, "soft lockup"));
  EXPECT_TRUE(is_finding(taint("16400"), Verdict::fail, "machine check")) << "the worst is named";
  EXPECT_TRUE(is_finding(taint("-1"), Verdict::could_not_run, "cannot be read"));
}

TEST_F(HostTest, ProgramsKilledForMemoryAreDegradedOnce) {
  const auto kills = [&] { return pcie8_.about("host.kernel", "out of memory"); };
  EXPECT_TRUE(is_finding(kills(), Verdict::pass, "0 programs"));
  pcie8_.patch("/proc/vmstat\n    oom_kill 3\n");
  EXPECT_TRUE(
      is_finding(kills(), Verdict::degraded, "3 programs killed for memory since the last run"));
  pcie8_.remember("host.kernel");
  EXPECT_TRUE(is_finding(kills(), Verdict::pass, "0 programs"));
  // Before the first run.
  pcie8_.before.clear();
  EXPECT_TRUE(is_finding(kills(), Verdict::pass, "3 programs killed for memory since the boot"));
  pcie8_.since_ns = kNowNs - kSecond;
  EXPECT_TRUE(is_finding(kills(), Verdict::degraded, "3 programs"))
      << "since a boot between two runs";
}

std::string process(int pid, char state, int parent, int uid, uint64_t pages, const char* name) {
  return fmt::format(
      "/proc/{0}/stat = {0} ({5}) {1} {2} 1 1 0 -1 4194560 0 0 0 0 7 9 0 0 20 0 1 0 20 1 {4}"
      " 1 1\n/proc/{0}/status\n    Name:	x\n    Uid:	{3}	{3}	{3}	{3}\n",
      pid, state, parent, uid, pages, name);
}

TEST_F(HostTest, ProcessesAreReadWhateverTheirName) {
  pcie8_.patch(process(4000, 'R', 17, 1000, 33, "a) Z (b"));
  const auto one = process_of(pcie8_.tree, 4000);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->name, "a) Z (b");
  EXPECT_EQ(one->state, 'R');
  EXPECT_EQ(one->parent, 17u);
  EXPECT_EQ(one->ticks, 16u);
  EXPECT_EQ(one->resident_pages, 33u);
  EXPECT_FALSE(process_of(pcie8_.tree, 4001).has_value());
}

TEST_F(HostTest, ManyDeadProcessesAreDegraded) {
  EXPECT_TRUE(is_finding(only(pcie8_, "host.processes"), Verdict::pass,
                         "0 zombies, 0 in uninterruptible sleep"));
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(only(pcie8_, "host.processes").verdict, Verdict::pass) << i;
    pcie8_.patch(process(5000 + i, 'Z', 900, 1000, 0, "python"));
  }
  pcie8_.patch(process(6000, 'D', 900, 1000, 0, "dd"));
  EXPECT_TRUE(is_finding(only(pcie8_, "host.processes"), Verdict::degraded,
                         "20 zombies, 1 in uninterruptible sleep, of 27 processes"));
}

TEST_F(HostTest, ProcessesThatWereLeftBehindAreNamed) {
  // Not reported: a service, a child of a running program, and a small one.
  pcie8_.patch(process(7000, 'S', 1, 999, 9'000'000, "mysqld") +
               process(7001, 'S', 900, 1000, 9'000'000, "python") +
               process(7002, 'S', 1, 1000, 262'143, "tmux"));
  EXPECT_TRUE(is_finding(only(pcie8_, "host.processes"), Verdict::pass,
                         "0 zombies, 0 in uninterruptible sleep"));
  pcie8_.patch(process(7003, 'S', 1, 1000, 262'144, "python") +
               process(7004, 'S', 1, 1001, 10, "train") + "/proc/7004/fd/9 -> /dev/nvidia3\n");
  EXPECT_TRUE(is_finding(only(pcie8_, "host.processes"), Verdict::degraded,
                         "python (7003, 1.00GiB), train (7004, a GPU)"));
}

TEST_F(HostTest, FilesOfOthersThatAreHiddenAreSaid) {
  pcie8_.patch(process(7004, 'S', 1, 1001, 10, "train") + "/proc/7004/fd/9 -> /dev/nvidia3\n");
  pcie8_.watched.refused = {"/machine/proc/7004/fd"};
  const Finding hidden = only(pcie8_, "host.processes");
  EXPECT_TRUE(is_finding(hidden, Verdict::could_not_run,
                         "the open files of 1 processes of other users are hidden"));
  EXPECT_NE(hidden.hint.find("root"), std::string::npos);
}

// Whatever was adopted: it is no part of the inventory.
TEST_F(HostTest, AnUnsynchronisedClockIsDegraded) {
  EXPECT_TRUE(
      is_finding(clock_finding({.synchronized = false}), Verdict::degraded, "not synchronised"));
  EXPECT_TRUE(is_finding(clock_finding({.synchronized = true, .offset_seconds = 0.25}),
                         Verdict::pass, "synchronised, +0.250000 s off"));
}

// Data from the machine that runs the test is not that of the recorded one.
TEST_F(HostTest, ARecordedTreeHasNoClockAndNoRoom) {
  for (const char* const check : {"host.clock", "host.space"}) {
    EXPECT_TRUE(is_finding(only(pcie8_, check), Verdict::could_not_run,
                           "a recorded tree does not contain"));
  }
}

}  // namespace
}  // namespace ff::validate
