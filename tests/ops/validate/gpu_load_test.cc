// Loads on GPUs: the real ff-gpu program on a driver that runs its kernels on the processor
// (fake_gpu.cc) and a management library (fake_nvml.c), each sick in one way at a time.
#include "ops/validate/gpu_load.h"

#include <gtest/gtest.h>

#include <csignal>

#include "ops/validate/gpu_machine.h"

namespace ff::validate {
namespace {

constexpr GpuLoad kMemory{.check = "gpu.memory",
                          .mode = "memory",
                          .at_once = true,
                          .report = report_gpu_memory,
                          .run_ns = kMillisecond,
                          .hang_ns = 5 * kSecond,
                          .within_ns = 60 * kSecond};

GpuLoad gemm_load() {
  GpuLoad load = kMemory;
  load.check = "gpu.gemm";
  load.mode = "gemm";
  load.report = report_gpu_products;
  return load;
}

GpuLoad copy_load(const char* mode = "copy") {
  GpuLoad load = kMemory;
  load.check = "gpu.copy";
  load.mode = mode;
  load.at_once = false;
  load.report = report_gpu_copies;
  return load;
}

constexpr std::array kTypes = {"fp64", "fp32", "fp16", "bf16", "tf32", "int8"};

class GpuLoadTest : public Gpu {
 protected:
  // The first GPUs of the node: the driver of the tests has two.
  std::vector<Result<ProgramOutput>> run(const GpuLoad& load, const std::string& scenario,
                                         size_t count = 1, const char* library = FF_FAKE_NVML_NEW) {
    const Variable path("LD_LIBRARY_PATH", fmt::format("{}:{}", FF_FAKE_GPU, library));
    const Variable which("FF_FAKE_NVML", scenario);
    auto gpus = nvidia_gpus(tree_);
    gpus.resize(count);
    return run_gpu_load(context(), load, gpus);
  }
  void judge_load(const GpuLoad& load, const Result<ProgramOutput>& output, size_t gpu = 0,
                  const std::vector<uint64_t>& logged = {}) {
    report_gpu_load(context(), load, nvidia_gpus(tree_)[gpu], output, logged);
  }
  void check(const GpuLoad& load, const std::string& scenario,
             const char* library = FF_FAKE_NVML_NEW) {
    judge_load(load, run(load, scenario, 1, library).front());
  }
  void add_file(const std::string& path, const std::string& text) {
    std::ofstream(dir_ / ("tree/sys/bus/pci/devices/" + address(0) + "/" + path)) << text;
  }
};

TEST_F(GpuLoadTest, HealthyOnesPass) {
  for (const GpuLoad& load : {kMemory, gemm_load(), copy_load("peers")}) check(load, "healthy");
  EXPECT_EQ(not_passed(), Names{});
  EXPECT_EQ(found("gpu.memory", part(0)).found, "24.0MiB of free memory, 10 passes, no wrong word");
  for (const char* const type : kTypes) {
    const Finding product = found("gpu.gemm", part(0) + " " + type);
    EXPECT_EQ(product.better, Better::higher);
    EXPECT_GT(product.value, 0);
    EXPECT_TRUE(says(product.found, "factors in 16.0MiB of memory")) << product.found;
  }
  EXPECT_EQ(found("gpu.copy", part(0) + ", link").found, "PCIe 4.0 x16 under load");
  for (const char* const way : {" to-device", " to-host", " on-device", " both-ways"}) {
    EXPECT_GT(found("gpu.copy", part(0) + way).value, 20e9) << way;
  }
  const Finding peer = found("gpu.copy", part(0) + " to-peer " + address(1));
  EXPECT_EQ(peer.expected, "70 % of 279GiB/s");
  EXPECT_EQ(peer.source, "12 NVLinks");
}

TEST_F(GpuLoadTest, AllGpusAreLoaded) {
  const auto outputs = run(gemm_load(), "healthy", 2);
  ASSERT_EQ(outputs.size(), 2u);
  for (size_t gpu = 0; gpu < 2; gpu++) judge_load(gemm_load(), outputs[gpu], gpu);
  EXPECT_EQ(not_passed(), Names{});
  for (size_t gpu = 0; gpu < 2; gpu++)
    EXPECT_EQ(verdict("gpu.gemm", part(gpu) + " fp16"), Verdict::pass);
}

// Memory. -----------------------------------------------------------------------------------------

TEST_F(GpuLoadTest, ABitThatStaysZeroHasAnAddress) {
  check(kMemory, "memory-bit");
  EXPECT_EQ(not_passed(), Names{"gpu.memory of " + part(0)});
  const Finding wrong = found("gpu.memory", part(0));
  EXPECT_EQ(wrong.verdict, Verdict::fail);
  EXPECT_EQ(wrong.value, 5);  // one of the two passes of each pattern writes a one there
  EXPECT_TRUE(says(wrong.found, fmt::format("first at {:#x}: fffffffffffdffff where "
                                            "ffffffffffffffff was written (zeros and ones)",
                                            2'345'678 * 8)))
      << wrong.found;
  EXPECT_NE(wrong.hint, "");
}

TEST_F(GpuLoadTest, EccErrorsOfTheLoad) {
  check(kMemory, "ecc-corrected");
  EXPECT_EQ(not_passed(), Names{"gpu.memory of " + part(0) + ", ECC"});
  EXPECT_EQ(verdict("gpu.memory", part(0) + ", ECC"), Verdict::degraded);
  EXPECT_EQ(found("gpu.memory", part(0) + ", ECC").found,
            "3 corrected, 0 uncorrected errors during the load");
  findings_.clear();
  check(kMemory, "ecc-uncorrected");
  EXPECT_EQ(verdict("gpu.memory", part(0) + ", ECC"), Verdict::fail);
}

TEST_F(GpuLoadTest, NoFreeMemoryIsNoPass) {
  check(kMemory, "no-memory");
  EXPECT_EQ(verdict("gpu.memory", part(0)), Verdict::could_not_run);
  EXPECT_TRUE(says(found("gpu.memory", part(0)).found, "CUDA_ERROR_OUT_OF_MEMORY"));
}

TEST_F(GpuLoadTest, WrongWordsBeforeAHangAreReported) {
  const auto output = run(kMemory, "memory-bit").front();
  ASSERT_TRUE(output);
  ProgramOutput cut = *output;
  cut.output.resize(cut.output.find(R"({"event":"memory")"));
  cut.output += R"({"event":"hang","step":"random"})";
  cut.status = 1 << 8;
  judge_load(kMemory, cut);
  EXPECT_EQ(not_passed(), (Names{"gpu.memory of " + part(0), "gpu.memory of " + part(0)}));
  EXPECT_EQ(findings_[0].found, "hung: the step 'random' did not end within 5s");
  EXPECT_TRUE(says(findings_[1].found, "5 wrong words, first at"));
}

// Products. ---------------------------------------------------------------------------------------

TEST_F(GpuLoadTest, AWrongFactorOfOneCopyIsFound) {
  check(gemm_load(), "input-bit");
  EXPECT_EQ(not_passed(), Names{"gpu.gemm of " + part(0) + " fp64"});
  const Finding wrong = found("gpu.gemm", part(0) + " fp64");
  EXPECT_EQ(wrong.verdict, Verdict::fail);
  EXPECT_TRUE(says(wrong.found, "; first in row 3, column ")) << wrong.found;
}

TEST_F(GpuLoadTest, AMultiprocessorThatAddsWronglyIsNamed) {
  check(gemm_load(), "core");
  EXPECT_EQ(not_passed(), Names{"gpu.gemm of " + part(0) + " bf16"});
  const Finding wrong = found("gpu.gemm", part(0) + " bf16");
  EXPECT_EQ(wrong.verdict, Verdict::fail);
  EXPECT_TRUE(says(wrong.found,
                   "first in row 5, column 199 on multiprocessor 3: -70795 instead "
                   "of -70811"))
      << wrong.found;
  EXPECT_EQ(wrong.expected, "cb65b880389131a4");
}

TEST_F(GpuLoadTest, ADigestThatIsNotTheKnownOneFails) {
  const auto output = run(gemm_load(), "healthy").front();
  ASSERT_TRUE(output);
  ProgramOutput changed = *output;
  const std::string digest = R"("digest":"7b74a62b65b93894")";
  changed.output.replace(changed.output.find(digest), digest.size(),
                         R"("digest":"7b74a62b65b93895")");
  judge_load(gemm_load(), changed);
  EXPECT_EQ(not_passed(), Names{"gpu.gemm of " + part(0) + " fp16"});
  EXPECT_EQ(verdict("gpu.gemm", part(0) + " fp16"), Verdict::fail);
}

// The processor is to blame: no verdict about the GPU.
TEST_F(GpuLoadTest, AHostThatComputesWronglyIsNoFaultOfTheGpu) {
  const auto output = run(gemm_load(), "healthy").front();
  ASSERT_TRUE(output);
  ProgramOutput changed = *output;
  const std::string host = R"("host":"7b74a62b65b93894")";
  changed.output.replace(changed.output.find(host), host.size(), R"("host":"0000000000000001")");
  judge_load(gemm_load(), changed);
  EXPECT_EQ(verdict("gpu.gemm", part(0) + " fp16"), Verdict::could_not_run);
  EXPECT_TRUE(says(found("gpu.gemm", part(0) + " fp16").hint, "cpu.kernels"));
}

// Copies. -----------------------------------------------------------------------------------------

TEST_F(GpuLoadTest, ASlowLinkIsDegraded) {
  check(copy_load(), "slow-link");
  EXPECT_EQ(not_passed(), (Names{"gpu.copy of " + part(0) + " to-device",
                                 "gpu.copy of " + part(0) + " to-host"}));
  const Finding slow = found("gpu.copy", part(0) + " to-host");
  EXPECT_EQ(slow.verdict, Verdict::degraded);
  EXPECT_EQ(slow.found, "6.05GiB/s");
  EXPECT_EQ(slow.expected, "70 % of 29.3GiB/s");
  EXPECT_EQ(slow.source, "PCIe 4.0 x16");
}

TEST_F(GpuLoadTest, FewerLanesAreDegraded) {
  check(copy_load(), "few-lanes");
  EXPECT_EQ(not_passed(), Names{"gpu.copy of " + part(0) + ", link"});
  const Finding link = found("gpu.copy", part(0) + ", link");
  EXPECT_EQ(link.verdict, Verdict::degraded);
  EXPECT_EQ(link.found, "PCIe 4.0 x8 under load");
  EXPECT_EQ(link.expected, "PCIe 4.0 x16");
}

TEST_F(GpuLoadTest, ALinkThatStaysSlowUnderLoadIsDegraded) {
  check(copy_load(), "low-generation");
  EXPECT_EQ(found("gpu.copy", part(0) + ", link").found, "PCIe 1.0 x16 under load");
  EXPECT_EQ(verdict("gpu.copy", part(0) + ", link"), Verdict::degraded);
}

TEST_F(GpuLoadTest, ACopyThatChangesABitFails) {
  check(copy_load(), "copy-bit");
  EXPECT_EQ(not_passed(), Names{"gpu.copy of " + part(0)});
  EXPECT_TRUE(says(found("gpu.copy", part(0)).found,
                   "first at 0x1000: fa9d65e76f024464 where "
                   "fa9d65e76f024466 was copied"));
}

TEST_F(GpuLoadTest, ASlowPeerIsDegraded) {
  check(copy_load("peers"), "slow-peer");
  EXPECT_EQ(not_passed(), Names{"gpu.copy of " + part(0) + " to-peer " + address(1)});
}

TEST_F(GpuLoadTest, ErrorsOfAnNvLinkNameIt) {
  check(copy_load("peers"), "nvlink-errors");
  EXPECT_EQ(not_passed(), Names{"gpu.copy of " + part(0) + ", NVLink 9"});
  EXPECT_EQ(found("gpu.copy", part(0) + ", NVLink 9").found,
            "5 errors during the load; it leads to 0000:c4:00.0");
}

TEST_F(GpuLoadTest, TheNumaNodeIsTold) {
  add_file("numa_node", "1\n");
  add_file("local_cpulist", "0\n");
  check(copy_load(), "healthy");
  EXPECT_TRUE(says(found("gpu.copy", part(0) + " to-host").found, ", NUMA node 1"));
  EXPECT_FALSE(says(found("gpu.copy", part(0) + " on-device").found, "NUMA"));
}

// Hangs and errors. -------------------------------------------------------------------------------

TEST_F(GpuLoadTest, AKernelThatHangsIsNamed) {
  GpuLoad load = gemm_load();
  load.hang_ns = kSecond / 2;
  check(load, "hung-kernel");
  EXPECT_EQ(not_passed(), Names{"gpu.gemm of " + part(0)});
  EXPECT_EQ(verdict("gpu.gemm", part(0)), Verdict::fail);
  EXPECT_EQ(found("gpu.gemm", part(0)).found, "hung: the step 'tf32' did not end within 500ms");
  EXPECT_EQ(verdict("gpu.gemm", part(0) + " bf16"), Verdict::pass);  // what was done before
}

TEST_F(GpuLoadTest, ACopyThatHangsIsNamed) {
  GpuLoad load = copy_load();
  load.hang_ns = kSecond / 2;
  check(load, "hung-copy");
  EXPECT_EQ(not_passed(), Names{"gpu.copy of " + part(0)});
  EXPECT_EQ(found("gpu.copy", part(0)).found, "hung: the step 'to-host' did not end within 500ms");
}

TEST_F(GpuLoadTest, ADriverThatHangsIsNamed) {
  GpuLoad load = gemm_load();
  load.within_ns = 3 * kSecond;
  check(load, "hung-driver");
  const std::string unnamed = address(0) + " GPU 10de:20b2";
  EXPECT_EQ(not_passed(), Names{"gpu.gemm of " + unnamed});
  EXPECT_EQ(verdict("gpu.gemm", unnamed), Verdict::fail);
  EXPECT_EQ(found("gpu.gemm", unnamed).found, "the driver hung in the step 'the driver'");
}

TEST_F(GpuLoadTest, AnErrorOfAKernelFails) {
  check(gemm_load(), "broken");
  EXPECT_EQ(not_passed(), Names{"gpu.gemm of " + part(0)});
  EXPECT_EQ(verdict("gpu.gemm", part(0)), Verdict::fail);
  EXPECT_EQ(found("gpu.gemm", part(0)).found,
            "cuEventQuery: CUDA_ERROR_ECC_UNCORRECTABLE (uncorrectable ECC error encountered), in "
            "the step 'int8'");
}

TEST_F(GpuLoadTest, AnXidDuringTheLoad) {
  check(gemm_load(), "xid");
  EXPECT_EQ(not_passed(), Names{"gpu.gemm of " + part(0) + ", Xid 94"});
  const Finding xid = found("gpu.gemm", part(0) + ", Xid 94");
  EXPECT_GE(xid.verdict, Verdict::degraded);
  EXPECT_TRUE(says(xid.found, "Xid 94 during the load: "));
  EXPECT_NE(xid.hint, "");
}

// A GPU that has fallen off the bus tells nothing more; the kernel does.
TEST_F(GpuLoadTest, XidsOfTheKernelLogCountToo) {
  const ProgramOutput hung{.output =
                               "{\"event\":\"begin\",\"step\":\"fp16\"}\n"
                               "{\"event\":\"xid\",\"code\":94}\n",
                           .hung = true};
  judge_load(gemm_load(), hung, 0, {79, 94, 79});
  const std::string unnamed = address(0) + " GPU 10de:20b2";
  EXPECT_EQ(not_passed(), (Names{"gpu.gemm of " + unnamed + ", Xid 79",
                                 "gpu.gemm of " + unnamed + ", Xid 94", "gpu.gemm of " + unnamed}));
  EXPECT_EQ(verdict("gpu.gemm", unnamed + ", Xid 79"), Verdict::fail);
}

TEST(XidsAfter, AreThoseOfTheGpuAndOfTheLoad) {
  const std::vector<std::string> records = {
      "4,7,1000,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=1, name=x",
      "6,8,2000,-;usb 1-1: new device",
      "4,9,3000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.",
      "4,10,4000,-;NVRM: Xid (PCI:0000:36:00): 48, pid=1, DBE",
      "12,11,5000,-;NVRM: Xid (PCI:0000:1b:00): 94, written by a program",
      "torn"};
  EXPECT_EQ(xids_after(records, 7, "0000:1b:00.0"), std::vector<uint64_t>{79});
  EXPECT_EQ(xids_after(records, 0, "0000:36:00.0"), std::vector<uint64_t>{48});
  EXPECT_EQ(xids_after(records, 11, "0000:1b:00.0"), std::vector<uint64_t>{});
  EXPECT_EQ(last_record({records.begin(), records.begin() + 3}), 9u);
  EXPECT_EQ(last_record({}), 0u);
}

TEST_F(GpuLoadTest, WithoutADeviceOrDriverItCouldNotRun) {
  check(gemm_load(), "no-device");
  const std::string unnamed = address(0) + " GPU 10de:20b2";
  EXPECT_EQ(verdict("gpu.gemm", unnamed), Verdict::could_not_run);
  EXPECT_EQ(found("gpu.gemm", unnamed).found,
            "cuInit: CUDA_ERROR_NO_DEVICE, in the step 'the driver'");
  findings_.clear();
  judge_load(gemm_load(),
             ProgramOutput{.output = "{\"event\":\"begin\",\"step\":\"the driver\"}\n"
                                     "{\"event\":\"failed\",\"step\":\"the driver\",\"call\":"
                                     "\"dlopen\",\"text\":\"libcuda.so.1: no file\"}\n",
                           .status = 1 << 8});
  EXPECT_EQ(verdict("gpu.gemm", unnamed), Verdict::could_not_run);
  EXPECT_EQ(found("gpu.gemm", unnamed).found, "libcuda.so.1: no file");
}

// Without links and ECC of NVML, copies have no bound: the history of the node has.
TEST_F(GpuLoadTest, AnOldManagementLibraryTellsLess) {
  check(kMemory, "healthy", FF_FAKE_NVML_OLD);
  check(copy_load("peers"), "slow-link", FF_FAKE_NVML_OLD);
  EXPECT_EQ(not_passed(), Names{});
  EXPECT_TRUE(says(found("gpu.memory", part(0)).found, "; ECC is off or unknown"));
  EXPECT_EQ(found("gpu.copy", part(0) + " to-host").expected, "");
}

// Cut and damaged output: some finding, and no pass of what did not end.
TEST_F(GpuLoadTest, OutputThatWasCutIsNoPass) {
  const auto said = run(kMemory, "healthy").front();
  ASSERT_TRUE(said);
  for (size_t length = 0; length + 1 < said->output.size(); length += 17) {
    findings_.clear();
    judge_load(kMemory, ProgramOutput{.output = said->output.substr(0, length)});
    EXPECT_NE(not_passed(), Names{}) << length;
  }
  for (int i = 0; i < 100; i++) {
    std::string output = said->output;
    for (int flips = 0; flips < 20; flips++) {
      output[rng_.below(output.size())] ^= static_cast<char>(1 << rng_.below(8));
    }
    findings_.clear();
    for (const GpuLoad& load : {kMemory, gemm_load(), copy_load()}) {
      judge_load(load, ProgramOutput{.output = output, .status = SIGKILL});
    }
    EXPECT_NE(not_passed(), Names{});
  }
}

TEST_F(GpuLoadTest, AProgramThatCannotRunIsNoPass) {
  judge_load(kMemory, fail(Errc::refused, "/proc/self/fd/5: Permission denied"));
  EXPECT_EQ(findings_.at(0).verdict, Verdict::could_not_run);
  EXPECT_NE(findings_.at(0).hint, "");
}

// The node. ---------------------------------------------------------------------------------------

TEST_F(GpuLoadTest, ANodeWithoutGpusSkipsThem) {
  for (const auto check : {check_gpu_memory, check_gpu_gemm, check_gpu_copy}) {
    findings_.clear();
    check(context());  // a recorded tree has no GPU to load
    ASSERT_EQ(findings_.size(), 1u);
    EXPECT_EQ(findings_[0].verdict, Verdict::could_not_run);
  }
  std::filesystem::remove_all(dir_ / "tree/sys/bus/pci/devices");
  for (const auto check : {check_gpu_memory, check_gpu_gemm, check_gpu_copy}) {
    findings_.clear();
    inventory_.reset();
    check(context());
    inventory_ = Inventory{{"cores", "2"}};
    check(context());
    inventory_ = Inventory{{"gpu 0000:1b:00.0", "10de:20b2"}};
    check(context());
    ASSERT_EQ(findings_.size(), 3u);
    EXPECT_EQ(findings_[0].verdict, Verdict::could_not_run);  // never adopted
    EXPECT_EQ(findings_[1].verdict, Verdict::skipped);
    EXPECT_EQ(findings_[1].found, "no NVIDIA GPU on PCI");
    EXPECT_EQ(findings_[2].verdict, Verdict::fail);  // it had one
  }
}

}  // namespace
}  // namespace ff::validate
