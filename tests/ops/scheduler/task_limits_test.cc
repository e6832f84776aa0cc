// What one user may hold in the scheduler: tasks, bytes, and finished tasks that are remembered.
// Whatever one user does, others and the operator have room.
#include "ops/scheduler/task_limits.h"

#include <gtest/gtest.h>

#include "ops/scheduler/kept_records.h"
#include "ops/scheduler/scheduler_state.h"
#include "platform/base/bytes.h"

namespace ff::scheduler {
namespace {

constexpr uint32_t kAda = 1000, kBob = 1001;

// A scheduler without nodes: tasks wait until they are stopped.
class TaskLimitsTest : public testing::Test {
 protected:
  void start(TaskLimits limits, SchedulerTimeouts timeouts = {}) {
    state_ = std::make_unique<SchedulerState>("s", timeouts, HealthPolicy(), limits);
    state_->begin(now_);
  }
  static wire::SubmitRequest request(uint32_t uid, size_t variable_bytes = 0) {
    wire::SubmitRequest request;
    request.mutable_owner()->set_uid(uid);
    request.mutable_owner()->set_name(uid == kAda ? "ada" : "bob");
    wire::Spec& spec = *request.mutable_spec();
    spec.add_argv("train");
    spec.set_cwd("/");
    spec.set_nodes(1);
    spec.set_processes(1);
    spec.set_group("default");
    spec.set_priority(30);
    if (variable_bytes > 0) spec.add_env("V=" + std::string(variable_bytes, 'x'));
    return request;
  }
  Result<uint64_t> submit(wire::SubmitRequest wanted, SubmittedBy by = SubmittedBy::user) {
    return state_->submit(std::move(wanted), by, now_);
  }
  Result<uint64_t> submit(uint32_t uid, SubmittedBy by = SubmittedBy::user) {
    return submit(request(uid), by);
  }
  void stop(uint64_t id) {
    now_.wall_ns += kSecond;
    ASSERT_TRUE(state_->control(id, TaskControl::stop, now_).ok());
    (void)state_->tick(now_);
  }
  static void expect_says(const Error& error, const std::vector<std::string>& words) {
    EXPECT_EQ(error.code, Errc::busy);
    for (const std::string& word : words) {
      EXPECT_NE((error.message + " | " + error.hint).find(word), std::string::npos)
          << word << " is not in: " << error.message << " | " << error.hint;
    }
  }

