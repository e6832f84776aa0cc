// Loop: the event loop that runs the tasks of one thread. It keeps the queue of runnables and the
// timers. Its subclasses provide time and descriptor readiness: `SystemLoop` (system_loop.h: the
// machine's clock and epoll) and `SimLoop` (sim/sim_world.h: virtual time, one thread for a whole
// simulated cluster).
//
// Only post() may be called from other threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/intrusive_list.h"
#include "platform/base/result.h"

namespace ff {

class FdWatch;
class Loop;

// A callback that a loop queues and calls once per wake(). The destructor and unlink() remove it
// from the queue.
class Runnable : public ListLink<Runnable> {
 public:
  virtual void on_wake() = 0;

 protected:
  ~Runnable() = default;
};

// Called once per turn, to busy-poll hardware (RDMA) whose replies take less time than a wake-up
// through the kernel. While a poller is registered, the loop never sleeps in the kernel and uses
// one core fully. The destructor and unlink() remove it.
class Poller : public ListLink<Poller> {
 public:
  virtual void poll() = 0;

 protected:
  ~Poller() = default;
};

// Wakes a Runnable at a given time. Destroying the timer stops it.
class Timer {
 public:
  explicit Timer(Loop& loop) : loop_(loop) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() { stop(); }

  // Wakes `runnable` at steady time `at_ns`, or soon if that has passed. Replaces an earlier set().
  void set(int64_t at_ns, Runnable& runnable);
  void stop();

 private:
  friend class Loop;
  Loop& loop_;
  Runnable* runnable_ = nullptr;  // while set
  std::multimap<int64_t, Timer*>::iterator place_;
};

class Loop {
 public:
  explicit Loop(Clock& clock) : clock_(clock) {}
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  virtual ~Loop() = default;

  Clock& clock() const { return clock_; }
  int64_t now_ns() const { return clock_.steady_ns(); }

  // Queues `runnable` at the end of the run queue. No effect if it is already queued.
  void wake(Runnable& runnable);
  // Runs it at the end of this turn, so that one write can carry the output of the whole turn.
  void wake_at_turn_end(Runnable& runnable);
  // Runs it in the next turn, after everything that is runnable then, including descriptors and
  // timers. No effect if it is already queued.
  void wake_next_turn(Runnable& runnable);
  // Calls `poller` in every turn. Not on a simulated loop: virtual time would stop.
  void add(Poller& poller) { pollers_.push_back(poller); }
  // Runs `function` on the loop's thread. May be called from any thread.
  void post(std::function<void()> function);
  // Watches the readiness of a non-blocking descriptor. Errc::unsupported on a simulated loop.
  virtual Result<std::unique_ptr<FdWatch>> watch(int fd) = 0;

  // Runs until stop(). After a stop() before run(), it returns after one turn.
  virtual void run() = 0;
  void stop() { stopped_ = true; }

 protected:
  // Runs posted functions, due timers and queued runnables; a bounded number, so that descriptors
  // are polled regularly. Returns whether it ran anything.
  bool turn();
  // Whether the next turn() has something to run without waiting for a timer or a descriptor.
  bool has_work();
  std::optional<int64_t> next_timer_ns() const;
  bool consume_stop();
  // Wakes a run() that sleeps in the kernel. May be called from any thread.
  virtual void interrupt() = 0;

 private:
  friend class Timer;
  bool run_posted();
  void run_pollers();
  bool wake_due_timers();

  Clock& clock_;
  IntrusiveList<Runnable> run_queue_;
  IntrusiveList<Runnable> turn_end_;
  IntrusiveList<Runnable> next_turn_;
  IntrusiveList<Poller> pollers_;
  std::multimap<int64_t, Timer*> timers_;  // equal times in the order they were set
  bool stopped_ = false;
  std::mutex posted_mutex_;
  std::vector<std::function<void()>> posted_;
};

}  // namespace ff
