// The waits of tasks: events, sleeps and semaphores. A wait ends with success, or with the
// cancellation error when the task is cancelled (cancellation.h).
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "platform/base/cancellation.h"
#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"

namespace ff {

// Base class of the waits; an awaitable for one task: Result<void> r = co_await wait. A derived
// class registers itself with its wake-up source in arm() and unregisters in disarm().
class Wait : private Runnable, private CancellationToken::Hook {
 public:
  bool await_ready() const { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> task) {
    return suspend(task, task.promise().cancel);
  }
  Result<void> await_resume();

 protected:
  explicit Wait(Loop& loop) : loop_(loop) {}
  ~Wait() = default;

  Loop& loop() const { return loop_; }
  // The Runnable that completes the wait when it runs; for timers.
  Runnable& runnable() { return *this; }
  // Ends the wait with success.
  void complete() { loop_.wake(*this); }
  void complete_next_turn() { loop_.wake_next_turn(*this); }

 private:
  // Registers the wait; false when there is nothing to wait for.
  virtual bool arm() = 0;
  // Undoes arm(). Called when the wait has ended, also by cancellation.
  virtual void disarm() = 0;
  bool suspend(std::coroutine_handle<> task, CancellationToken* cancel);
  void on_wake() final;
  void on_cancel() final;

  Loop& loop_;
  std::coroutine_handle<> task_;
  CancellationToken* cancel_ = nullptr;
  bool cancelled_ = false;
};

// Waits until a steady time.
class [[nodiscard]] SleepWait final : public Wait {
 public:
  SleepWait(Loop& loop, int64_t until_ns) : Wait(loop), until_ns_(until_ns), timer_(loop) {}

 private:
  bool arm() override;
  void disarm() override { timer_.stop(); }

  int64_t until_ns_;
  Timer timer_;
};

inline SleepWait sleep_until(Loop& loop, int64_t until_ns) { return {loop, until_ns}; }
inline SleepWait sleep_for(Loop& loop, int64_t ns) { return {loop, loop.now_ns() + ns}; }

// Lets all other runnable work go first, including descriptors and timers; for long loops that
// would otherwise never wait.
class [[nodiscard]] YieldWait final : public Wait {
 public:
  explicit YieldWait(Loop& loop) : Wait(loop) {}

 private:
  bool arm() override {
    complete_next_turn();
    return true;
  }
  void disarm() override {}
};

// An event that is set or not set (compare asyncio.Event). A wait ends when the event is set, or
// with Errc::deadline at its deadline. The event must outlive its waits.
class Event {
 public:
  explicit Event(Loop& loop) : loop_(loop) {}

  class [[nodiscard]] EventWait final : public Wait, private ListLink<EventWait> {
   public:
    EventWait(Event& event, int64_t until_ns)
        : Wait(event.loop_), event_(event), until_ns_(until_ns), timer_(event.loop_) {}
    Result<void> await_resume();

   private:
    friend class Event;
    friend class IntrusiveList<EventWait>;
    bool arm() override;
    void disarm() override;

    Event& event_;
    int64_t until_ns_;
    Timer timer_;
    bool was_set_ = false;
  };

  bool is_set() const { return set_; }
  void set();
  void reset() { set_ = false; }
  EventWait wait(int64_t until_ns = INT64_MAX) { return {*this, until_ns}; }

 private:
  Loop& loop_;
  bool set_ = false;
  IntrusiveList<EventWait> waits_;
};

// An event wait as a Task, for functions that need one: with_deadline() (gate.h), shielded().
inline Task<Result<void>> wait_for(Event& event) { co_return co_await event.wait(); }

// Polls `condition` every 50 ms until it is true or the task is cancelled; for conditions that
// cannot wake the loop, such as flags set by signal handlers.
Task<void> poll_until(Loop& loop, std::function<bool()> condition);

// A counting semaphore: tasks acquire units in FIFO order. Must outlive its waits and permits.
class Semaphore {
 public:
  Semaphore(Loop& loop, size_t units);
  ~Semaphore();

  // Holds acquired units and releases them in its destructor.
  class [[nodiscard]] Permit {
   public:
    Permit() = default;
    Permit(Semaphore& semaphore, size_t units) : semaphore_(&semaphore), units_(units) {}
    Permit(Permit&& other) noexcept
        : semaphore_(std::exchange(other.semaphore_, nullptr)), units_(other.units_) {}
    Permit& operator=(Permit&& other) noexcept {
      std::swap(semaphore_, other.semaphore_);
      std::swap(units_, other.units_);
      return *this;
    }
    ~Permit() {
      if (semaphore_ != nullptr) semaphore_->release(units_);
    }

   private:
    Semaphore* semaphore_ = nullptr;
    size_t units_ = 0;
  };

  size_t available() const { return free_; }
  size_t waiting() const { return waiting_; }
  // Acquires without waiting; nullopt if too few units are free or another task waits.
  std::optional<Permit> try_acquire(size_t units);
  Task<Result<Permit>> acquire(size_t units);

 private:
  class AcquireWait;
  void release(size_t units);
  void grant();

  Loop& loop_;
  size_t free_;
  size_t waiting_ = 0;
  IntrusiveList<AcquireWait> waits_;
};

}  // namespace ff
