// The contract of AsyncQueue (io/async.h), tested with every kind of queue on a loop. A test
// program includes this once and instantiates AsyncConformance with disks whose TestedDisk::loop()
// is not null.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/io/async.h"
#include "platform/io/disk_conformance.h"

namespace ff::io {

class AsyncConformance : public testing::TestWithParam<DiskMaker> {
 protected:
  void SetUp() override {
    tested_ = GetParam().make();
    auto queue = tested_->make_queue({.depth = kDepth, .loop = &loop()});
    if (!queue) GTEST_SKIP() << "this kind of queue is not offered on this machine";
    queue_ = std::make_unique<AsyncQueue>(std::move(queue), loop());
    const OpenOptions options{.access = AccessMode::read_write, .create = true};
    file_ = tested_->disk().open(join(tested_->dir(), "file"), options).value();
  }
  Loop& loop() { return *tested_->loop(); }
  AsyncQueue& queue() { return *queue_; }
  File& file() { return *file_; }
  std::string content() { return get(tested_->disk(), join(tested_->dir(), "file")); }

  static constexpr unsigned kDepth = 4;
  std::unique_ptr<TestedDisk> tested_;
  std::unique_ptr<File> file_;
  std::unique_ptr<AsyncQueue> queue_;
};

// The results of tasks, in the order of completion.
struct Outcomes {
  std::vector<size_t> order;
  std::vector<Result<size_t>> results;

