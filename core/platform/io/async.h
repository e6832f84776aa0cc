// Disk I/O from coroutines: co_await queue.read(file, into, offset). The operations of all tasks of
// one loop share one queue; what its depth does not hold waits for a place, in the order it came.
//
// An operation that has begun cannot be taken back: the kernel may still write its memory. So a
// cancelled task goes on only when its operation has ended, and gets its result; only the wait for
// a place ends early. A task that is destroyed while its operation is in flight (~Gate) blocks its
// thread until that has ended: close the gate instead.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "platform/base/bytes.h"
#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"
#include "platform/io/disk.h"

namespace ff::io {

class AsyncQueue {
 public:
  AsyncQueue(Disk& disk, Loop& loop, unsigned depth);
  // A queue that was made with this very loop.
  AsyncQueue(std::unique_ptr<IoQueue> queue, Loop& loop);
  // No task may still use it.
  ~AsyncQueue();
  AsyncQueue(const AsyncQueue&) = delete;
  AsyncQueue& operator=(const AsyncQueue&) = delete;

  // As those of File and IoQueue. Errors name the file; or the reason of a cancellation, and then
  // the operation was never begun.
  Task<Result<size_t>> read(File& file, ByteSpan into, uint64_t offset);
  Task<Result<void>> write(File& file, ByteView from, uint64_t offset);
  Task<Result<void>> sync(File& file);

  void register_buffers(std::span<const ByteSpan> spans) { queue_->register_buffers(spans); }
  size_t depth() const { return queue_->depth(); }
  size_t in_flight() const { return queue_->in_flight(); }
  // Operations that wait for a place.
  size_t waiting() const { return places_.waiting(); }

 private:
  class Operation;
  enum class Kind : uint8_t { read, write, sync };
  struct Request {
    Kind kind = Kind::read;
    File* file = nullptr;
    ByteSpan into = {};  // reads
    ByteView from = {};  // writes
    uint64_t offset = 0;
  };
  template <class T>
  Task<Result<T>> run(Request request);

  Loop& loop_;
  std::unique_ptr<IoQueue> queue_;
  Semaphore places_;  // as many as the queue is deep
};

}  // namespace ff::io
