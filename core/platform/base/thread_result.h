// ThreadResult: a one-shot channel through which another thread passes a result to a task. If the
// task has ended meanwhile, even together with its loop, the result is dropped.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff {

template <class T>
class ThreadResult : public std::enable_shared_from_this<ThreadResult<T>> {
 public:
  // For the other thread: delivers the result. At most once.
  void set(Result<T> result) {
    const std::lock_guard lock(mutex_);
    if (loop_ == nullptr) return;
    result_ = std::move(result);
    loop_->post([self = this->shared_from_this()] {
      const std::lock_guard inner(self->mutex_);
      if (self->done_ != nullptr) self->done_->set();
    });
  }

  // For the task: calls `start` with the ThreadResult for the other thread, then waits for set().
  static Task<Result<T>> wait(Loop& loop,
                              std::function<void(std::shared_ptr<ThreadResult>)> start) {
    Event done(loop);
    const auto self = std::make_shared<ThreadResult>();
    self->loop_ = &loop;
    self->done_ = &done;
    // Disconnects the other thread, also when the task is cancelled or destroyed.
    struct Detach {
      ThreadResult& result;
      ~Detach() {
        const std::lock_guard lock(result.mutex_);
        result.loop_ = nullptr;
        result.done_ = nullptr;
      }
    };
    const Detach detach{*self};
    start(self);
    FF_CO_TRY(co_await done.wait());
    co_return std::move(self->result_);
  }

 private:
  std::mutex mutex_;
  Loop* loop_ = nullptr;
  Event* done_ = nullptr;
  Result<T> result_ = Error{};
};

}  // namespace ff
