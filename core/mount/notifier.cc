// notifier.cc: FUSE_NOTIFY_INVAL_INODE, one after the other.
#include "mount/notifier.h"

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

Notifier::Notifier(Loop& loop, int fd) : loop_(loop), fd_(fd), thread_([this] { run(); }) {}

Notifier::~Notifier() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    orders_.clear();
  }
  more_.notify_one();
  thread_.join();
}

void Notifier::forget(uint64_t node, int64_t offset, int64_t size, std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back({node, offset, size, std::move(done)});
  }
  more_.notify_one();
}

void Notifier::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [this] { return ended_ || !orders_.empty(); });
    if (ended_) return;
    Order order = std::move(orders_.front());
    orders_.pop_front();
    lock.unlock();
    tell_forget(fd_, order.node, order.offset, order.size);
    loop_.post(std::move(order.done));
    lock.lock();
  }
}

}  // namespace ff::mount
