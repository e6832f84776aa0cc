// notifier.cc: FUSE_NOTIFY_INVAL_INODE, one after the other.
#include "storage/mount/notifier.h"

#include <linux/fuse.h>
#include <sys/uio.h>

#include <utility>

namespace ff::mount {

void tell_forget(int fd, uint64_t node, int64_t offset, int64_t size) {
  fuse_notify_inval_inode_out what = {.ino = node, .off = offset, .len = size};
  fuse_out_header header = {
      .len = sizeof(fuse_out_header) + sizeof what, .error = FUSE_NOTIFY_INVAL_INODE, .unique = 0};
  iovec parts[2] = {{&header, sizeof header}, {&what, sizeof what}};
  // ENOENT: it has no such inode any more.
  (void)!::writev(fd, parts, 2);
}

void Notifier::forget(uint64_t node, int64_t offset, int64_t size, std::function<void()> done) {
  thread_.post([this, node, offset, size, done = std::move(done)] {
    tell_forget(fd_, node, offset, size);
    loop_.post(done);
  });
}

}  // namespace ff::mount
