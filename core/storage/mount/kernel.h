// What the operations of a mount ask of the kernel: to forget what it has cached. A seam, so that
// they run without one (tests/storage/mount).
#pragma once

#include <cstdint>

#include "platform/base/task.h"
#include "storage/meta/inode.h"

namespace ff::mount {

class Kernel {
 public:
  virtual ~Kernel() = default;

  // Length, times and mode are asked for anew before they are used again.
  virtual void forget_attributes(meta::InodeId inode) = 0;
  // Returns once no page holds bytes of the range any more; those that programs have changed
  // through a mapping are written first, which is a write like any other.
  virtual Task<void> forget_pages(meta::InodeId inode, uint64_t offset, uint64_t size) = 0;
  // Begins the same; for who is inside of a write that holds some of them.
  virtual void drop_pages(meta::InodeId inode, uint64_t offset, uint64_t size) = 0;
};

}  // namespace ff::mount
