// Tasks, cancellation, gates and waits on SystemLoop; SimLoop tests cover time
// (tests/platform/sim/sim_loop_test.cc).
#include "platform/base/task.h"
#include "platform/base/clock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/base/wait.h"

namespace ff {
namespace {

class TaskTest : public testing::Test {
 protected:
  SystemClock clock_;
  SystemLoop loop_{clock_};
};

Task<int> constant(int value) { co_return value; }

Task<Result<int>> half_later(int value) {
  if (value % 2 != 0) co_return fail(Errc::usage, "{} is odd", value);
  co_return value / 2;
}

Task<Result<int>> quarter_later(int value) {
  FF_CO_TRY(const int once, co_await half_later(value));
  FF_CO_TRY(const int twice, co_await half_later(once));
  co_return twice;
}

TEST_F(TaskTest, ValuesAndErrorsGoUp) {
  EXPECT_EQ(run_task(loop_, constant(7)), 7);
  EXPECT_EQ(*run_task(loop_, quarter_later(8)), 2);
  EXPECT_EQ(run_task(loop_, quarter_later(6)).error().code, Errc::usage);
}

Task<int> sum_of_many(int count) {
  int sum = 0;
  for (int i = 0; i < count; i++) sum += co_await constant(1);
  co_return sum;
}

Task<Result<int>> lacks_memory(Loop& loop, bool waits) {
  if (waits) {
    YieldWait yield(loop);
    FF_CO_TRY(co_await yield);
  }
  throw std::bad_alloc();
  co_return 0;
}

TEST_F(TaskTest, MissingMemoryIsAnError) {
  for (const bool waits : {false, true}) {
    const auto result = run_task(loop_, lacks_memory(loop_, waits));
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Errc::busy);
  }
}

TEST_F(TaskTest, AMillionAwaitsNeedNoStack) {
  EXPECT_EQ(run_task(loop_, sum_of_many(1'000'000)), 1'000'000);
}

Task<void> nest(int depth, Event& event) {
  if (depth > 0) {
    co_await nest(depth - 1, event);
  } else {
    (void)co_await event.wait();
  }
}

Task<void> set(Event& event) {
  event.set();
  co_return;
}

TEST_F(TaskTest, ADeepWaitResumes) {
  Event event(loop_);
  Gate gate(loop_);
  gate.spawn(nest(100, event));
  gate.spawn(set(event));
  run_task(loop_, gate.wait_empty());
  EXPECT_EQ(gate.running(), 0u);
}

struct Marker {
  explicit Marker(int& target) : count(target) {}
  ~Marker() { count++; }
  int& count;
};

Task<void> hold_marker(Event& event, int& destroyed) {
  const Marker marker(destroyed);
  (void)co_await wait_for(event);
  destroyed += 100;
}

TEST_F(TaskTest, AGateDestroysWhatIsLeft) {
  Event event(loop_);
  int destroyed = 0;
  {
    Gate gate(loop_);
    gate.spawn(hold_marker(event, destroyed));
    run_task(loop_, constant(0));
    EXPECT_EQ(destroyed, 0);
    event.set();  // woken, and yet it never goes on
  }
  EXPECT_EQ(destroyed, 1);
  run_task(loop_, constant(0));
  EXPECT_EQ(destroyed, 1);
}

Task<void> record(Event& event, std::vector<std::string>& log) {
  const auto waited = co_await wait_for(event);
  log.push_back(waited ? "ok" : waited.error().message);
  const auto again = co_await event.wait();
  log.push_back(again ? "ok" : again.error().message);
}

TEST_F(TaskTest, CancellationEndsEveryLaterWaitToo) {
  Event event(loop_);
  std::vector<std::string> log;
  Gate gate(loop_);
  gate.spawn(record(event, log));
  run_task(loop_, constant(0));
  run_task(loop_, gate.close(fail(Errc::interrupted, "enough")));
  EXPECT_EQ(log, (std::vector<std::string>{"enough", "enough"}));
  gate.spawn(record(event, log));
  run_task(loop_, gate.wait_empty());
  EXPECT_EQ(log.size(), 4u);
}

Task<void> shielded(Event& event, bool& ok) {
  const auto waited = co_await wait_for(event).shielded();
  ok = waited.ok();
}

TEST_F(TaskTest, AShieldedTaskIsNotCancelled) {
  Event event(loop_);
  bool ok = false;
  Gate gate(loop_);
  gate.spawn(shielded(event, ok));
  gate.cancellation().request(fail(Errc::interrupted, "enough"));
  run_task(loop_, constant(0));
  EXPECT_EQ(gate.running(), 1u);
  event.set();
  run_task(loop_, gate.wait_empty());
  EXPECT_TRUE(ok);
}

TEST_F(TaskTest, PostsOfOtherThreadsArrive) {
  int sum = 0;
  std::thread other([&] {
    for (int i = 1; i <= 100; i++) loop_.post([&sum, i] { sum += i; });
    loop_.post([this] { loop_.stop(); });
  });
  loop_.run();
  other.join();
  EXPECT_EQ(sum, 5050);
}

Task<Result<std::string>> read_some(FdWatch& watch, int fd) {
  for (;;) {
    char buffer[16];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got >= 0) co_return std::string(buffer, static_cast<size_t>(got));
    watch.readable.reset();
    FF_CO_TRY(co_await watch.readable.wait());
  }
}

