// Invalidation of the attribute and page caches of the kernel. An interface, so that Operations run
// without a kernel (tests/storage/mount).
#pragma once

#include <cstdint>

#include "platform/base/task.h"
#include "storage/meta/inode.h"

namespace ff::mount {

class KernelCache {
 public:
  virtual ~KernelCache() = default;

  // Invalidates cached length, times and mode.
  virtual void invalidate_attributes(meta::InodeId inode) = 0;
  // Returns after the pages of the range are dropped. The kernel first writes pages that programs
  // have changed through mappings, as ordinary WRITE requests.
  virtual Task<void> invalidate_pages(meta::InodeId inode, uint64_t offset, uint64_t size) = 0;
  // Starts invalidate_pages() without waiting, for a caller inside a write that holds some of the
  // pages.
  virtual void invalidate_pages_async(meta::InodeId inode, uint64_t offset, uint64_t size) = 0;
};

}  // namespace ff::mount
