// shared_region.cc: making regions and finding them. A huge region has a tmpfs of its own, of
// exactly its size, made with the mount calls of Linux 5.2 that need no mount point.
#include "platform/net/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <string>

#include "platform/base/check.h"

namespace ff::net {

namespace {

constexpr uint64_t kHugePage = 2 * kMiB;
constexpr uint64_t kPage = 4 * kKiB;
// Sizes beyond are mistakes: no address space takes them.
constexpr uint64_t kSizeMax = uint64_t{1} << 46;

Error made(int err, const char* what) {
  Error error = errno_error(err, std::string("a region of shared memory: ") + what);
  // The kernel is older than 5.2, or a filter forbids the call.
  if (err == ENOSYS || err == EINVAL || err == ENODEV) error.code = Errc::unsupported;
  return error;
}

// An unnamed file on a detached mount; the kernel frees both with the last descriptor.
Result<Fd> huge_file(uint64_t size) {
  const Fd tmpfs(::fsopen("tmpfs", FSOPEN_CLOEXEC));
  if (tmpfs.get() < 0) return made(errno, "fsopen");
  const std::string bytes = std::to_string(size);
  if (::fsconfig(tmpfs.get(), FSCONFIG_SET_STRING, "huge", "always", 0) != 0 ||
      ::fsconfig(tmpfs.get(), FSCONFIG_SET_STRING, "size", bytes.c_str(), 0) != 0 ||
      ::fsconfig(tmpfs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    return made(errno, "fsconfig");
  }
  const Fd mount(::fsmount(tmpfs.get(), FSMOUNT_CLOEXEC,
                           MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  if (mount.get() < 0) return made(errno, "fsmount");
  Fd file(::openat(mount.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.get() < 0) return made(errno, "open");
  return file;
}

Result<Fd> sealable_file() {
  Fd file(::memfd_create("ff-region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) return made(errno, "memfd_create");
  return file;
}

// A byte for each process number.
constexpr int64_t kLocks = int64_t{1} << 22;

// Where the range begins of processes whose first region is this file.
int64_t locks_of(int fd) {
  struct stat file = {};
  if (::fstat(fd, &file) != 0) return 0;
  const uint64_t ranges = (uint64_t{1} << 62) / kLocks;
  return static_cast<int64_t>(((file.st_dev << 28) + file.st_ino) % ranges) * kLocks;
}

int64_t own_lock(int64_t locks) { return locks + ::getpid() % kLocks; }

struct flock lock_of(short type, int64_t begin, int64_t end) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = begin;
  lock.l_len = end - begin;
  return lock;
}

bool is_locked(int fd, int64_t begin, int64_t end) {
  if (begin == end) return false;  // a length of 0 would be the rest of the file
  struct flock lock = lock_of(F_WRLCK, begin, end);
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

Result<Fd> open_again(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() < 0) return made(errno, "open");
  return file;
}

bool SharedRegion::used_before() const {
  const int64_t own = own_lock(locks_);
  return is_locked(fd_.get(), locks_, own) || is_locked(fd_.get(), own + 1, locks_ + kLocks);
}

SharedRegion::~SharedRegion() {
  if (base_ != nullptr && kind_ != Kind::adopted) ::munmap(base_, size_);
}

Result<std::shared_ptr<const SharedRegion>> SharedRegionSet::make(uint64_t size) {
  auto huge = make(size, SharedRegion::Kind::huge);
  if (huge) return huge;
  const Errc code = huge.error().code;
  if (code != Errc::refused && code != Errc::unsupported) return huge;
  return make(size, SharedRegion::Kind::sealed);
}

Result<std::shared_ptr<const SharedRegion>> SharedRegionSet::make(uint64_t size,
                                                                  SharedRegion::Kind kind) {
  FF_CHECK(size > 0);
  if (size > kSizeMax) return fail(Errc::usage, "a region of {} bytes of shared memory", size);
  const bool huge = kind == SharedRegion::Kind::huge;
  const uint64_t rounded = align_up(size, huge ? kHugePage : kPage);
  FF_TRY(auto fd, huge ? huge_file(rounded) : sealable_file());
  if (::ftruncate(fd.get(), static_cast<off_t>(rounded)) != 0) return made(errno, "ftruncate");
  // The last seal: a peer must not add one that keeps others from writing.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (!huge && ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return made(errno, "seals");
  void* const base = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return made(errno, "mmap");
  // Linux gives the memory pages of 2 MiB if the setting shmem_enabled of the machine allows it.
  if (!huge) (void)::madvise(base, rounded, MADV_HUGEPAGE);
  const ByteSpan memory(static_cast<std::byte*>(base), rounded);
  return std::shared_ptr<const SharedRegion>(add(kind, std::move(fd), memory));
}

std::shared_ptr<const SharedRegion> SharedRegionSet::adopt(ByteSpan memory, Fd fd) {
  auto own = open_again(fd.get());  // without a lock of others
  if (own) fd = std::move(*own);
  return add(SharedRegion::Kind::adopted, std::move(fd), memory);
}

std::shared_ptr<SharedRegion> SharedRegionSet::add(SharedRegion::Kind kind, Fd fd,
                                                   ByteSpan memory) {
  const std::lock_guard held(mutex_);
  if (locks_ < 0) locks_ = locks_of(fd.get());
  // If this fails, successors do not wait for peers.
  const int64_t own = own_lock(locks_);
  struct flock lock = lock_of(F_RDLCK, own, own + 1);
  (void)::fcntl(fd.get(), F_OFD_SETLK, &lock);
  std::shared_ptr<SharedRegion> region(new SharedRegion(kind, ++last_id_, std::move(fd), locks_));
  region->base_ = memory.data();
  region->size_ = memory.size();
  regions_[region->base_] = region;
  return region;
}

void SharedRegionSet::remove(const SharedRegion& region) {
  std::shared_ptr<const SharedRegion> last;  // unmapped after the lock
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(region.memory().data());
  if (found == regions_.end() || found->second.get() != &region) return;
  last = std::move(found->second);
  regions_.erase(found);
  last->removed_.store(true);
  removals_.fetch_add(1);
}

std::shared_ptr<const SharedRegion> SharedRegionSet::find(ByteView memory) const {
  const std::lock_guard lock(mutex_);
  auto next = regions_.upper_bound(memory.data());
  if (next == regions_.begin()) return nullptr;
  const auto& region = std::prev(next)->second;
  const auto offset = static_cast<size_t>(memory.data() - region->memory().data());
  const size_t size = region->memory().size();
  if (offset > size || memory.size() > size - offset) return nullptr;
  return region;
}

}  // namespace ff::net
