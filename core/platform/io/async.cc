// async.cc: one I/O operation as an awaitable that cannot be cancelled.
#include "platform/io/async.h"

#include <optional>
#include <type_traits>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/gate.h"

namespace ff::io {

// Not a Wait (wait.h), because a Wait ends when its task is cancelled.
class AsyncQueue::Operation : private Runnable {
 public:
  explicit Operation(AsyncQueue& queue) : queue_(queue) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  // The caller frees the memory of the operation after this, so wait for the operation.
  ~Operation() {
    while (begun_ && !result_) queue_.queue_->run();
  }

  // Returns the callback for the queue; it wakes the task.
  IoQueue::Done begin() {
    begun_ = true;
    return [this](Result<size_t> result) {
      result_.emplace(std::move(result));
      queue_.loop_.wake(*this);
    };
  }

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> task) { task_ = task; }
  Result<size_t> await_resume() { return std::move(*result_); }

 private:
  void on_wake() override { task_.resume(); }

  AsyncQueue& queue_;
  bool begun_ = false;
  std::optional<Result<size_t>> result_;
  std::coroutine_handle<> task_;
};

AsyncQueue::AsyncQueue(Disk& disk, Loop& loop, unsigned depth)
    : AsyncQueue(disk.make_queue({.depth = depth, .loop = &loop}), loop) {}

AsyncQueue::AsyncQueue(std::unique_ptr<IoQueue> queue, Loop& loop)
    : loop_(loop), queue_(std::move(queue)), slots_(loop, queue_->depth()) {}

AsyncQueue::~AsyncQueue() { FF_CHECK(queue_->in_flight() == 0 && slots_.waiting() == 0); }

// A single coroutine frame per operation, because small reads are frequent.
template <class T>
Task<Result<T>> AsyncQueue::run(Request request) {
  // A task that is already cancelled starts no operation.
  const CancellationToken* const cancel = co_await current_cancellation();
  if (cancel != nullptr && cancel->requested()) co_return cancel->reason();
  auto slot = slots_.try_acquire(1);
  if (!slot) {
    FF_CO_TRY(slot, co_await slots_.acquire(1));
  }
  Operation operation(*this);
  File& file = *request.file;
  switch (request.kind) {
    case Kind::read: queue_->read(file, request.into, request.offset, operation.begin()); break;
    case Kind::write: queue_->write(file, request.from, request.offset, operation.begin()); break;
    case Kind::sync: queue_->sync(file, operation.begin()); break;
  }
  auto result = co_await operation;
  if constexpr (std::is_void_v<T>) {
    if (!result) co_return std::move(result).error();
    co_return Result<void>();
  } else {
    co_return result;
  }
}

Task<Result<size_t>> AsyncQueue::read(File& file, ByteSpan into, uint64_t offset) {
  return run<size_t>({.kind = Kind::read, .file = &file, .into = into, .offset = offset});
}

Task<Result<void>> AsyncQueue::write(File& file, ByteView from, uint64_t offset) {
  return run<void>({.kind = Kind::write, .file = &file, .from = from, .offset = offset});
}

Task<Result<void>> AsyncQueue::sync(File& file) {
  return run<void>({.kind = Kind::sync, .file = &file});
}

}  // namespace ff::io
