// run_on(): tasks in loops of other threads, and in the caller's own loop.
#include "platform/base/run_on.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "platform/base/clock.h"
#include "platform/base/system_loop.h"

namespace ff {
namespace {

// A loop with its thread, as a shard of a daemon has.
struct OtherLoop {
  OtherLoop() : thread([this] { loop.run(); }) {}
  ~OtherLoop() {
    loop.post([this] { loop.stop(); });
    thread.join();
  }
  SystemClock clock;
  SystemLoop loop{clock};
  Gate gate{loop};
  std::thread thread;
};

Task<Result<std::thread::id>> where(Loop& loop) {
  FF_CO_TRY(co_await sleep_for(loop, kMillisecond));
  co_return std::this_thread::get_id();
}

TEST(RunOn, TheTaskRunsThereAndItsResultComesBack) {
  SystemClock clock;
  SystemLoop here(clock);
  OtherLoop other;
  const auto ran = run_task(here, run_on(here, other.gate, where(other.loop)));
  ASSERT_TRUE(ran);
  EXPECT_EQ(*ran, other.thread.get_id());
  const auto failed = run_task(here, run_on(here, other.gate, []() -> Task<Result<int>> {
                                 co_return fail(Errc::busy, "not now");
                               }()));
  EXPECT_EQ(failed.error().code, Errc::busy);
}

TEST(RunOn, TheOwnLoopOnlyAwaitsTheTask) {
  SystemClock clock;
  SystemLoop here(clock);
  Gate gate(here);
  const auto ran = run_task(here, run_on(here, gate, where(here)));
  ASSERT_TRUE(ran);
  EXPECT_EQ(*ran, std::this_thread::get_id());
}

// Two loops that call each other all the time; for ThreadSanitizer.
TEST(RunOn, LoopsCallEachOther) {
  OtherLoop a;
  OtherLoop b;
  int in_a = 0;  // of the loop of a
  int in_b = 0;
  const auto count = [](int& which) -> Task<bool> {
    ++which;
    co_return true;
  };
  const auto many = [&count](Loop& here, Gate& there, int& which) -> Task<void> {
    for (int i = 0; i < 500; ++i) (void)co_await run_on(here, there, count(which));
  };
  SystemClock clock;
  SystemLoop here(clock);
  Gate both(here);
  both.spawn(run_on(here, a.gate, many(a.loop, b.gate, in_b)));
  both.spawn(run_on(here, b.gate, many(b.loop, a.gate, in_a)));
  run_task(here, both.wait_empty());
  EXPECT_EQ(in_a, 500);
  EXPECT_EQ(in_b, 500);
}

// The other loop ends the task when its gate is closed; the caller goes on.
TEST(RunOn, ClosingTheGateThereEndsTheTask) {
  SystemClock clock;
  SystemLoop here(clock);
  OtherLoop other;
  Gate closer(other.loop);
  const auto forever = [](Loop& loop) -> Task<Result<void>> {
    co_return co_await sleep_for(loop, 3600 * kSecond);
  };
  std::optional<Result<void>> ended;
  Gate gate(here);
  gate.spawn([](Task<Result<void>> task, std::optional<Result<void>>& into) -> Task<void> {
    into.emplace(co_await std::move(task));
  }(run_on(here, other.gate, forever(other.loop)), ended));
  run_task(here, run_on(here, closer, other.gate.close(fail(Errc::interrupted, "over"))));
  run_task(here, gate.wait_empty());
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->error().code, Errc::interrupted);
}

// The task there ends with the reason of the caller's cancellation.
TEST(RunOn, ACancellationReachesTheTask) {
  SystemClock clock;
  SystemLoop here(clock);
  OtherLoop other;
  const auto forever = [](Loop& loop, std::atomic<bool>& begun) -> Task<Result<void>> {
    begun = true;
    co_return co_await sleep_for(loop, 3600 * kSecond);
  };
  for (const bool early : {false, true}) {
    std::atomic<bool> begun = false;
    std::optional<Result<void>> ended;
    Gate gate(here);
    gate.spawn([](Task<Result<void>> task, std::optional<Result<void>>& into) -> Task<void> {
      into.emplace(co_await std::move(task));
    }(run_on(here, other.gate, forever(other.loop, begun)), ended));
    if (!early) run_task(here, poll_until(here, [&begun] { return begun.load(); }));
    run_task(here, gate.close(fail(Errc::interrupted, "enough")));
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->error().message, "enough");
  }
}

}  // namespace
}  // namespace ff
