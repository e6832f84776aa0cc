// sim_world.cc: the order of loops and the advance of time.
#include "platform/sim/sim_world.h"

#include <algorithm>

#include "platform/base/check.h"
#include "platform/base/fd_watch.h"

namespace ff::sim {

namespace {

constexpr int64_t kMillion = 1'000'000;
constexpr uint64_t kTurnsMax = 10'000'000;  // turns of all loops without advance of time

}  // namespace

SimWorld::SimWorld() : loop_(std::make_unique<SimLoop>(*this)) {}

SimWorld::~SimWorld() = default;

void SimWorld::run_until(int64_t until_ns) {
  turns_ = 0;
  while (step(until_ns)) {
  }
  if (until_ns != INT64_MAX) clock_.advance(until_ns - now_ns());
}

bool SimWorld::step(int64_t until_ns) {
  FF_CHECK(turns_++ < kTurnsMax);
  bool fired = false;
  // By index: a turn of the world's loop may create and destroy other loops.
  for (size_t i = 0; i < loops_.size(); i++) {
    if (!loops_[i]->paused_) fired |= loops_[i]->turn();
  }
  if (fired) return true;
  int64_t next = INT64_MAX;
  for (SimLoop* const loop : loops_) {
    if (loop->paused_) continue;
    if (loop->has_work()) return true;
    const auto timer = loop->next_timer_ns();
    if (timer) next = std::min(next, loop->skewed_->true_ns(*timer));
  }
  if (next == INT64_MAX || next > until_ns) return false;
  turns_ = 0;
  clock_.advance(next - now_ns());
  return true;
}

int64_t SkewedClock::steady_ns() {
  const int64_t truth = truth_.steady_ns();
  return truth + truth / kMillion * skew_.drift_ppm + truth % kMillion * skew_.drift_ppm / kMillion;
}

int64_t SkewedClock::true_ns(int64_t steady) {
  if (skew_.drift_ppm == 0) return steady;
  // The clock is monotonic, so a binary search finds the first time.
  int64_t low = 0;
  int64_t high = steady + steady / kMillion * std::abs(skew_.drift_ppm) * 2 + kMillion;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const int64_t there = middle + middle / kMillion * skew_.drift_ppm +
                          middle % kMillion * skew_.drift_ppm / kMillion;
    if (there >= steady) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

SimLoop::SimLoop(SimWorld& world, ClockSkew skew)
    : SimLoop(world, std::make_unique<SkewedClock>(world.clock_, skew)) {}

SimLoop::SimLoop(SimWorld& world, std::unique_ptr<SkewedClock> clock)
    : Loop(*clock), world_(world), skewed_(std::move(clock)) {
  world_.loops_.push_back(this);
}

SimLoop::~SimLoop() { std::erase(world_.loops_, this); }

Result<std::unique_ptr<FdWatch>> SimLoop::watch(int) {
  return fail(Errc::unsupported, "a simulated loop watches no descriptors");
}

void SimLoop::run() {
  while (!consume_stop()) {
    if (!world_.step(INT64_MAX)) return;
  }
}

}  // namespace ff::sim
