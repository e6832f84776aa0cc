// client_memory.cc: validates and maps memory files; the SIGBUS handler.
#include "storage/mount/client_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <utility>

#include "platform/base/text.h"
#include "storage/usrbio/iov_link_name.h"

namespace ff::mount {

namespace {

constexpr uintptr_t kMemoryPage = 4 * kKiB;

// The signal handler reads these at any moment and in any thread, so there are no locks. A range is
// in use if its end is behind its begin.
struct GuardedRange {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> used{false};
};
constinit std::array<GuardedRange, kGuardsMax> guards;
constinit std::atomic<size_t> guards_used{0};  // all ranges in use are before this index
constinit struct sigaction before = {};

// Null: the address is not guarded.
GuardedRange* guard_of(uintptr_t at) {
  const size_t used = guards_used.load();
  for (size_t i = 0; i < used; i++) {
    if (at >= guards[i].begin.load() && at < guards[i].end.load()) return &guards[i];
  }
  return nullptr;
}

void on_bus_error(int, siginfo_t* info, void*) {
  const int kept = errno;
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  void* const page = reinterpret_cast<void*>(at & ~(kMemoryPage - 1));
  GuardedRange* const guard = info->si_code > 0 ? guard_of(at) : nullptr;
  // Set before another thread can see the new page.
  if (guard != nullptr) guard->used.store(true);
  // mmap is a plain system call and safe in a handler. The new page belongs to this process only;
  // its old content is gone anyway. The instruction is restarted and finds the page.
  const bool mended =
      guard != nullptr && ::mmap(page, kMemoryPage, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
  errno = kept;
  if (mended) return;
  // Restores the previous handler: the restarted instruction raises SIGBUS again.
  ::sigaction(SIGBUS, &before, nullptr);
  if (info->si_code <= 0) (void)::raise(SIGBUS);  // it was sent by a process
}

void handle_bus_errors() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigaction(SIGBUS, &action, &before);
  });
}

std::mutex making;  // protects creation of guards; the handler does not use it

Error not_shared(const std::string& path, const char* why) {
  Error error = errno_error(EINVAL, printable(path) + ": " + why);
  error.code = Errc::refused;
  return error;
}

}  // namespace

Result<SigbusGuard> SigbusGuard::make(ByteSpan range) {
  handle_bus_errors();
  const std::lock_guard lock(making);
  for (size_t i = 0; i < kGuardsMax; i++) {
    if (guards[i].end.load() != 0) continue;
    const auto begin = reinterpret_cast<uintptr_t>(range.data());
    guards[i].used.store(false);
    guards[i].begin.store(begin);
    guards[i].end.store(begin + range.size());
    if (i >= guards_used.load()) guards_used.store(i + 1);
    SigbusGuard guard;
    guard.number_ = i;
    return guard;
  }
  return fail(Errc::busy, "more than {} memory files of programs", kGuardsMax);
}

SigbusGuard::SigbusGuard(SigbusGuard&& other) noexcept
    : number_(std::exchange(other.number_, kGuardsMax)) {}

SigbusGuard& SigbusGuard::operator=(SigbusGuard&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

SigbusGuard::~SigbusGuard() {
  if (number_ == kGuardsMax) return;
  const std::lock_guard lock(making);
  guards[number_].end.store(0);
}

const std::atomic<bool>& SigbusGuard::raised() const { return guards[number_].used; }

Result<ClientMemoryFile> open_client_memory(const std::string& path, uint32_t uid) {
  if (!path.starts_with(usrbio::kShm)) return not_shared(path, "is not in /dev/shm");
  const Fd shm(static_cast<int>(
      ::syscall(SYS_openat, AT_FDCWD, usrbio::kShm.data(), O_PATH | O_DIRECTORY | O_CLOEXEC)));
  if (shm.get() < 0) return errno_error(errno, "/dev/shm");
  struct open_how how = {};
  how.flags = O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS;
  const std::string name = path.substr(usrbio::kShm.size());
  Fd fd(static_cast<int>(::syscall(SYS_openat2, shm.get(), name.c_str(), &how, sizeof how)));
  if (fd.get() < 0) return errno_error(errno, printable(path));
  return restore_client_memory(std::move(fd), path, uid);
}

Result<ClientMemoryFile> restore_client_memory(Fd fd, const std::string& path, uint32_t uid) {
  ClientMemoryFile file{.fd = std::move(fd)};
  struct stat info = {};
  struct statfs system = {};
  if (::fstat(file.fd.get(), &info) != 0 || ::fstatfs(file.fd.get(), &system) != 0) {
    return errno_error(errno, printable(path));
  }
  if (!S_ISREG(info.st_mode) || system.f_type != TMPFS_MAGIC) {
    return not_shared(path, "is not a memory file");
  }
  if (uid != 0 && info.st_uid != uid) return errno_error(EACCES, printable(path));
  file.size = static_cast<uint64_t>(info.st_size);
  if (file.size == 0) return not_shared(path, "is empty");
  return file;
}

Result<ClientMemory> map_client_memory(const ClientMemoryFile& file) {
  struct Mapping {
    ByteSpan bytes = {};
    SigbusGuard guard = {};
    ~Mapping() {
      if (!bytes.empty()) ::munmap(bytes.data(), bytes.size());
    }
  };
  auto mapping = std::make_shared<Mapping>();
  void* const base =
      ::mmap(nullptr, file.size, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd.get(), 0);
  if (base == MAP_FAILED) return errno_error(errno, "memory of a program");
  mapping->bytes = {static_cast<std::byte*>(base), file.size};
  FF_TRY(mapping->guard, SigbusGuard::make(mapping->bytes));
  const ByteSpan bytes = mapping->bytes;
  const auto* const used = &mapping->guard.raised();
  return ClientMemory{bytes, used, std::move(mapping)};
}

}  // namespace ff::mount
