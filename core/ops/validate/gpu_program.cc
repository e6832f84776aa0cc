// gpu_program.cc: the bytes of ff-gpu; executes them from memory or from a file.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

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

Result<ProgramOutput> ask_from_memory(const CheckContext& context, int64_t within_ns) {
  MemoryFile file;
  FF_TRY(file.write(gpu_program()));
  return run_program(file.path(), {}, context.clock, within_ns, kGpuOutputMax);
}

Result<void> write_program(io::Disk& disk, const std::string& path) {
  FF_TRY(const auto file, disk.open(path, {.access = io::AccessMode::write,
                                           .create = true,
                                           .exclusive = true,
                                           .no_follow = true,
                                           .mode = 0700}));
  return file->write_at(as_bytes(gpu_program()), 0);
}

}  // namespace

std::string_view gpu_program() { return {ff_gpu_bytes, ff_gpu_size}; }

Result<ProgramOutput> query_nvml_from_file(const CheckContext& context, int64_t within_ns) {
  io::Disk& disk = context.tree.disk();
  const std::string path = io::join(context.scratch, "ff-gpu-" + context.rng.hex_id());
  const auto written = write_program(disk, path);
  Result<ProgramOutput> output =
      written ? run_program(path, {}, context.clock, within_ns, kGpuOutputMax)
              : Result<ProgramOutput>(written.error());
  (void)disk.remove(path);
  return output;
}

Result<ProgramOutput> query_nvml(const CheckContext& context, int64_t within_ns) {
  auto output = ask_from_memory(context, within_ns);
  const bool forbidden = !output && output.error().code == Errc::refused;
  if (!forbidden || context.scratch.empty()) return output;
  return query_nvml_from_file(context, within_ns);
}

}  // namespace ff::validate
