// side_thread.cc: a queue and whoever empties it.
#include "platform/base/side_thread.h"

namespace ff {

SideThread::SideThread() : thread_([this] { serve(); }) {}

SideThread::~SideThread() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    work_.clear();
  }
  more_.notify_one();
  thread_.join();
}

void SideThread::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  more_.notify_one();
}

void SideThread::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [this] { return ended_ || !work_.empty(); });
    if (ended_) return;
    const auto work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace ff
