// shm.cc: creates, maps and binds memory files to NUMA nodes.
#include "storage/usrbio/shm.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ff::usrbio {

namespace {

constexpr int kNodesMax = 1024;

int map(int fd, size_t size, Shm& shm) {
  void* const base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return -errno;
  shm.base = base;
  shm.size = size;
  return 0;
}

int bind_to(int numa, const Shm& shm) {
  if (numa < 0) return 0;
  if (numa >= kNodesMax) return -EINVAL;
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, kNodesMax / kBits> nodes = {};
  nodes[static_cast<size_t>(numa) / kBits] = 1ul << (static_cast<size_t>(numa) % kBits);
  const long done =
      ::syscall(SYS_mbind, shm.base, shm.size, MPOL_BIND, nodes.data(), kNodesMax + 1, 0);
  // Without NUMA support there is one node only.
  return done == 0 || errno == ENOSYS || errno == EPERM ? 0 : -errno;
}

}  // namespace

IovId random_id() {
  IovId id = {};
  (void)!::getrandom(id.data(), id.size(), 0);
  return id;
}

int create_shm(size_t size, int numa, Shm& made) {
  made.path = kShmPrefix;
  made.path += text_of(random_id());
  const int fd = ::open(made.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return -errno;
  int error = ::ftruncate(fd, static_cast<off_t>(size)) == 0 ? 0 : -errno;
  if (error == 0) error = map(fd, size, made);
  if (error == 0) error = bind_to(numa, made);
  if (error == 0) error = -::posix_fallocate(fd, 0, static_cast<off_t>(size));
  ::close(fd);
  if (error == 0) return 0;
  unmap(made);
  ::unlink(made.path.c_str());
  return error;
}

int open_shm(const std::string& path, size_t size, Shm& opened) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return -errno;
  struct stat info = {};
  int error = ::fstat(fd, &info) == 0 ? 0 : -errno;
  if (error == 0 && (!S_ISREG(info.st_mode) || static_cast<size_t>(info.st_size) < size)) {
    error = -EINVAL;
  }
  if (error == 0) error = map(fd, size, opened);
  ::close(fd);
  return error;
}

void unmap(Shm& shm) {
  if (shm.base != nullptr) ::munmap(shm.base, shm.size);
  shm.base = nullptr;
}

}  // namespace ff::usrbio
