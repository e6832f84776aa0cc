// kernel_notifier.cc: sends FUSE_NOTIFY_INVAL_INODE messages one by one.
#include "storage/mount/kernel_notifier.h"

#include <linux/fuse.h>
#include <sys/uio.h>

#include <utility>

namespace ff::mount {

void notify_inval_inode(int fd, uint64_t nodeid, int64_t offset, int64_t size) {
  fuse_notify_inval_inode_out what = {.ino = nodeid, .off = offset, .len = size};
  fuse_out_header header = {
      .len = sizeof(fuse_out_header) + sizeof what, .error = FUSE_NOTIFY_INVAL_INODE, .unique = 0};
  iovec parts[2] = {{&header, sizeof header}, {&what, sizeof what}};
  // ENOENT: the kernel does not know the inode any more.
  (void)!::writev(fd, parts, 2);
}

void KernelNotifier::invalidate_inode(uint64_t nodeid, int64_t offset, int64_t size,
                                      std::function<void()> done) {
  thread_.post([this, nodeid, offset, size, done = std::move(done)] {
    notify_inval_inode(fd_, nodeid, offset, size);
    loop_.post(done);
  });
}

}  // namespace ff::mount
