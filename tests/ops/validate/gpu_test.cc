// GPU checks: the real ff-gpu program with a library that simulates faulty GPUs (fake_nvml.c),
// compared with a list of GPUs on PCI.
#include "ops/validate/gpu.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "ops/validate/gpu_facts.h"
#include "ops/validate/gpu_machine.h"
#include "ops/validate/gpu_state.h"
#include "ops/validate/inventory.h"
#include "ops/validate/parts.h"

namespace ff::validate {
namespace {

// The library. ------------------------------------------------------------------------------------

TEST_F(Gpu, HealthyOnesPassEveryCheck) {
  judge(ask("healthy"));
  EXPECT_EQ(not_passed(), Names{});
  const Finding count = found("gpu.count");
  EXPECT_EQ(count.value, 8);
  EXPECT_EQ(count.found, "8 GPUs, driver 550.54.15, NVML 12.550.54.15");
  for (size_t i = 0; i < kBuses.size(); i++) {
    for (const char* const name : {"gpu.ecc", "gpu.remap", "gpu.throttle", "gpu.temperature",
                                   "gpu.nvlink", "gpu.persistence", "gpu.recovery"}) {
      EXPECT_EQ(verdict(name, part(i)), Verdict::pass);
    }
  }
  EXPECT_EQ(found("gpu.temperature", part(0)).found,
            "35 °C, 62 of 400 W, 210 of 1410 MHz, programs on it: 2");
  EXPECT_EQ(found("gpu.throttle", part(0)).found, "slowed by: idle");
  EXPECT_EQ(found("gpu.nvlink", part(0)).found, "12 of 12 links active, 0 errors so far");
}

TEST_F(Gpu, TheSameThroughAFile) {
  const Variable path("LD_LIBRARY_PATH", FF_FAKE_NVML_NEW);
  const Variable which("FF_FAKE_NVML", "healthy");
  const auto said = query_nvml_from_file(context(), 10 * kSecond);
  ASSERT_TRUE(said) << said.error().message;
  judge(said);
  EXPECT_EQ(not_passed(), Names{});
  EXPECT_EQ(found("gpu.count").value, 8);
  for (const auto& entry : std::filesystem::directory_iterator(scratch_)) {
    EXPECT_EQ(entry.path().filename(), "tree");  // it is gone
  }
}

TEST_F(Gpu, EccErrors) {
  before_[{"gpu.ecc", part(0)}] = 5;
  before_[{"gpu.ecc", part(1)}] = 3;
  judge(ask("ecc"));
  EXPECT_EQ(verdict("gpu.ecc", part(0)), Verdict::pass);      // no more than in the last run
  EXPECT_EQ(verdict("gpu.ecc", part(1)), Verdict::degraded);  // two more
  EXPECT_EQ(verdict("gpu.ecc", part(2)), Verdict::fail);
  EXPECT_EQ(verdict("gpu.ecc", part(3)), Verdict::pass);
  EXPECT_TRUE(says(found("gpu.ecc", part(3)).found, "0 and 7 in its life"));
  EXPECT_EQ(verdict("gpu.ecc", part(4)), Verdict::could_not_run);
  EXPECT_EQ(verdict("gpu.health", part(4)), Verdict::could_not_run);
  EXPECT_TRUE(says(found("gpu.health", part(4)).found,
                   "nvmlDeviceGetTotalEccErrors: Unknown Error, and 3 calls more"));
  EXPECT_EQ(verdict("gpu.ecc", part(5)), Verdict::pass);
  EXPECT_TRUE(says(found("gpu.ecc", part(5)).found, "ECC is off"));
  EXPECT_EQ(not_passed().size(), 4u);
}

TEST_F(Gpu, CorrectedErrorsBeforeTheFirstRunAreNoFault) {
  judge(ask("ecc"));
  EXPECT_EQ(verdict("gpu.ecc", part(0)), Verdict::pass);
  EXPECT_EQ(found("gpu.ecc", part(0)).value, 5);
}

TEST_F(Gpu, RemappedRows) {
  judge(ask("remap"));
  EXPECT_EQ(not_passed(), (Names{"gpu.remap of " + part(1), "gpu.remap of " + part(2)}));
  EXPECT_EQ(verdict("gpu.remap", part(1)), Verdict::degraded);  // pending
  EXPECT_EQ(verdict("gpu.remap", part(2)), Verdict::fail);
  EXPECT_EQ(found("gpu.remap", part(3)).found, "no pages retired");  // it has no row remapping
  EXPECT_EQ(found("gpu.remap", part(4)).found,
            "3 rows remapped, 1 of them for uncorrected errors (they serve as well as before)");
}

TEST_F(Gpu, ThrottledOnes) {
  judge(ask("throttled"));
  EXPECT_EQ(not_passed(), (Names{"gpu.throttle of " + part(1), "gpu.temperature of " + part(1),
                                 "gpu.throttle of " + part(2), "gpu.throttle of " + part(3)}));
  EXPECT_EQ(found("gpu.throttle", part(1)).found,
            "slowed by: heat (hardware), heat or power (hardware)");
  EXPECT_EQ(verdict("gpu.throttle", part(1)), Verdict::degraded);
  EXPECT_EQ(verdict("gpu.temperature", part(1)), Verdict::degraded);  // 93 of 92
  EXPECT_TRUE(says(found("gpu.throttle", part(2)).hint, "power supplies"));
  EXPECT_EQ(found("gpu.throttle", part(4)).found, "slowed by: clocks that were set, power limit");
  EXPECT_EQ(found("gpu.throttle", part(5)).found, "slowed by: idle, reasons 0x4000, unknown here");
  EXPECT_TRUE(says(found("gpu.persistence", part(0)).found, "off"));
}

TEST_F(Gpu, NvLinks) {
  before_[{"gpu.nvlink", part(0)}] = 0;
  before_[{"gpu.nvlink", part(2)}] = 17;
  judge(ask("nvlink"));
  EXPECT_EQ(not_passed(), (Names{"gpu.nvlink of " + part(1), "gpu.nvlink of " + part(2),
                                 "gpu.nvlink of " + part(3)}));
  EXPECT_EQ(found("gpu.nvlink", part(1)).found, "11 of 12 links active, 0 errors so far; down: 7");
  EXPECT_EQ(verdict("gpu.nvlink", part(1)), Verdict::degraded);
  const Finding errors = found("gpu.nvlink", part(2));
  EXPECT_EQ(errors.verdict, Verdict::degraded);
  EXPECT_EQ(errors.value, 1 + 16 + 256 + 4096);  // replay, recovery, both CRCs, each once
  EXPECT_TRUE(says(errors.found, "4352 more errors"));
  EXPECT_TRUE(says(found("gpu.nvlink", part(3)).found, "0 of 12 links active"));
}

TEST_F(Gpu, LinksThatNoGpuUsesAreNoFault) {
  GpuFacts bridged{.links = {{.number = 0, .active = true}, {.number = 1, .active = false}}};
  report_gpu_state(context(), "with a bridge", bridged, 1);
  EXPECT_EQ(verdict("gpu.nvlink", "with a bridge"), Verdict::pass);
  bridged.links[0].active = false;
  report_gpu_state(context(), "alone", bridged, 0);
  EXPECT_EQ(std::ranges::count(findings_, std::string("gpu.nvlink"), &Finding::name), 1);
}

TEST_F(Gpu, LinkErrorsBeforeTheFirstRunAreNoFault) {
  judge(ask("nvlink"));
  EXPECT_EQ(verdict("gpu.nvlink", part(2)), Verdict::pass);
}

TEST_F(Gpu, WhatTheDriverWantsDone) {
  judge(ask("recovery"));
  using enum Verdict;
  constexpr std::array kAll = {pass, fail, fail, fail, degraded, degraded, degraded, degraded};
  for (size_t i = 0; i < kAll.size(); i++) EXPECT_EQ(verdict("gpu.recovery", part(i)), kAll[i]);
}

TEST_F(Gpu, ALostOneFailsAndTheOthersAreRead) {
  judge(ask("lost"));
  EXPECT_EQ(not_passed(), Names{"gpu.health of " + part(3)});
  const Finding lost = found("gpu.health", part(3));
  EXPECT_EQ(lost.verdict, Verdict::fail);
  EXPECT_EQ(lost.found, "nvmlDeviceGetTemperature: GPU is lost");
  EXPECT_EQ(std::ranges::count(findings_, part(3), &Finding::part),
            1);  // it was not queried any more
  EXPECT_TRUE(says(lost.hint, "Xid 79"));
  EXPECT_EQ(verdict("gpu.ecc", part(7)), Verdict::pass);
}

TEST_F(Gpu, OneThatWantsAResetFails) {
  judge(ask("reset"));
  EXPECT_EQ(not_passed(), Names{"gpu.health of " + part(3)});
  EXPECT_EQ(verdict("gpu.health", part(3)), Verdict::fail);
  EXPECT_EQ(verdict("gpu.ecc", part(3)), Verdict::pass);
}

TEST_F(Gpu, OneThatNvmlCannotNameIsTheOneThatIsLeft) {
  judge(ask("no-handle"));
  const std::string of = address(3) + " GPU 10de:20b2";
  EXPECT_EQ(not_passed(), Names{"gpu.health of " + of});
  EXPECT_EQ(verdict("gpu.health", of), Verdict::fail);
  EXPECT_EQ(found("gpu.health", of).found, "nvmlDeviceGetHandleByIndex_v2: Unknown Error");
}

TEST_F(Gpu, OneThatMayNotBeLookedAtIsNoFault) {
  judge(ask("forbidden"));
  EXPECT_EQ(not_passed(), Names{"gpu.health of " + address(2) + " GPU 10de:20b2"});
  EXPECT_EQ(verdict("gpu.health", address(2) + " GPU 10de:20b2"), Verdict::could_not_run);
}

TEST_F(Gpu, OneAtWhichNvmlHangsIsNamed) {
  const auto said = ask("hung", kSecond);
  ASSERT_TRUE(said);
  EXPECT_TRUE(said->hung);
  judge(said);
  EXPECT_EQ(not_passed(), Names{"gpu.health of " + part(5)});
  const Finding hung = found("gpu.health", part(5));
  EXPECT_EQ(hung.verdict, Verdict::fail);
  EXPECT_EQ(hung.found, "NVML hung when queried about this GPU; 2 more were not queried");
  EXPECT_EQ(verdict("gpu.ecc", part(4)), Verdict::pass);  // what was read before
}

TEST_F(Gpu, NvmlHangsBeforeAnyGpu) {
  judge(ask("hung-at-once", kSecond / 5));
  EXPECT_EQ(not_passed(), Names{"gpu.health of "});
  EXPECT_EQ(verdict("gpu.health"), Verdict::fail);
  EXPECT_EQ(found("gpu.health").found, "NVML hung before it reported a GPU");
}

TEST_F(Gpu, NvmlHangsAfterAllGpus) {
  judge(ask("hung-at-end", kSecond));
  EXPECT_EQ(not_passed(), Names{"gpu.health of "});
  EXPECT_EQ(found("gpu.health").found, "NVML hung when it was closed");
  EXPECT_EQ(verdict("gpu.ecc", part(7)), Verdict::pass);
}

TEST_F(Gpu, OneAtWhichNvmlCrashesIsNamed) {
  judge(ask("crash"));
  EXPECT_EQ(not_passed(), Names{"gpu.health of " + part(2)});
  EXPECT_EQ(verdict("gpu.health", part(2)), Verdict::fail);
  EXPECT_EQ(found("gpu.health", part(2)).found,
            fmt::format("NVML crashed: {} when queried about this GPU; 5 more were not queried",
                        ::strsignal(SIGSEGV)));
}

TEST_F(Gpu, OneThatVanishedIsNamed) {
  judge(ask("vanished"));
  EXPECT_EQ(not_passed(), Names{"gpu.count of "});
  EXPECT_EQ(verdict("gpu.count"), Verdict::fail);
  EXPECT_TRUE(says(found("gpu.count").found, "7 GPUs"));
  EXPECT_TRUE(found("gpu.count").found.ends_with("; missing: " + address(6)));
}

TEST_F(Gpu, DriverAndLibraryOfTwoVersions) {
  judge(ask("mismatch"));
  EXPECT_EQ(not_passed(), Names{"gpu.health of "});
  EXPECT_EQ(verdict("gpu.health"), Verdict::fail);
  EXPECT_EQ(found("gpu.health").found,
            "8 NVIDIA GPUs on PCI, and no NVML: nvmlInit_v2: Driver/library version mismatch");
}

TEST_F(Gpu, WithoutDriverOrLibraryItCouldNotRun) {
  judge(ask("not-loaded"));
  EXPECT_EQ(verdict("gpu.health"), Verdict::could_not_run);
  EXPECT_TRUE(says(found("gpu.health").found, "Driver Not Loaded"));
  findings_.clear();
  // The loader searches system folders, too: record its result.
  judge_text(R"({"event":"error","call":"dlopen","code":0,"text":"libnvidia-ml.so.1: no file"})");
  EXPECT_EQ(verdict("gpu.health"), Verdict::could_not_run);
  EXPECT_EQ(found("gpu.health").found,
            "8 NVIDIA GPUs on PCI, and no NVML: libnvidia-ml.so.1: no file");
}

TEST_F(Gpu, AnOldLibraryTellsLess) {
  judge(ask("healthy", 10 * kSecond, FF_FAKE_NVML_OLD));
  EXPECT_EQ(not_passed(), Names{});
  EXPECT_EQ(found("gpu.count").value, 8);
  EXPECT_EQ(found("gpu.throttle", part(0)).found, "slowed by: idle");  // by its older name
  EXPECT_EQ(found("gpu.remap", part(0)).found, "no pages retired");
  EXPECT_EQ(std::ranges::count(findings_, std::string("gpu.recovery"), &Finding::name), 0);
  findings_.clear();
  judge(ask("remap", 10 * kSecond, FF_FAKE_NVML_OLD));
  EXPECT_EQ(not_passed(), Names{"gpu.remap of " + part(1)});
  EXPECT_EQ(found("gpu.remap", part(1)).found,
            "4 pages retired, 2 of them for uncorrected errors; one waits for a reset");
}

TEST_F(Gpu, NamesDoNotBreakLines) {
  judge(ask("odd-name"));
  EXPECT_EQ(not_passed(), Names{});
  const std::string odd = address(4) + " A \"B\"\\\\x0a\\x1b[31m\u00ff{<";
  EXPECT_EQ(verdict("gpu.ecc", odd), Verdict::pass);
}

// The output. -------------------------------------------------------------------------------------

TEST_F(Gpu, AProgramThatCannotRunIsNoPass) {
  judge(fail(Errc::refused, "/proc/self/fd/5: Permission denied"));
  EXPECT_EQ(verdict("gpu.health"), Verdict::could_not_run);
  EXPECT_TRUE(says(found("gpu.health").found, "Permission denied"));
  findings_.clear();
  judge(ProgramOutput{.status = 1 << 8});  // of a loader whose libc is too old
  EXPECT_EQ(verdict("gpu.health"), Verdict::could_not_run);
  findings_.clear();
  judge_text("");
  EXPECT_EQ(verdict("gpu.health"), Verdict::could_not_run);
}

// Truncated and duplicate lines, wrong types: some finding, and no wrong one.
TEST_F(Gpu, OddLinesAreLeftOut) {
  const auto said = ask("healthy");
  ASSERT_TRUE(said);
  for (size_t length = 0; length <= said->output.size(); length += 61) {
    findings_.clear();
    judge_text(said->output.substr(0, length));
    ASSERT_FALSE(findings_.empty());
    EXPECT_NE(not_passed(), Names{}) << length;
  }
  for (const char* const line :
       {"null", "[1]", "7", "{", R"({"event":7})", R"({"event":"gpu"})",
        R"({"event":"gpu","gpu":-1})", R"({"event":"gpu","gpu":1e300})",
        R"({"event":"gpu","gpu":99999999999999999999})", R"({"event":"gpu","gpu":5000})",
        R"({"event":"gpu","gpu":1,"links":{"a":1},"rows":[1],"celsius":"hot","ecc":[]})",
        R"({"event":"at","gpu":1,"pci":7,"name":{}})", R"({"event":"driver","count":-8})",
        R"({"event":"gpu","gpu":0,"links":[1,null,{"link":"x"},[]],"processes":{}})"}) {
    findings_.clear();
    judge_text(std::string(line) + "\n");
    ASSERT_FALSE(findings_.empty()) << line;
    EXPECT_NE(not_passed(), Names{}) << line;
  }
}

// Flipped bits: whatever is reported, it must not crash.
TEST_F(Gpu, DamagedLinesDoNoHarm) {
  const auto said = ask("healthy");
  ASSERT_TRUE(said);
  for (int i = 0; i < 100; i++) {
    SCOPED_TRACE(i);
    std::string output = said->output;
    for (int flips = 0; flips < 20; flips++) {
      output[rng_.below(output.size())] ^= static_cast<char>(1 << rng_.below(8));
    }
    findings_.clear();
    judge_text(output);
    EXPECT_FALSE(findings_.empty());
  }
}

TEST(GpuFacts, AddressesAreTheKernels) {
  const NvmlReport told = parse_nvml(
      "{\"event\":\"at\",\"gpu\":0,\"pci\":\"00000000:1B:00.0\"}\n"
      "{\"event\":\"at\",\"gpu\":1,\"pci\":\"0000:1B:00.0\"}\n"
      "{\"event\":\"at\",\"gpu\":2,\"pci\":\"00010002:AF:00.0\"}\n");
  ASSERT_EQ(told.gpus.size(), 3u);
  EXPECT_EQ(told.gpus[0].address, "0000:1b:00.0");
  EXPECT_EQ(told.gpus[1].address, "0000:1b:00.0");
  EXPECT_EQ(told.gpus[2].address, "10002:af:00.0");
}

// The node. ---------------------------------------------------------------------------------------

TEST_F(Gpu, OnlyNvidiasAreAsked) {
  const auto gpus = nvidia_gpus(tree_);
  ASSERT_EQ(gpus.size(), 8u);
  EXPECT_EQ(gpus[0].address, address(0));
  const Inventory all = collect_inventory(tree_);
  EXPECT_EQ(all.at("gpu " + address(7)), "10de:20b2");
  EXPECT_FALSE(all.contains("gpu 0000:02:00.0"));
}

TEST_F(Gpu, ARecordedTreeTellsNothingOfNvml) {
  check_gpu_health(context());
  EXPECT_EQ(verdict("gpu.health"), Verdict::could_not_run);
  EXPECT_TRUE(says(found("gpu.health").found, "8 NVIDIA GPUs on PCI; a recorded tree"));
}

TEST_F(Gpu, ANodeThatHasNone) {
  const std::string devices = dir_ / "tree/sys/bus/pci/devices";
  inventory_ = collect_inventory(tree_);
  std::filesystem::remove_all(devices);
  check_gpu_health(context());
  EXPECT_EQ(verdict("gpu.health"), Verdict::fail);  // it had GPUs when it was adopted
  findings_.clear();
  inventory_ = collect_inventory(tree_);
  check_gpu_health(context());
  EXPECT_EQ(verdict("gpu.health"), Verdict::skipped);
  findings_.clear();
  inventory_.reset();
  check_gpu_health(context());
  EXPECT_EQ(verdict("gpu.health"), Verdict::could_not_run);
}

TEST_F(Gpu, OneThatLeftPciFailsByInventory) {
  inventory_ = collect_inventory(tree_);
  std::filesystem::remove_all(dir_ / ("tree/sys/bus/pci/devices/" + address(4)));
  check_host_inventory(context());
  EXPECT_EQ(verdict("host.inventory", "gpu " + address(4)), Verdict::fail);
}

// The program. ------------------------------------------------------------------------------------

TEST_F(Gpu, WhatMayNotBeRunIsRefused) {
  const std::string path = dir_ / "program";
  std::ofstream(path) << gpu_program();
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  const auto said = run_program(path, {}, clock_, kSecond, 1000);
  ASSERT_FALSE(said);
  EXPECT_EQ(said.error().code, Errc::refused);  // makes query_nvml() use a file
}

// A program that closes a device may hang long after its last output.
TEST_F(Gpu, AProgramThatClosesItsOutputMayHangYet) {
  const auto said = run_program("/bin/sh", {"-c", "echo last; exec >&-; kill -STOP $$"}, clock_,
                                kSecond / 5, 1000);
  ASSERT_TRUE(said);
  EXPECT_TRUE(said->hung);
  EXPECT_EQ(said->output, "last\n");
}

// "GLIBC_2.34": its two numbers.
std::pair<uint64_t, uint64_t> version_of(std::string_view name) {
  const std::vector<std::string_view> parts = split(name.substr(name.find('_') + 1), '.');
  return {parse_u64(parts[0]).value_or(0), parts.size() > 1 ? parse_u64(parts[1]).value_or(0) : 0};
}

// Versions of libraries that an ELF file needs (its section .gnu.version_r).
std::vector<std::string> needed_versions(std::string_view elf) {
  const auto take = [&](auto into, size_t at) {
    FF_CHECK(at + sizeof into <= elf.size());
    std::memcpy(&into, elf.data() + at, sizeof into);
    return into;
  };
  std::vector<std::string> names;
  const auto header = take(Elf64_Ehdr{}, 0);
  const auto section = [&](size_t i) {
    return take(Elf64_Shdr{}, header.e_shoff + i * header.e_shentsize);
  };
  for (size_t i = 0; i < header.e_shnum; i++) {
    const auto needs = section(i);
    if (needs.sh_type != SHT_GNU_verneed) continue;
    const size_t strings = section(needs.sh_link).sh_offset;
    size_t at = needs.sh_offset;
    for (size_t file = 0; file < needs.sh_info; file++) {
      const auto need = take(Elf64_Verneed{}, at);
      size_t version_at = at + need.vn_aux;
      for (size_t v = 0; v < need.vn_cnt; v++) {
        const auto version = take(Elf64_Vernaux{}, version_at);
        names.emplace_back(elf.data() + strings + version.vna_name);
        version_at += version.vna_next;
      }
      at += need.vn_next;
    }
  }
  return names;
}

TEST(GpuProgram, RunsWithGlibcOf2021) {
  const auto versions = needed_versions(gpu_program());
  ASSERT_FALSE(versions.empty());
  for (const std::string& version : versions) {
    EXPECT_TRUE(version.starts_with("GLIBC_")) << version;
    EXPECT_LE(version_of(version), (std::pair<uint64_t, uint64_t>{2, 34})) << version;
  }
}

}  // namespace
}  // namespace ff::validate
