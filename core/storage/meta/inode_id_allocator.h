// Allocates the numbers of new inodes. Each server reserves a batch in the KV store and allocates
// from memory; the rest of a batch is lost when the server stops. No number is allocated twice.
// Owned by one loop.
#pragma once

#include <cstdint>

#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"
#include "platform/kv/engine.h"
#include "storage/meta/inode.h"

namespace ff::meta {

class InodeIdAllocator {
 public:
  // Both outlive it.
  InodeIdAllocator(kv::Engine& engine, Loop& loop)
      : engine_(engine), loop_(loop), taking_(loop, 1) {}

  // The first of `count` consecutive numbers.
  Task<Result<InodeId>> next(int64_t deadline_ns, uint64_t count = 1);

 private:
  kv::Engine& engine_;
  Loop& loop_;
  Semaphore taking_;  // one task at a time reserves a batch
  InodeId next_ = 0;
  InodeId end_ = 0;
};

// For a store restored from a backup: skips the numbers that may have been allocated after the
// backup, since storage may hold chunks of those inodes.
Task<Result<void>> skip_inode_ids(kv::Txn& txn);

}  // namespace ff::meta
