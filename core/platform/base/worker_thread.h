// WorkerThread: one thread that runs blocking work for a loop, in order: file operations, other
// programs, waiting for processes to exit.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "platform/base/thread_result.h"

namespace ff {

class WorkerThread {
 public:
  WorkerThread();
  // Waits for the work that is running; drops queued work.
  ~WorkerThread();
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  // Queues `work`. May be called from any thread.
  void post(std::function<void()> work);

  // Runs `work` on the thread and returns its result. A cancelled task continues at once, while its
  // work still runs or is dropped later: all that the work uses must outlive this thread.
  template <class T>
  Task<Result<T>> run(Loop& loop, std::function<Result<T>()> work) {
    auto taking = ThreadResult<T>::wait(loop, [&](std::shared_ptr<ThreadResult<T>> result) {
      post([work = std::move(work), result] { result->set(work()); });
    });
    co_return co_await std::move(taking);
  }

 private:
  void run_queue();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ff
