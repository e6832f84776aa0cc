// AsyncQueue: disk I/O for coroutines: co_await queue.read(file, into, offset). All tasks of a loop
// share one queue; when it is full, further operations wait for a slot in FIFO order.
//
// An operation that has started cannot be cancelled, because the kernel may still write to its
// memory. So a cancelled task resumes only when its operation has completed, and gets its result;
// cancellation ends only the wait for a slot. Destroying a task with an operation in flight (~Gate)
// blocks the thread until the operation completes: close the gate instead.
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
  // `queue` must have been made for the same loop.
  AsyncQueue(std::unique_ptr<IoQueue> queue, Loop& loop);
  // No operation may be in flight or waiting.
  ~AsyncQueue();
  AsyncQueue(const AsyncQueue&) = delete;
  AsyncQueue& operator=(const AsyncQueue&) = delete;

  // Like the operations of File and IoQueue. An error names the file, or it is the cancellation
  // error of a task that was cancelled before the operation started.
  Task<Result<size_t>> read(File& file, ByteSpan into, uint64_t offset);
  Task<Result<void>> write(File& file, ByteView from, uint64_t offset);
  Task<Result<void>> sync(File& file);

  void register_buffers(std::span<const ByteSpan> spans) { queue_->register_buffers(spans); }
  size_t depth() const { return queue_->depth(); }
  size_t in_flight() const { return queue_->in_flight(); }
  // The number of operations that wait for a slot.
  size_t waiting() const { return slots_.waiting(); }

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
  Semaphore slots_;  // one per operation in flight; as many as the depth of the queue
};

}  // namespace ff::io
