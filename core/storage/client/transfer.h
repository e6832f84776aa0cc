// Copies the bytes of one file: several ranges at once, in buffers that all files of a copy share.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/progress.h"
#include "platform/base/wait.h"
#include "storage/chain/buffer_pool.h"
#include "storage/client/file_tree.h"

namespace ff::client {

// A bounded pool of buffers. Outlives all buffers.
class TransferMemory {
 public:
  // `arena`: as in FileSystem; may be empty. `bytes`: the bound.
  TransferMemory(Loop& loop, ByteSpan arena, uint64_t bytes);

  struct Buffer {
    Semaphore::Permit hold;
    chain::BufferPool::Buffer memory;
    ByteSpan span() const { return memory.span(); }
  };
  // Waits for free memory. A buffer larger than the bound waits until it is the only one.
  Task<Result<Buffer>> allocate(uint64_t size);
  Loop& loop() { return loop_; }

 private:
  Loop& loop_;
  chain::BufferPool memory_;
  const size_t units_;
  Semaphore free_;  // MiB
};

struct TransferOptions {
  uint64_t size = 0;    // size of the source file
  uint64_t begin = 0;   // start here, a multiple of both units; earlier bytes exist already
  bool verify = false;  // read the target back and compare
  // Called from time to time with the length of the prefix that is complete and durable.
  std::function<Task<Result<void>>(uint64_t done)> on_resume_point = {};
};

// Copies `source` to `target` and finishes `target`. Errc::corrupt: the target reads back
// differently. `name`: the file name, for errors.
Task<Result<void>> transfer(TransferMemory& memory, OpenFile& source, OpenFile& target,
                            std::string name, TransferOptions options, Progress& progress);

// Runs tasks in parallel. The first error cancels the others.
class FailFastGroup {
 public:
  // `cancel`: cancels the tasks, too; usually that of the task that creates the group. May be null.
  FailFastGroup(Loop& loop, CancellationToken* cancel)
      : gate_(loop), scope_(loop, cancel, INT64_MAX, "") {}

  bool ok() const { return !error_; }
  void cancel_with(Error error);
  void spawn(Task<Result<void>> task) { gate_.spawn(run(*this, std::move(task))); }
  // Waits for all tasks and returns the first error.
  Task<Result<void>> join();
  size_t running() const { return gate_.running(); }

 private:
  static Task<void> run(FailFastGroup& group, Task<Result<void>> task);

  std::optional<Error> error_;
  Gate gate_;
  CancelScope scope_;
};

}  // namespace ff::client