TEST_F(TaskTest, ADescriptorWakesItsReader) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  {
    auto watch = loop_.watch(ends[0]);
    ASSERT_TRUE(watch.ok());
    std::thread other([&] { ASSERT_EQ(::write(ends[1], "hello", 5), 5); });
    EXPECT_EQ(*run_task(loop_, read_some(**watch, ends[0])), "hello");
    other.join();
    ::close(ends[1]);
    EXPECT_EQ(*run_task(loop_, read_some(**watch, ends[0])), "");
  }
  ::close(ends[0]);
}

// A connection that nobody reads costs no processor time after its peer is gone.
TEST_F(TaskTest, AHangUpIsReportedOnce) {
  int ends[2];
  int others[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  ASSERT_EQ(::pipe2(others, O_NONBLOCK | O_CLOEXEC), 0);
  {
    auto watch = loop_.watch(ends[0]);
    auto other = loop_.watch(others[0]);
    ASSERT_TRUE(watch.ok() && other.ok());
    (*watch)->readable.reset();
    ::close(ends[1]);
    EXPECT_TRUE(run_task(loop_, wait_for((*watch)->readable)).ok());
    (*watch)->readable.reset();
    // Whatever the loop still has to report comes with this.
    ASSERT_EQ(::write(others[1], "x", 1), 1);
    (*other)->readable.reset();
    EXPECT_TRUE(run_task(loop_, wait_for((*other)->readable)).ok());
    EXPECT_FALSE((*watch)->readable.is_set());
  }
  for (const int fd : {ends[0], others[0], others[1]}) ::close(fd);
}

// Sets `event` in the poll number `asks`, and unregisters itself.
struct CountingPoller final : Poller {
  CountingPoller(Event& when_done, int times) : event(when_done), asks(times) {}
  void poll() override {
    if (--asks > 0) return;
    event.set();
    unlink();
  }
  Event& event;
  int asks;
};

TEST_F(TaskTest, PollersAreAskedWithoutWaiting) {
  Event first(loop_);
  Event second(loop_);
  CountingPoller long_one(second, 1000);
  CountingPoller short_one(first, 10);
  loop_.add(long_one);
  loop_.add(short_one);
  {
    CountingPoller gone(first, 1);
    loop_.add(gone);
  }
  const int64_t deadline = loop_.now_ns() + 10 * kSecond;
  EXPECT_TRUE(run_task(loop_, with_deadline(loop_, deadline, "idle", wait_for(second))).ok());
  EXPECT_TRUE(first.is_set());
  EXPECT_EQ(short_one.asks, 0);
}

Task<void> use(Semaphore& semaphore, size_t units, int id, Event& go, std::vector<int>& order) {
  const auto hold = co_await semaphore.acquire(units);
  order.push_back(hold ? id : -id);
  if (hold) (void)co_await go.wait();
}

// A task that only yields does not delay descriptors, timers or runnables of wake_at_turn_end().
TEST_F(TaskTest, AYieldLetsEverythingElseGoFirst) {
  struct Late final : Runnable {
    void on_wake() override { fired = true; }
    bool fired = false;
  } late;
  int fds[2];
  ASSERT_EQ(::pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
  {
    auto watch = loop_.watch(fds[0]);
    ASSERT_TRUE(watch.ok());
    Event& readable = (*watch)->readable;
    readable.reset();
    ASSERT_EQ(::write(fds[1], "x", 1), 1);
    loop_.wake_at_turn_end(late);
    bool slept = false;
    Gate gate(loop_);
    gate.spawn([](Loop& loop, bool& out) -> Task<void> {
      (void)co_await sleep_for(loop, 1);
      out = true;
    }(loop_, slept));
    const int turns = run_task(
        loop_, [](Loop& loop, Event& event, const Late& other, const bool& timer) -> Task<int> {
          int count = 0;
          while (count < 100 && !(event.is_set() && other.fired && timer)) {
            YieldWait yield(loop);
            (void)co_await yield;
            count++;
          }
          co_return count;
        }(loop_, readable, late, slept));
    EXPECT_LE(turns, 5);
  }
  ::close(fds[0]);
  ::close(fds[1]);
}

// Tasks that keep waking each other delay neither wake_at_turn_end() nor descriptors and timers.
TEST_F(TaskTest, WhatIsLateIsNotHeldUpByWhatIsAlwaysReady) {
  struct Restless final : Runnable {
    explicit Restless(Loop& of) : loop(of) {}
    void on_wake() override {
      fires++;
      loop.wake(*this);
    }
    Loop& loop;
    int fires = 0;
  } restless(loop_);
  struct Late final : Runnable {
    explicit Late(const Restless& other) : restless(other) {}
    void on_wake() override { fires_before = restless.fires; }
    const Restless& restless;
    int fires_before = -1;
  } late(restless);
  loop_.wake(restless);
  loop_.wake_at_turn_end(late);
  run_task(loop_,
           [](Loop& loop) -> Task<void> { (void)co_await sleep_for(loop, kMillisecond); }(loop_));
  restless.unlink();
  EXPECT_GT(late.fires_before, 0);
  EXPECT_LE(late.fires_before, 100);
  EXPECT_GT(restless.fires, late.fires_before);
}

TEST_F(TaskTest, AWaitForAnEventEndsAtItsTime) {
  Event event(loop_);
  const auto wait_until = [](Event& what, int64_t until_ns) -> Task<Result<void>> {
    co_return co_await what.wait(until_ns);
  };
  const int64_t began = loop_.now_ns();
  const auto missed = run_task(loop_, wait_until(event, began + 2 * kMillisecond));
  ASSERT_FALSE(missed.ok());
  EXPECT_EQ(missed.error().code, Errc::deadline);
  EXPECT_GE(loop_.now_ns(), began + 2 * kMillisecond);
  // The event is set before the deadline: the timer ends with the wait.
  Gate gate(loop_);
  gate.spawn([](Loop& loop, Event& what) -> Task<void> {
    (void)co_await sleep_for(loop, kMillisecond);
    what.set();
  }(loop_, event));
  EXPECT_TRUE(run_task(loop_, wait_until(event, loop_.now_ns() + 10 * kSecond)).ok());
  EXPECT_TRUE(run_task(loop_, wait_until(event, 0)).ok());  // set already
  run_task(loop_, gate.wait_empty());
}

TEST_F(TaskTest, ASemaphoreServesInOrder) {
  Semaphore semaphore(loop_, 3);
  Event go(loop_);
  std::vector<int> order;
  Gate gate(loop_);
  gate.spawn(use(semaphore, 2, 1, go, order));
  gate.spawn(use(semaphore, 2, 2, go, order));
  gate.spawn(use(semaphore, 1, 3, go, order));  // fits, but 2 came first
  run_task(loop_, constant(0));
  EXPECT_EQ(order, (std::vector<int>{1}));
  EXPECT_FALSE(semaphore.try_acquire(1).has_value());
  EXPECT_EQ(semaphore.waiting(), 2u);
  go.set();
  run_task(loop_, gate.wait_empty());
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(semaphore.available(), 3u);
}

TEST_F(TaskTest, ACancelledTakerFreesTheQueue) {
  Semaphore semaphore(loop_, 2);
  Event go(loop_);
  std::vector<int> order;
  Gate holder(loop_);
  Gate cancelled(loop_);
  Gate later(loop_);
  holder.spawn(use(semaphore, 1, 1, go, order));
  cancelled.spawn(use(semaphore, 2, 2, go, order));
  later.spawn(use(semaphore, 1, 3, go, order));
  run_task(loop_, constant(0));
  run_task(loop_, cancelled.close(fail(Errc::interrupted, "enough")));
  go.set();
  run_task(loop_, later.wait_empty());
  run_task(loop_, holder.wait_empty());
  EXPECT_EQ(order, (std::vector<int>{1, 3, -2}));  // served as soon as 2 gave up
  EXPECT_EQ(semaphore.available(), 2u);
}

TEST_F(TaskTest, ADestroyedTakerGivesBackWhatItWasServed) {
  Semaphore semaphore(loop_, 1);
  Event go(loop_);
  std::vector<int> order;
  auto held = semaphore.try_acquire(1);
  {
    Gate gate(loop_);
    gate.spawn(use(semaphore, 1, 1, go, order));
    run_task(loop_, constant(0));
    held.reset();  // serves it; the gate goes before it could go on
    EXPECT_EQ(semaphore.available(), 0u);
  }
  EXPECT_EQ(semaphore.available(), 1u);
}

}  // namespace
}  // namespace ff
