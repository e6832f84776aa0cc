// What another thread hands to a task. The task may be gone by then, and its loop with it: then
// nobody is told.
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
class Handover : public std::enable_shared_from_this<Handover<T>> {
 public:
  // The other thread's end; once.
  void give(Result<T> result) {
    const std::lock_guard lock(mutex_);
    if (loop_ == nullptr) return;
    result_ = std::move(result);
    loop_->post([self = this->shared_from_this()] {
      const std::lock_guard inner(self->mutex_);
      if (self->done_ != nullptr) self->done_->set();
    });
  }

  // The task's end: lets `start` pass the other end on, then waits.
  static Task<Result<T>> take(Loop& loop, std::function<void(std::shared_ptr<Handover>)> start) {
    Event done(loop);
    const auto self = std::make_shared<Handover>();
    self->loop_ = &loop;
    self->done_ = &done;
    // However the task ends, the other thread no longer knows it.
    struct Detach {
      Handover& from;
      ~Detach() {
        const std::lock_guard lock(from.mutex_);
        from.loop_ = nullptr;
        from.done_ = nullptr;
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
