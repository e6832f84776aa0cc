// The memory of the library for data: files in /dev/shm, registered with the mount by a link in
// 3fs-virt.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "storage/usrbio/hf3fs_usrbio.h"
#include "storage/usrbio/iov_link_name.h"
#include "storage/usrbio/mount_points.h"
#include "storage/usrbio/shm.h"

namespace ff::usrbio {

namespace {

// The state of created or opened memory in this process.
struct IovHandle {
  std::shared_ptr<const MountPoint> mount = {};
  std::string link = {};  // empty: unregistered, or created by another process
  Shm shm = {};
  pid_t creator = 0;
};

bool valid(const hf3fs_iov* iov, const char* point, size_t size) {
  return iov != nullptr && point != nullptr && size > 0 &&
         std::strlen(point) < sizeof iov->mount_point;
}

void fill(hf3fs_iov& iov, void* base, const IovId& id, const char* point, size_t size, size_t block,
          int numa) {
  iov = {};
  iov.base = static_cast<uint8_t*>(base);
  std::memcpy(iov.id, id.data(), id.size());
  std::memcpy(iov.mount_point, point, std::strlen(point) + 1);
  iov.size = size;
  iov.block_size = block;
  iov.numa = numa;
}

IovId id_of(const uint8_t bytes[16]) {
  IovId id;
  std::memcpy(id.data(), bytes, id.size());
  return id;
}

}  // namespace

}  // namespace ff::usrbio

using namespace ff::usrbio;

int hf3fs_iovcreate(hf3fs_iov* iov, const char* mount_point, size_t size, size_t block_size,
                    int numa) {
  if (!valid(iov, mount_point, size)) return -EINVAL;
  auto handle = std::make_unique<IovHandle>();
  int error = 0;
  handle->mount = open_mount_point(mount_point, error);
  if (handle->mount == nullptr) return -error;
  error = create_shm(size, numa, handle->shm);
  if (error != 0) return error;
  const IovId id = random_id();
  handle->link = text_of(IovLinkName{.id = id, .block = block_size});
  handle->creator = ::getpid();
  if (::symlinkat(handle->shm.path.c_str(), handle->mount->iovs, handle->link.c_str()) != 0) {
    error = -errno;
    unmap(handle->shm);
    ::unlink(handle->shm.path.c_str());
    return error;
  }
  fill(*iov, handle->shm.base, id, mount_point, size, block_size, numa);
  iov->iovh = handle.release();
  return 0;
}

int hf3fs_iovopen(hf3fs_iov* iov, const uint8_t id[16], const char* mount_point, size_t size,
                  size_t block_size, int numa) {
  if (!valid(iov, mount_point, size) || id == nullptr) return -EINVAL;
  auto handle = std::make_unique<IovHandle>();
  int error = 0;
  handle->mount = open_mount_point(mount_point, error);
  if (handle->mount == nullptr) return -error;
  const std::string link = text_of(IovLinkName{.id = id_of(id), .block = block_size});
  const std::string path = read_link(handle->mount->iovs, link);
  if (path.empty()) return -errno;
  if (!path.starts_with(kShm)) return -EINVAL;
  error = open_shm(path, size, handle->shm);
  if (error != 0) return error;
  fill(*iov, handle->shm.base, id_of(id), mount_point, size, block_size, numa);
  iov->iovh = handle.release();
  return 0;
}

int hf3fs_iovwrap(hf3fs_iov* iov, void* base, const uint8_t id[16], const char* mount_point,
                  size_t size, size_t block_size, int numa) {
  if (!valid(iov, mount_point, size) || id == nullptr || base == nullptr) return -EINVAL;
  fill(*iov, base, id_of(id), mount_point, size, block_size, numa);
  return 0;
}

void hf3fs_iovunlink(hf3fs_iov* iov) {
  if (iov == nullptr || iov->iovh == nullptr) return;
  IovHandle& handle = *static_cast<IovHandle*>(iov->iovh);
  if (handle.link.empty() || handle.creator != ::getpid()) return;
  ::unlinkat(handle.mount->iovs, handle.link.c_str(), 0);
  ::unlink(handle.shm.path.c_str());
  handle.link.clear();
}

void hf3fs_iovdestroy(hf3fs_iov* iov) {
  if (iov == nullptr || iov->iovh == nullptr) return;
  hf3fs_iovunlink(iov);
  const std::unique_ptr<IovHandle> handle(static_cast<IovHandle*>(iov->iovh));
  unmap(handle->shm);
  iov->iovh = nullptr;
  iov->base = nullptr;
}
