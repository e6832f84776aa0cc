// async.cc: one operation of one task as an awaitable, which no cancellation reaches.
#include "platform/io/async.h"

#include <optional>
#include <type_traits>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/gate.h"

namespace ff::io {

// A class of its own and no Wait: that ends when its task is cancelled.
class AsyncQueue::Operation : private Ready {
 public:
  explicit Operation(AsyncQueue& queue) : queue_(queue) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  // The memory of the operation goes when this goes.
  ~Operation() {
    while (begun_ && !result_) queue_.queue_->run();
  }

  // Done for the queue; the task goes on from the loop.
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
  void fire() override { task_.resume(); }

  AsyncQueue& queue_;
  bool begun_ = false;
  std::optional<Result<size_t>> result_;
  std::coroutine_handle<> task_;
};

AsyncQueue::AsyncQueue(Disk& disk, Loop& loop, unsigned depth)
    : AsyncQueue(disk.make_queue({.depth = depth, .loop = &loop}), loop) {}

AsyncQueue::AsyncQueue(std::unique_ptr<IoQueue> queue, Loop& loop)
    : loop_(loop), queue_(std::move(queue)), places_(loop, queue_->depth()) {}

AsyncQueue::~AsyncQueue() { FF_CHECK(queue_->in_flight() == 0 && places_.waiting() == 0); }

// One frame for each operation: small reads are many.
template <class T>
Task<Result<T>> AsyncQueue::run(Request request) {
  // Nothing begins for a task that is cancelled already.
  const Cancel* const cancel = co_await current_cancel();
  if (cancel != nullptr && cancel->requested()) co_return cancel->reason();
  auto place = places_.try_take(1);
  if (!place) {
    FF_CO_TRY(place, co_await places_.take(1));
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