  SchedulerState::Now now_ = {.steady_ns = 1000 * kSecond, .wall_ns = 1'700'000'000 * kSecond};
  std::unique_ptr<SchedulerState> state_;
};

TEST_F(TaskLimitsTest, AUserHasAShareOfTheTasks) {
  start({.tasks = 100, .tasks_per_user = 3});
  const uint64_t first = submit(kAda).value();
  ASSERT_TRUE(submit(kAda).ok());
  ASSERT_TRUE(submit(kAda).ok());
  const auto refused = submit(kAda);
  ASSERT_FALSE(refused.ok());
  expect_says(refused.error(), {"user ada (uid 1000) has 3 unfinished tasks",
                                "the limit per user is 3", "ff schedule stop", "--max-user-tasks"});
  EXPECT_TRUE(submit(kBob).ok());
  // The operator submits for her, too; that counts as hers.
  EXPECT_TRUE(submit(kAda, SubmittedBy::admin).ok());
  stop(first);
  EXPECT_FALSE(submit(kAda).ok());
  stop(first + 1);
  EXPECT_TRUE(submit(kAda).ok());
}

TEST_F(TaskLimitsTest, UsersLeaveATenthToOperators) {
  start({.tasks = 20, .tasks_per_user = 100});
  for (int i = 0; i < 18; i++) ASSERT_TRUE(submit(i % 2 == 0 ? kAda : kBob).ok()) << i;
  const auto refused = submit(kBob);
  ASSERT_FALSE(refused.ok());
  expect_says(refused.error(), {"user bob (uid 1001)", "have 18 unfinished tasks",
                                "the limit is 20, of which a tenth is kept", "--max-tasks"});
  EXPECT_TRUE(submit(kBob, SubmittedBy::admin).ok());
  EXPECT_TRUE(submit(kBob, SubmittedBy::admin).ok());
  const auto full = submit(kBob, SubmittedBy::admin);
  ASSERT_FALSE(full.ok());
  expect_says(full.error(), {"have 20 unfinished tasks", "the limit is 20"});
}

TEST_F(TaskLimitsTest, AUserHasAShareOfTheBytes) {
  start({.tasks = 10'000, .tasks_per_user = 500});
  constexpr size_t kLarge = 250'000;
  size_t submitted = 0;
  auto last = submit(request(kAda, kLarge));
  for (; last.ok() && submitted < 1000; submitted++) last = submit(request(kAda, kLarge));
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(submitted, 500 * 16 * kKiB / (kLarge + 200));
  expect_says(last.error(), {"user ada (uid 1000)", "commands and environments", "244KiB",
                             "the limit per user is 7.81MiB", "--no-inherit"});
  EXPECT_TRUE(submit(kAda).ok());  // a small one
  EXPECT_TRUE(submit(request(kBob, kLarge)).ok());
  EXPECT_TRUE(submit(request(kAda, kLarge), SubmittedBy::admin).ok());
}

// A string takes more memory than its bytes.
TEST_F(TaskLimitsTest, EmptyWordsCount) {
  start({.tasks = 10'000, .tasks_per_user = 100});
  wire::SubmitRequest words = request(kAda);
  for (int i = 0; i < 30'000; i++) words.mutable_spec()->add_argv("");
  size_t submitted = 0;
  while (submitted < 100 && submit(words).ok()) submitted++;
  EXPECT_LE(submitted, 4u);
  EXPECT_GE(submitted, 1u);
}

TEST_F(TaskLimitsTest, ARestartForgetsNoTask) {
  start({.tasks = 100, .tasks_per_user = 2});
  ASSERT_TRUE(submit(kAda).ok());
  ASSERT_TRUE(submit(kAda).ok());
  const std::map<uint64_t, wire::Task> stored = state_->tasks();
  state_ = std::make_unique<SchedulerState>("s", SchedulerTimeouts(), HealthPolicy(),
                                            TaskLimits{.tasks = 100, .tasks_per_user = 2});
  for (const auto& [id, task] : stored) state_->load(task);
  state_->begin(now_);
  EXPECT_EQ(submit(kAda).error().code, Errc::busy);
  stop(1);
  EXPECT_TRUE(submit(kAda).ok());
}

TEST_F(TaskLimitsTest, HistoryIsTakenFromWhoHasMost) {
  start({}, {.max_finished_tasks = 6});
  const uint64_t early = submit(kBob).value();
  stop(early);
  std::vector<uint64_t> ids;
  for (int i = 0; i < 30; i++) {
    ids.push_back(submit(kAda).value());
    stop(ids.back());
  }
  ASSERT_TRUE(submit(kAda).ok());
  EXPECT_TRUE(state_->tasks().contains(early));
  EXPECT_EQ(state_->finished().size(), 6u);
  for (size_t i = 0; i < ids.size(); i++) {
    EXPECT_EQ(state_->tasks().contains(ids[i]), i >= 25) << i;
  }
  const auto dropped = state_->take_changes().dropped;
  EXPECT_EQ(dropped.size(), 25u);
}

TEST_F(TaskLimitsTest, HistoryHasALimitInBytes) {
  constexpr size_t kLarge = 250'000;
  start({}, {.max_finished_tasks = 1000});
  const uint64_t early = submit(kBob).value();
  stop(early);
  for (int i = 0; i < 40; i++) stop(submit(request(kAda, kLarge)).value());
  ASSERT_TRUE(submit(kBob).ok());
  (void)state_->tick(now_);
  EXPECT_TRUE(state_->tasks().contains(early));
  const uint64_t kept = state_->finished().size() - 1;
  EXPECT_LE(kept * kLarge, history_bytes_max(1000));
  EXPECT_GE((kept + 2) * kLarge, history_bytes_max(1000));
}

TEST(KeptRecords, OldestOfTheLargest) {
  using Records = KeptRecords<uint64_t>;
  Records records;
  EXPECT_FALSE(records.oldest_of_largest(Records::Measure::records).has_value());
  EXPECT_FALSE(records.oldest().has_value());
  records.add({.uid = 1, .ended_ns = 50, .key = 7, .bytes = 100});
  records.add({.uid = 2, .ended_ns = 20, .key = 8, .bytes = 10});
  records.add({.uid = 2, .ended_ns = 10, .key = 9, .bytes = 10});
  EXPECT_EQ(records.oldest_of_largest(Records::Measure::records)->key, 9u);
  EXPECT_EQ(records.oldest_of_largest(Records::Measure::bytes)->key, 7u);
  EXPECT_EQ(records.oldest()->key, 9u);
  EXPECT_EQ(records.oldest_of(1)->key, 7u);
  EXPECT_FALSE(records.oldest_of(3).has_value());
  EXPECT_EQ(records.bytes(), 120u);
  records.remove(*records.oldest());
  records.remove({.uid = 2, .ended_ns = 10, .key = 9, .bytes = 10});  // no longer there
  EXPECT_EQ(records.count(), 2u);
  EXPECT_EQ(records.bytes_of(2), 10u);
  // Equal users: the older record.
  EXPECT_EQ(records.oldest_of_largest(Records::Measure::records)->key, 8u);
  records.remove(*records.oldest_of(2));
  EXPECT_EQ(records.oldest()->key, 7u);
  EXPECT_EQ(records.bytes(), 100u);
}

}  // namespace
}  // namespace ff::scheduler
