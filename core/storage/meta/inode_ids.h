// Numbers for new inodes. Each server takes a batch from the KV store and gives it out from memory:
// what is left of it when the server ends is never given, and no number is given twice. Owned by
// one loop.
#pragma once

#include <cstdint>

#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"
#include "platform/kv/engine.h"
#include "storage/meta/inode.h"

namespace ff::meta {

class InodeIds {
 public:
  // Both outlive it.
  InodeIds(kv::Engine& engine, Loop& loop) : engine_(engine), loop_(loop), taking_(loop, 1) {}

  Task<Result<InodeId>> next(int64_t deadline_ns);

 private:
  kv::Engine& engine_;
  Loop& loop_;
  Semaphore taking_;  // one task takes a batch
  InodeId next_ = 0;
  InodeId end_ = 0;
};

// In a store that was restored from a backup: numbers that may have been given since it was made
// are not given again, for their chunks are in storage.
Task<Result<void>> skip_inode_ids(kv::Txn& txn);

}  // namespace ff::meta
