// gpu_program.cc: the bytes of ff-gpu; executes them from memory or from a file.
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "ops/validate/gpu.h"
#include "platform/io/files.h"

// FF_GPU_FILE: the path of the program in the build.
asm(R"(
  .pushsection .rodata
  .balign 16
  .hidden ff_gpu_bytes
  .global ff_gpu_bytes
ff_gpu_bytes:
  .incbin ")" FF_GPU_FILE R"("
ff_gpu_end:
  .balign 8
  .hidden ff_gpu_size
  .global ff_gpu_size
ff_gpu_size:
  .quad ff_gpu_end - ff_gpu_bytes
  .popsection
)");
extern "C" const char ff_gpu_bytes[];
extern "C" const uint64_t ff_gpu_size;

namespace ff::validate {

namespace {

constexpr size_t kGpuOutputMax = kMiB;

// An anonymous file in memory.
class MemoryFile {
 public:
  MemoryFile() {
    // Linux 6.3 and later require the flag for executables; earlier kernels reject it.
    constexpr unsigned kExec = 0x10;  // MFD_EXEC
    fd_ = ::memfd_create("ff-gpu", MFD_CLOEXEC | kExec);
    if (fd_ < 0 && errno == EINVAL) fd_ = ::memfd_create("ff-gpu", MFD_CLOEXEC);
  }
  ~MemoryFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  Result<void> write(std::string_view bytes) {
    if (fd_ < 0) return errno_error(errno, "memfd_create");
    while (!bytes.empty()) {
      const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return errno_error(errno, "a file in memory");
      bytes.remove_prefix(static_cast<size_t>(put));
    }
    return {};
  }
  // A child has the same descriptor numbers.
  std::string path() const { return fmt::format("/proc/self/fd/{}", fd_); }

 private:
  int fd_ = -1;
};

Result<void> write_program(io::Disk& disk, const std::string& path) {
  FF_TRY(const auto file, disk.open(path, {.access = io::AccessMode::write,
                                           .create = true,
                                           .exclusive = true,
                                           .no_follow = true,
                                           .mode = 0700}));
  return file->write_at(as_bytes(gpu_program()), 0);
}

// The calling thread and the programs that it starts use these processors only, if they may.
void use_cpus(const std::vector<unsigned>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const unsigned cpu : cpus) {
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  if (!cpus.empty()) (void)::sched_setaffinity(0, sizeof set, &set);
}

std::vector<Result<ProgramOutput>> run_each(const std::string& path, Clock& clock,
                                            const std::vector<GpuProgramRun>& runs, bool at_once,
                                            int64_t within_ns) {
  std::vector<Result<ProgramOutput>> outputs(runs.size(), Error{Errc::failed, "not run", ""});
  std::vector<std::thread> threads;
  for (size_t i = 0; i < runs.size(); i++) {
    threads.emplace_back([&, i] {
      use_cpus(runs[i].cpus);
      outputs[i] = run_program(path, runs[i].arguments, clock, within_ns, kGpuOutputMax);
    });
    if (!at_once) threads.back().join();
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
  return outputs;
}

std::vector<Result<ProgramOutput>> run_each_from_file(const CheckContext& context,
                                                      const std::vector<GpuProgramRun>& runs,
                                                      bool at_once, int64_t within_ns) {
  io::Disk& disk = context.tree.disk();
  const std::string path = io::join(context.scratch, "ff-gpu-" + context.rng.hex_id());
  const auto written = write_program(disk, path);
  auto outputs = written ? run_each(path, context.clock, runs, at_once, within_ns)
                         : std::vector<Result<ProgramOutput>>(runs.size(), written.error());
  (void)disk.remove(path);
  return outputs;
}

}  // namespace

std::string_view gpu_program() { return {ff_gpu_bytes, ff_gpu_size}; }

std::vector<Result<ProgramOutput>> run_gpu_program(const CheckContext& context,
                                                   const std::vector<GpuProgramRun>& runs,
                                                   bool at_once, int64_t within_ns) {
  MemoryFile file;
  const auto written = file.write(gpu_program());
  auto outputs = written ? run_each(file.path(), context.clock, runs, at_once, within_ns)
                         : std::vector<Result<ProgramOutput>>(runs.size(), written.error());
  const bool forbidden = std::ranges::any_of(
      outputs, [](const auto& one) { return !one && one.error().code == Errc::refused; });
  if (!forbidden || context.scratch.empty()) return outputs;
  return run_each_from_file(context, runs, at_once, within_ns);
}

Result<ProgramOutput> query_nvml(const CheckContext& context, int64_t within_ns) {
  return run_gpu_program(context, {GpuProgramRun()}, true, within_ns).front();
}

Result<ProgramOutput> query_nvml_from_file(const CheckContext& context, int64_t within_ns) {
  return run_each_from_file(context, {GpuProgramRun()}, true, within_ns).front();
}

}  // namespace ff::validate
