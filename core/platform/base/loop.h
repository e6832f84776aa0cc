// The loop: what runs the tasks of one thread. It holds what is ready, in order, and timers; where
// time and readiness of descriptors come from is left to `SystemLoop` (system_loop.h: the machine's
// clock, epoll) and `SimLoop` (sim/sim_world.h: virtual time, one thread for a whole cluster).
//
// Everything is called by the loop's own thread, except post().
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

// Something that runs soon. Destroying it, or unlink(), takes it back.
class Ready : public ListLink<Ready> {
 public:
  virtual void fire() = 0;

 protected:
  ~Ready() = default;
};

// Something that is asked once a turn whether it has news: hardware that is polled, since a wake-up
// through the kernel costs more time than its whole answer. While there is one, the loop never
// waits in the kernel and uses a core up. Destroying it, or unlink(), takes it out.
class Poller : public ListLink<Poller> {
 public:
  virtual void poll() = 0;

 protected:
  ~Poller() = default;
};

// Wakes a Ready at a time. Destroying the timer stops it.
class Timer {
 public:
  explicit Timer(Loop& loop) : loop_(loop) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() { stop(); }

  // At steady time `at_ns`, or soon when that has passed. Replaces an earlier time.
  void set(int64_t at_ns, Ready& ready);
  void stop();

 private:
  friend class Loop;
  Loop& loop_;
  Ready* ready_ = nullptr;  // while set
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

  // Fires `ready` behind all that is ready already. Nothing if it is waiting to.
  void wake(Ready& ready);
  // Fires it at the end of the turn: one write then carries what a whole turn has produced.
  void wake_late(Ready& ready);
  // Fires it in the next turn, behind all that is ready then, descriptors and timers included.
  // Nothing if it is waiting to be fired.
  void wake_next(Ready& ready);
  // Asks `poller` at every turn. Not on a simulated loop: its time would stand still.
  void add(Poller& poller) { pollers_.push_back(poller); }
  // Runs `function` in the loop's thread. From any thread.
  void post(std::function<void()> function);
  // Tells when a non-blocking descriptor can go on. Errc::unsupported where there are none.
  virtual Result<std::unique_ptr<FdWatch>> watch(int fd) = 0;

  // Runs until stop(); a stop() before it counts.
  virtual void run() = 0;
  void stop() { stopped_ = true; }

 protected:
  // Fires what was posted, is due and is ready; no more than a bounded number, so that descriptors
  // get their turn. Whether anything was fired.
  bool turn();
  // Whether the next turn() would find something to fire that no time has to pass for.
  bool busy();
  std::optional<int64_t> next_timer_ns() const;
  bool take_stop();
  // Ends the wait of a run() in the loop's thread. From any thread.
  virtual void interrupt() = 0;

 private:
  friend class Timer;
  bool run_posted();
  void ask_pollers();
  bool fire_timers();

  Clock& clock_;
  IntrusiveList<Ready> ready_;
  IntrusiveList<Ready> late_;
  IntrusiveList<Ready> next_;
  IntrusiveList<Poller> pollers_;
  std::multimap<int64_t, Timer*> timers_;  // equal times in the order they were set
  bool stopped_ = false;
  std::mutex posted_mutex_;
  std::vector<std::function<void()>> posted_;
};

}  // namespace ff
