// The bytes of one file from one end to the other: several stretches under way at once, in memory
// that all files of a copy share.
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
#include "storage/chain/memory.h"
#include "storage/client/tree.h"

namespace ff::client {

// Memory for stretches, of which there is never more than its bound. Outlives what is taken.
class TransferMemory {
 public:
  // `arena`: as FileSystem's; may be empty.
  TransferMemory(Loop& loop, ByteSpan arena, uint64_t bytes);

  struct Stretch {
    Semaphore::Hold hold;
    chain::Memory::Bytes memory;
    ByteSpan span() const { return memory.span(); }
  };
  // What is larger than the bound comes alone.
  Task<Result<Stretch>> take(uint64_t size);
  Loop& loop() { return loop_; }

 private:
  Loop& loop_;
  chain::Memory memory_;
  const size_t units_;
  Semaphore free_;  // MiB
};

struct TransferOptions {
  uint64_t size = 0;    // of the source
  uint64_t begin = 0;   // what lies before is there already; a multiple of the units
  bool verify = false;  // read back and compared at the end
  // Told now and then how much from the beginning is there, and durable.
  std::function<Task<Result<void>>(uint64_t done)> note = {};
};

// Copies `source` to `target` and finishes that. Errc::corrupt: what was read back is not what was
// written. `name`: of the file, for errors.
Task<Result<void>> transfer(TransferMemory& memory, OpenFile& source, OpenFile& target,
                            std::string name, TransferOptions options, Progress& progress);

// The first error of tasks that work on one thing, and that they are to end.
class Group {
 public:
  // Those of the group end with the task that makes it: `cancel` is that task's, may be null.
  Group(Loop& loop, Cancel* cancel) : gate_(loop), scope_(loop, cancel, INT64_MAX, "") {}

  bool ok() const { return !error_; }
  void failed(Error error);
  void spawn(Task<Result<void>> task) { gate_.spawn(run(*this, std::move(task))); }
  // All have ended; the first error.
  Task<Result<void>> end();
  size_t running() const { return gate_.running(); }

 private:
  static Task<void> run(Group& group, Task<Result<void>> task);

  std::optional<Error> error_;
  Gate gate_;
  CancelScope scope_;
};

}  // namespace ff::client
