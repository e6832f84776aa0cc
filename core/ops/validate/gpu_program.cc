// gpu_program.cc: the bytes of ff-gpu, and running them with and without a file.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "ops/validate/gpu.h"
#include "platform/io/files.h"

// FF_GPU_FILE: where the build has put the program.
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

// A file without a name, in memory.
class MemoryFile {
 public:
  MemoryFile() {
    // Kernels since 6.3 are to be told that it will be run; those before do not know the flag.
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
  // For a child, too: it has the same numbers.
  std::string path() const { return fmt::format("/proc/self/fd/{}", fd_); }

 private:
  int fd_ = -1;
};

Result<Said> ask_from_memory(const Context& context, int64_t within_ns) {
  MemoryFile file;
  FF_TRY(file.write(gpu_program()));
  return run_program(file.path(), {}, context.clock, within_ns, kGpuOutputMax);
}

Result<void> write_program(io::Disk& disk, const std::string& path) {
  FF_TRY(const auto file, disk.open(path, {.access = io::Access::write,
                                           .create = true,
                                           .exclusive = true,
                                           .no_follow = true,
                                           .mode = 0700}));
  return file->write_at(as_bytes(gpu_program()), 0);
}

}  // namespace

std::string_view gpu_program() { return {ff_gpu_bytes, ff_gpu_size}; }

Result<Said> ask_nvml_from_file(const Context& context, int64_t within_ns) {
  io::Disk& disk = context.tree.disk();
  const std::string path = io::join(context.scratch, "ff-gpu-" + context.rng.hex_id());
  const auto written = write_program(disk, path);
  Result<Said> said = written ? run_program(path, {}, context.clock, within_ns, kGpuOutputMax)
                              : Result<Said>(written.error());
  (void)disk.remove(path);
  return said;
}

Result<Said> ask_nvml(const Context& context, int64_t within_ns) {
  auto said = ask_from_memory(context, within_ns);
  const bool forbidden = !said && said.error().code == Errc::refused;
  if (!forbidden || context.scratch.empty()) return said;
  return ask_nvml_from_file(context, within_ns);
}

}  // namespace ff::validate