  void add(size_t id, Result<size_t> result) {
    order.push_back(id);
    results.push_back(std::move(result));
  }
};

inline Task<void> write_one(AsyncQueue& queue, File& file, std::string text, size_t id,
                            Outcomes& outcomes) {
  auto written = co_await queue.write(file, as_bytes(text), id * text.size());
  if (written) {
    outcomes.add(id, text.size());
  } else {
    outcomes.add(id, written.error());
  }
}

// Reads into its own memory, which is freed with the task.
inline Task<void> read_one(AsyncQueue& queue, File& file, size_t size, Outcomes& outcomes) {
  std::vector<std::byte> into(size);
  auto got = co_await queue.read(file, into, 0);
  if (got && *got != size) got = size_t{0};
  outcomes.add(0, std::move(got));
}

inline Task<Result<size_t>> round_trip(AsyncQueue& queue, File& file, ByteView from,
                                       ByteSpan into) {
  FF_CO_TRY(co_await queue.write(file, from, 5));
  FF_CO_TRY(co_await queue.sync(file));
  co_return co_await queue.read(file, into, 5);
}

TEST_P(AsyncConformance, WritesSyncsAndReads) {
  const auto bytes = random_bytes(3 * kMiB + 1, 1);
  std::vector<std::byte> into(bytes.size() + 10);
  const auto got = run_task(loop(), round_trip(queue(), file(), bytes, into));
  ASSERT_TRUE(ok(got));
  EXPECT_EQ(*got, bytes.size());
  into.resize(*got);
  EXPECT_TRUE(into == bytes);
}

inline Task<Result<size_t>> read_at(AsyncQueue& queue, File& file, ByteSpan into) {
  return queue.read(file, into, 0);
}

TEST_P(AsyncConformance, ErrorsNameTheFile) {
  const auto path = join(tested_->dir(), "file");
  const auto writer = tested_->disk().open(path, {.access = AccessMode::write}).value();
  std::vector<std::byte> into(4);
  const auto got = run_task(loop(), read_at(queue(), *writer, into));
  ASSERT_FALSE(got.ok());
  EXPECT_NE(got.error().message.find(path), std::string::npos) << got.error().message;
}

inline Task<void> wait_all(Gate& gate) { co_await gate.wait_empty(); }

// The queue aborts the process if more operations than its depth are in flight.
TEST_P(AsyncConformance, MoreOperationsThanDepthWaitForAPlace) {
  Outcomes outcomes;
  Gate gate(loop());
  std::string expected;
  for (size_t id = 0; id < 50 * kDepth; ++id) {
    const std::string text(100, static_cast<char>('a' + id % 26));
    gate.spawn(write_one(queue(), file(), text, id, outcomes));
    expected += text;
  }
  run_task(loop(), wait_all(gate));
  EXPECT_EQ(outcomes.order.size(), 50 * kDepth);
  EXPECT_EQ(content(), expected);
  EXPECT_EQ(queue().waiting(), 0u);
}

TEST_P(AsyncConformance, PlacesAreGivenInOrder) {
  AsyncQueue one(tested_->make_queue({.depth = 1, .loop = &loop()}), loop());
  Outcomes outcomes;
  Gate gate(loop());
  std::vector<size_t> expected;
  for (size_t id = 0; id < 20; ++id) {
    gate.spawn(write_one(one, file(), "text", id, outcomes));
    expected.push_back(id);
  }
  run_task(loop(), wait_all(gate));
  EXPECT_EQ(outcomes.order, expected);
}

// Runs `action` after all tasks spawned before have started their operations, and before the loop
// submits them: no operation can have completed.
inline Task<void> call(std::function<void()> action) {
  action();
  co_return;
}

TEST_P(AsyncConformance, ACancelledTaskGetsItsResultAndOneThatWaitsTheReason) {
  Outcomes outcomes;
  Gate gate(loop());
  for (size_t id = 0; id < kDepth + 3; ++id) {
    gate.spawn(write_one(queue(), file(), "text", id, outcomes));
  }
  run_task(loop(), call([&] {
             EXPECT_EQ(queue().in_flight(), kDepth);
             gate.cancellation().request(fail(Errc::interrupted, "enough"));
           }));
  // Starts after the cancellation, possibly with free slots.
  gate.spawn(write_one(queue(), file(), "text", kDepth + 3, outcomes));
  run_task(loop(), wait_all(gate));
  ASSERT_EQ(outcomes.order.size(), kDepth + 4);
  for (size_t i = 0; i < outcomes.order.size(); ++i) {
    const auto& result = outcomes.results[i];
    EXPECT_EQ(result.ok(), outcomes.order[i] < kDepth) << outcomes.order[i];
    if (!result) {
      EXPECT_EQ(result.error().message, "enough");
    }
  }
  EXPECT_EQ(queue().in_flight(), 0u);
  gate.spawn(write_one(queue(), file(), "text", kDepth + 4, outcomes));  // every place is free
  run_task(loop(), wait_all(gate));
  EXPECT_FALSE(outcomes.results.back().ok());
  EXPECT_EQ(content(), "texttexttexttext");
  // The slots of cancelled tasks are not lost.
  Gate again(loop());
  for (size_t id = 0; id < kDepth; ++id) again.spawn(write_one(queue(), file(), "t", id, outcomes));
  run_task(loop(), call([&] { EXPECT_EQ(queue().waiting(), 0u); }));
  run_task(loop(), wait_all(again));
}

inline Task<void> cancelled_read(AsyncQueue& queue, File& file, size_t size, Outcomes& outcomes,
                                 bool& ended_early) {
  co_await read_one(queue, file, size, outcomes);
  ended_early = queue.in_flight() > 0;
}

TEST_P(AsyncConformance, ACancelledTaskReturnsOnlyWhenItsOperationHasEnded) {
  const auto bytes = random_bytes(4 * kMiB, 1);
  ASSERT_TRUE(ok(file().write_at(bytes, 0)));
  Outcomes outcomes;
  bool ended_early = false;
  Gate gate(loop());
  gate.spawn(cancelled_read(queue(), file(), bytes.size(), outcomes, ended_early));
  run_task(loop(), call([&] { gate.cancellation().request(fail(Errc::interrupted, "enough")); }));
  run_task(loop(), wait_all(gate));
  EXPECT_FALSE(ended_early);
  ASSERT_EQ(outcomes.results.size(), 1u);
  ASSERT_TRUE(ok(outcomes.results[0]));
  EXPECT_EQ(*outcomes.results[0], bytes.size());
}

TEST_P(AsyncConformance, DestroyedTasksLeaveNothingInFlight) {
  const auto bytes = random_bytes(2 * kMiB, 1);
  ASSERT_TRUE(ok(file().write_at(bytes, 0)));
  Outcomes outcomes;
  auto doomed = std::make_unique<Gate>(loop());
  for (size_t i = 0; i < 3 * kDepth; ++i) {
    doomed->spawn(read_one(queue(), file(), bytes.size(), outcomes));
  }
  run_task(loop(), call([&] {
             EXPECT_EQ(queue().waiting(), 2 * kDepth);
             doomed.reset();
             EXPECT_EQ(queue().in_flight(), 0u);
             EXPECT_EQ(queue().waiting(), 0u);
           }));
  EXPECT_TRUE(outcomes.order.empty());
  Gate gate(loop());
  gate.spawn(read_one(queue(), file(), bytes.size(), outcomes));  // the queue works on
  run_task(loop(), wait_all(gate));
  ASSERT_EQ(outcomes.results.size(), 1u);
  EXPECT_EQ(*outcomes.results[0], bytes.size());
}

TEST_P(AsyncConformance, MustOutliveItsTasks) {
  GTEST_FLAG_SET(death_test_style, "fast");
  Outcomes outcomes;
  Gate gate(loop());
  gate.spawn(write_one(queue(), file(), "text", 0, outcomes));
  run_task(loop(), call([&] { EXPECT_DEATH(queue_.reset(), "check failed"); }));
  run_task(loop(), wait_all(gate));
}

}  // namespace ff::io
