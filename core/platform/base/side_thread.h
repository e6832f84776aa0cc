// A thread that does blocking work for a loop, one piece after the other: files, other programs,
// processes that take their time to die.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "platform/base/handover.h"

namespace ff {

class SideThread {
 public:
  SideThread();
  // Waits for the piece under way; what has not begun is dropped.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  void post(std::function<void()> work);

  // Runs it there and gives what it returns. A task that is cancelled goes on at once; the work is
  // then done, or dropped, behind it: what it uses must outlive this thread.
  template <class T>
  Task<Result<T>> run(Loop& loop, std::function<Result<T>()> work) {
    auto taking = Handover<T>::take(loop, [&](std::shared_ptr<Handover<T>> other) {
      post([work = std::move(work), other] { other->give(work()); });
    });
    co_return co_await std::move(taking);
  }

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::function<void()>> work_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace ff
