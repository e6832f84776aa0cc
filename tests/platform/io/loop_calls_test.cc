// The system calls of a queue on a loop, counted by interposing on its libraries: one submission
// for all operations of a turn, and none and no wake-ups when idle.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <liburing.h>
#include <sys/epoll.h>

#include <atomic>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/io/async.h"
#include "platform/io/async_conformance.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "platform/io/test_bytes.h"
#include "platform/io/uring_queue.h"

namespace {

std::atomic<int> hand_overs{0};
std::atomic<int> polls{0};
std::atomic<int> refusals{0};  // hand-overs still to be refused

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// These definitions override those of the libraries in this program.
extern "C" int io_uring_submit_and_wait(io_uring* ring, unsigned wait_for) {
  static auto* const real = next<int(io_uring*, unsigned)>("io_uring_submit_and_wait");
  ++hand_overs;
  if (wait_for == 0 && refusals > 0) {
    --refusals;
    return -EAGAIN;
  }
  return real(ring, wait_for);
}

extern "C" int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms) {
  static auto* const real = next<int(int, epoll_event*, int, int)>("epoll_wait");
  ++polls;
  return real(epoll, events, count, timeout_ms);
}

namespace ff::io {
namespace {

constexpr unsigned kLoopDepth = 32;

class LoopCallsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto queue = make_uring_queue({.depth = kLoopDepth, .loop = &loop_});
    if (!queue) GTEST_SKIP() << "io_uring is not offered on this machine";
    queue_ = std::make_unique<AsyncQueue>(std::move(queue), loop_);
    file_ = disk_.open(dir_ / "file", {.access = AccessMode::read_write, .create = true}).value();
    hand_overs = 0;
    refusals = 0;
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  TempDir dir_;
  SystemDisk disk_;
  std::unique_ptr<File> file_;
  std::unique_ptr<AsyncQueue> queue_;
};

Task<void> write_at(AsyncQueue& queue, File& file, size_t id) {
  EXPECT_TRUE(ok(co_await queue.write(file, as_bytes("text"), 4 * id)));
}

Task<void> rest(Loop& loop, int64_t ns) { (void)co_await sleep_for(loop, ns); }

TEST_F(LoopCallsTest, ATurnIsHandedOverInBatches) {
  constexpr size_t kBatches = kLoopDepth / 8;
  Gate gate(loop_);
  for (size_t id = 0; id < kLoopDepth; ++id) gate.spawn(write_at(*queue_, *file_, id));
  run_task(loop_, wait_all(gate));
  EXPECT_EQ(hand_overs, kBatches);
  EXPECT_EQ(get(disk_, dir_ / "file").size(), 4 * kLoopDepth);
}

TEST_F(LoopCallsTest, NothingHappensWhenNothingIsInFlight) {
  Gate gate(loop_);
  gate.spawn(write_at(*queue_, *file_, 0));
  run_task(loop_, wait_all(gate));
  run_task(loop_, rest(loop_, 5 * kMillisecond));  // announcements of what is done already
  hand_overs = 0;
  polls = 0;
  run_task(loop_, rest(loop_, 50 * kMillisecond));
  EXPECT_EQ(hand_overs, 0);
  EXPECT_LE(polls, 5);
}

TEST_F(LoopCallsTest, WhatTheKernelDidNotTakeIsOfferedAgain) {
  refusals = 3;
  Gate gate(loop_);
  for (size_t id = 0; id < kLoopDepth; ++id) gate.spawn(write_at(*queue_, *file_, id));
  run_task(loop_, wait_all(gate));
  EXPECT_EQ(refusals, 0);
  EXPECT_EQ(hand_overs, 4);
  EXPECT_EQ(get(disk_, dir_ / "file").size(), 4 * kLoopDepth);
}

}  // namespace
}  // namespace ff::io
