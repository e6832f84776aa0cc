// What tasks wait for: an event, a time, a share of something bounded. Every wait ends with
// success, or with the reason when the task is cancelled (cancel.h).
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "platform/base/cancel.h"
#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"

namespace ff {

// One wait of one task, as an awaitable: Result<void> r = co_await wait. A derived class says when
// there is nothing to wait for, registers with what will wake it, and takes itself out of there.
class Wait : private Ready, private Cancel::Hook {
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
  // The Ready that ends the wait well: for timers.
  Ready& ready() { return *this; }
  // Ends the wait well.
  void end() { loop_.wake(*this); }
  void end_next_turn() { loop_.wake_next(*this); }

 private:
  // False: nothing to wait for.
  virtual bool enlist() = 0;
  // Out of what enlist() joined; called once the wait has ended, also by cancellation.
  virtual void delist() = 0;
  bool suspend(std::coroutine_handle<> task, Cancel* cancel);
  void fire() final;
  void on_cancel() final;

  Loop& loop_;
  std::coroutine_handle<> task_;
  Cancel* cancel_ = nullptr;
  bool cancelled_ = false;
};

// Until a steady time.
class [[nodiscard]] SleepWait final : public Wait {
 public:
  SleepWait(Loop& loop, int64_t until_ns) : Wait(loop), until_ns_(until_ns), timer_(loop) {}

 private:
  bool enlist() override;
  void delist() override { timer_.stop(); }

  int64_t until_ns_;
  Timer timer_;
};

inline SleepWait until(Loop& loop, int64_t until_ns) { return {loop, until_ns}; }
inline SleepWait after(Loop& loop, int64_t ns) { return {loop, loop.now_ns() + ns}; }

// Lets everything else that is ready go first, descriptors and timers too: for loops that would
// otherwise never wait.
class [[nodiscard]] YieldWait final : public Wait {
 public:
  explicit YieldWait(Loop& loop) : Wait(loop) {}

 private:
  bool enlist() override {
    end_next_turn();
    return true;
  }
  void delist() override {}
};

// Set or not; waits end while it is set, or with Errc::deadline at their time. Must outlive its
// waits.
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
    bool enlist() override;
    void delist() override;

    Event& event_;
    int64_t until_ns_;
    Timer timer_;
    bool met_ = false;
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

// The wait as a task, for what takes tasks: with_deadline() (gate.h), shielded().
inline Task<Result<void>> wait_for(Event& event) { co_return co_await event.wait(); }

// Looks some twenty times a second until `condition` holds, or the task is cancelled: for what
// nobody tells the loop of, such as signals.
Task<void> poll_until(Loop& loop, std::function<bool()> condition);

// A number of units that tasks take in the order they came. Must outlive its waits and holds.
class Semaphore {
 public:
  Semaphore(Loop& loop, size_t units);
  ~Semaphore();

  // Units held; given back when it goes.
  class [[nodiscard]] Hold {
   public:
    Hold() = default;
    Hold(Semaphore& semaphore, size_t units) : semaphore_(&semaphore), units_(units) {}
    Hold(Hold&& other) noexcept
        : semaphore_(std::exchange(other.semaphore_, nullptr)), units_(other.units_) {}
    Hold& operator=(Hold&& other) noexcept {
      std::swap(semaphore_, other.semaphore_);
      std::swap(units_, other.units_);
      return *this;
    }
    ~Hold() {
      if (semaphore_ != nullptr) semaphore_->give(units_);
    }

   private:
    Semaphore* semaphore_ = nullptr;
    size_t units_ = 0;
  };

  size_t free() const { return free_; }
  size_t waiting() const { return waiting_; }
  // The units at once, when they are free and nobody waits for some.
  std::optional<Hold> try_take(size_t units);
  Task<Result<Hold>> take(size_t units);

 private:
  class TakeWait;
  void give(size_t units);
  void serve();

  Loop& loop_;
  size_t free_;
  size_t waiting_ = 0;
  IntrusiveList<TakeWait> waits_;
};

}  // namespace ff
