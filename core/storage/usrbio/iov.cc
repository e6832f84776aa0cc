// The library's memory for data: made in /dev/shm, and known to the mount by a link in 3fs-virt.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "storage/usrbio/hf3fs_usrbio.h"
#include "storage/usrbio/link_name.h"
#include "storage/usrbio/mounts.h"
#include "storage/usrbio/shm.h"

namespace ff::usrbio {

namespace {

// What a process keeps of memory that it has made or opened.
struct Held {
  std::shared_ptr<const Mount> mount = {};
  std::string link = {};  // empty: nobody can open it any more, or another process has made it
  Shm shm = {};
  pid_t maker = 0;
};

bool sound(const hf3fs_iov* iov, const char* point, size_t size) {
  return iov != nullptr && point != nullptr && size > 0 &&
         std::strlen(point) < sizeof iov->mount_point;
}

void fill(hf3fs_iov& iov, void* base, const Id& id, const char* point, size_t size, size_t block,
          int numa) {
  iov = {};
  iov.base = static_cast<uint8_t*>(base);
  std::memcpy(iov.id, id.data(), id.size());
  std::memcpy(iov.mount_point, point, std::strlen(point) + 1);
  iov.size = size;
  iov.block_size = block;
  iov.numa = numa;
}

Id id_of(const uint8_t bytes[16]) {
  Id id;
  std::memcpy(id.data(), bytes, id.size());
  return id;
}

}  // namespace

}  // namespace ff::usrbio

using namespace ff::usrbio;

int hf3fs_iovcreate(hf3fs_iov* iov, const char* mount_point, size_t size, size_t block_size,
                    int numa) {
  if (!sound(iov, mount_point, size)) return -EINVAL;
  auto held = std::make_unique<Held>();
  int error = 0;
  held->mount = mount_at(mount_point, error);
  if (held->mount == nullptr) return -error;
  error = make_shm(size, numa, held->shm);
  if (error != 0) return error;
  const Id id = random_id();
  held->link = text_of(LinkName{.id = id, .block = block_size});
  held->maker = ::getpid();
  if (::symlinkat(held->shm.path.c_str(), held->mount->iovs, held->link.c_str()) != 0) {
    error = -errno;
    unmap(held->shm);
    ::unlink(held->shm.path.c_str());
    return error;
  }
  fill(*iov, held->shm.base, id, mount_point, size, block_size, numa);
  iov->iovh = held.release();
  return 0;
}

int hf3fs_iovopen(hf3fs_iov* iov, const uint8_t id[16], const char* mount_point, size_t size,
                  size_t block_size, int numa) {
  if (!sound(iov, mount_point, size) || id == nullptr) return -EINVAL;
  auto held = std::make_unique<Held>();
  int error = 0;
  held->mount = mount_at(mount_point, error);
  if (held->mount == nullptr) return -error;
  const std::string link = text_of(LinkName{.id = id_of(id), .block = block_size});
  const std::string path = read_link(held->mount->iovs, link);
  if (path.empty()) return -errno;
  if (!path.starts_with(kShm)) return -EINVAL;
  error = open_shm(path, size, held->shm);
  if (error != 0) return error;
  fill(*iov, held->shm.base, id_of(id), mount_point, size, block_size, numa);
  iov->iovh = held.release();
  return 0;
}

int hf3fs_iovwrap(hf3fs_iov* iov, void* base, const uint8_t id[16], const char* mount_point,
                  size_t size, size_t block_size, int numa) {
  if (!sound(iov, mount_point, size) || id == nullptr || base == nullptr) return -EINVAL;
  fill(*iov, base, id_of(id), mount_point, size, block_size, numa);
  return 0;
}

void hf3fs_iovunlink(hf3fs_iov* iov) {
  if (iov == nullptr || iov->iovh == nullptr) return;
  Held& held = *static_cast<Held*>(iov->iovh);
  if (held.link.empty() || held.maker != ::getpid()) return;
  ::unlinkat(held.mount->iovs, held.link.c_str(), 0);
  ::unlink(held.shm.path.c_str());
  held.link.clear();
}

void hf3fs_iovdestroy(hf3fs_iov* iov) {
  if (iov == nullptr || iov->iovh == nullptr) return;
  hf3fs_iovunlink(iov);
  const std::unique_ptr<Held> held(static_cast<Held*>(iov->iovh));
  unmap(held->shm);
  iov->iovh = nullptr;
  iov->base = nullptr;
}
