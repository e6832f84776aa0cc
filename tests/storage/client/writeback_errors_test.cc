// Writes that fail after they were acknowledged, in a simulated cluster: who gets the error, what
// is retried, what is lost, and what concurrent syncs wait for.
#include <fmt/format.h>

#include <cerrno>

#include "storage/client/file_system_world.h"

namespace ff::client {
namespace {

TEST(ErrorSeqTest, EachIsToldOfTheNewestOnce) {
  ErrorSeq errors;
  auto first = errors.sample();
  auto second = errors.sample();
  EXPECT_TRUE(errors.check_and_advance(first).ok());
  errors.record(errno_error(EIO, "one"));
  errors.record(errno_error(ENOSPC, "two"));
  EXPECT_EQ(errors.check(first).error().sys, ENOSPC);
  EXPECT_EQ(errors.check(first).error().sys, ENOSPC);  // and it is still to be told
  EXPECT_EQ(errors.check_and_advance(first).error().sys, ENOSPC);
  EXPECT_TRUE(errors.check_and_advance(first).ok());
  EXPECT_TRUE(errors.check(first).ok());
  EXPECT_EQ(errors.check(second).error().sys, ENOSPC);
  EXPECT_EQ(errors.check_and_advance(second).error().sys, ENOSPC);
  EXPECT_TRUE(errors.check_and_advance(second).ok());
}

// A writer may close the file and leave fsync to a program that opens it later.
TEST(ErrorSeqTest, WhoOpensLaterIsToldOfWhatNobodyWas) {
  ErrorSeq errors;
  auto writer = errors.sample();
  errors.record(errno_error(EIO, "lost"));
  auto later = errors.sample();
  EXPECT_TRUE(errors.check(later).ok());  // nothing of its own
  EXPECT_FALSE(errors.check_and_advance(later).ok());
  auto last = errors.sample();
  EXPECT_TRUE(errors.check_and_advance(last).ok());
  EXPECT_FALSE(errors.check_and_advance(writer).ok());
}

class LateErrorsTest : public FileSystemWorld {
 protected:
  // The client cannot reach any storage node.
  void cut_off(bool cut) {
    for (const auto& node : cluster_.nodes()) {
      if (cut) stage_.net.block("user", node->name());
      if (!cut) stage_.net.unblock("user", node->name());
    }
  }
  void fill_disks(bool full) {
    for (const auto& node : cluster_.nodes()) {
      node->disk().set_fault(sim::SimOp::write, full ? 1 : 0, ENOSPC);
    }
  }
  uint64_t lost() { return stage_.metrics.counter("ff_client_lost_bytes_total", "").value(); }
  // Runs a task in the background; returns whether it has ended, and its result.
  using Outcome = std::shared_ptr<std::optional<Result<void>>>;
  Outcome begin(Task<Result<void>> task, CancellationToken* cancel = nullptr) {
    auto outcome = std::make_shared<std::optional<Result<void>>>();
    gate_.spawn([](Task<Result<void>> it, Outcome into, CancellationToken* by) -> Task<void> {
      if (by == nullptr) into->emplace(co_await std::move(it));
      if (by != nullptr) into->emplace(co_await std::move(it).with_cancellation(*by));
    }(std::move(task), outcome, cancel));
    return outcome;
  }
  std::string there(const FileRef& file, size_t size) {
    User other(stage_, fmt::format("other{}", others_++));
    EXPECT_TRUE(io::ok(run(other.files().start(INT64_MAX))));
    const auto open = run(other.files().open({}, {.id = file->inode().id}, meta::kMayRead));
    const std::string text = open ? read(**open, 0, size) : "(not open)";
    run(other.files().close());
    return text;
  }

  Gate gate_{stage_.world.loop()};
  int others_ = 0;
};

TEST_F(LateErrorsTest, WhatCouldNotBeWrittenIsTriedAgain) {
  const auto file = create("f").value();
  cut_off(true);
  ASSERT_TRUE(io::ok(run(file->write_behind(0, as_bytes("kept")))));
  EXPECT_TRUE(io::ok(run(file->flush())));  // tells nobody
  EXPECT_FALSE(run(file->sync()).ok());
  EXPECT_FALSE(run(file->sync()).ok());  // still not there
  EXPECT_FALSE(run(file->write_behind(4, as_bytes("more"))).ok());
  cut_off(false);
  ASSERT_TRUE(io::ok(run(file->sync())));
  EXPECT_EQ(there(file, 10), "kept");
  EXPECT_TRUE(io::ok(run(file->write_behind(4, as_bytes("more")))));
  ASSERT_TRUE(io::ok(run(file->close())));
  EXPECT_EQ(there(file, 10), "keptmore");
  EXPECT_EQ(lost(), 0u);
}

TEST_F(LateErrorsTest, ItIsTriedAgainByItselfAndTheErrorStaysToBeTold) {
  const auto file = create("f").value();
  cut_off(true);
  ASSERT_TRUE(io::ok(run(file->write_behind(0, as_bytes("kept")))));
  EXPECT_TRUE(io::ok(run(file->flush())));
  cut_off(false);
  EXPECT_TRUE(
      eventually([&] { return file->writeback_error({}).ok() || there(file, 4) == "kept"; }));
  const auto told = run(file->sync());
  ASSERT_FALSE(told.ok());
  EXPECT_NE(told.error().sys, 0);
  EXPECT_TRUE(io::ok(run(file->sync())));
  EXPECT_TRUE(io::ok(run(file->close())));
}

TEST_F(LateErrorsTest, CloseTellsAnErrorOfWhichNobodyHasAsked) {
  const auto file = create("f").value();
  cut_off(true);
  ASSERT_TRUE(io::ok(run(file->write_behind(0, as_bytes("lost")))));
  EXPECT_TRUE(io::ok(run(file->flush())));
  EXPECT_FALSE(run(file->close()).ok());
  EXPECT_EQ(lost(), 4u);
  cut_off(false);
  // Another program opens it next and syncs it.
  const auto next = open(file->inode().id, meta::kMayRead | meta::kMayWrite).value();
  EXPECT_FALSE(run(next->sync()).ok());
  EXPECT_TRUE(io::ok(run(next->sync())));
  EXPECT_TRUE(io::ok(run(next->close())));
}

TEST_F(LateErrorsTest, WithoutRoomItIsReadAsItWasWrittenAndComesLater) {
  const std::string old = text_of(1, 1000);
  const uint64_t id = make("f", old);
  const auto file = open(id, meta::kMayRead | meta::kMayWrite).value();
  fill_disks(true);
  ASSERT_TRUE(io::ok(run(file->write_behind(500, as_bytes(std::string(1000, 'n'))))));
  const auto full = run(file->sync());
  ASSERT_FALSE(full.ok());
  const std::string wanted = old.substr(0, 500) + std::string(1000, 'n');
  EXPECT_TRUE(read(*file, 0, 2000) == wanted);
  EXPECT_EQ(read(*file, 499, 2), old.substr(499, 1) + "n");
  fill_disks(false);
  for (const auto& node : cluster_.nodes()) {
    node->kill();
    node->start();
  }
  EXPECT_TRUE(eventually([&] { return cluster_.all_serve(); }));
  ASSERT_TRUE(io::ok(run(file->sync())));
  EXPECT_TRUE(there(file, 2000) == wanted);
  ASSERT_TRUE(io::ok(run(file->close())));
}

TEST_F(LateErrorsTest, WhatComesLaterReplacesIt) {
  const auto file = create("f").value();
  cut_off(true);
  ASSERT_TRUE(io::ok(run(file->write_behind(0, as_bytes("aaaaaaaaaa")))));
  EXPECT_TRUE(io::ok(run(file->flush())));
  ASSERT_FALSE(run(file->flush_on_close(file->cursor())).ok());
  cut_off(false);
  ASSERT_TRUE(io::ok(run(file->write(2, as_bytes("bbb")))));
  EXPECT_FALSE(run(file->sync()).ok());
  EXPECT_EQ(there(file, 20), "aabbbaaaaa");
  cut_off(true);
  ASSERT_TRUE(io::ok(run(file->write_behind(0, as_bytes("cccccccccc")))));
  EXPECT_TRUE(io::ok(run(file->flush())));
  cut_off(false);
  ASSERT_TRUE(io::ok(run(file->truncate(3))));
  EXPECT_FALSE(run(file->sync()).ok());
  EXPECT_EQ(there(file, 20), "ccc");
  cut_off(true);
  ASSERT_TRUE(io::ok(run(file->write_behind(1, as_bytes("dd")))));
  EXPECT_TRUE(io::ok(run(file->flush())));
  cut_off(false);
  ASSERT_TRUE(io::ok(run(file->punch_hole(0, 2))));
  EXPECT_FALSE(run(file->sync()).ok());
  EXPECT_EQ(there(file, 20), std::string("\0\0d", 3));
  EXPECT_TRUE(io::ok(run(file->close())));
  EXPECT_EQ(lost(), 0u);
}

TEST_F(LateErrorsTest, WhatFitsNowhereIsCounted) {
  log_setup({.level = LogLevel::none});
  cut_off(true);
  std::vector<FileRef> files;
  // More than half of the write memory.
  constexpr uint64_t kFiles = 160;
  for (uint64_t i = 0; i < kFiles; i++) {
    files.push_back(create(fmt::format("f{}", i)).value());
    ASSERT_TRUE(io::ok(run(files.back()->write_behind(0, as_bytes("xxxx")))));
  }
  std::vector<Outcome> synced;
  for (const auto& file : files) synced.push_back(begin(file->sync()));
  ASSERT_TRUE(eventually([&] {
    return std::ranges::all_of(synced, [](const auto& one) { return one->has_value(); });
  }));
  for (const auto& one : synced) EXPECT_FALSE((*one)->ok());
  EXPECT_EQ(lost(), (kFiles - 128) * 4);
  cut_off(false);
  size_t whole = 0;
  for (const auto& file : files) {
    EXPECT_TRUE(io::ok(run(file->sync())));
    whole += read(*file, 0, 4) == "xxxx" ? 1 : 0;
    EXPECT_TRUE(io::ok(run(file->close())));
  }
  EXPECT_EQ(whole, 128u);
  EXPECT_EQ(files_.dirty_bytes(), 0u);
}

// A sync that starts while another one waits for storage waits, too.
TEST_F(LateErrorsTest, NoSyncTakesAnothersWritesAway) {
  const auto file = create("f").value();
  ASSERT_TRUE(io::ok(run(file->write(0, as_bytes(text_of(1, 3 * kChunk))))));
  const auto second = open(file->inode().id, meta::kMayRead | meta::kMayWrite).value();
  cut_off(true);
  const auto one = begin(file->sync());
  const auto two = begin(file->sync());
  const auto three = begin(second->sync());
  pass(5 * kSecond);
  EXPECT_FALSE(one->has_value());
  EXPECT_FALSE(two->has_value());
  EXPECT_FALSE(three->has_value());
  cut_off(false);
  ASSERT_TRUE(
      eventually([&] { return one->has_value() && two->has_value() && three->has_value(); }));
  EXPECT_TRUE(io::ok(**one));
  EXPECT_TRUE(io::ok(**two));
  EXPECT_TRUE(io::ok(**three));
  // Also for a file that was closed meanwhile.
  ASSERT_TRUE(io::ok(run(file->write(0, as_bytes("more")))));
  ASSERT_TRUE(io::ok(run(file->close())));
  cut_off(true);
  const auto first = begin(second->sync());
  const auto again = begin(second->sync());
  pass(5 * kSecond);
  EXPECT_FALSE(first->has_value());
  EXPECT_FALSE(again->has_value());
  cut_off(false);
  ASSERT_TRUE(eventually([&] { return first->has_value() && again->has_value(); }));
  EXPECT_TRUE(io::ok(run(second->close())));
}

// A failed or cancelled sync proves nothing.
TEST_F(LateErrorsTest, WhatASyncDidNotHearIsAskedAgain) {
  for (const bool interrupted : {false, true}) {
    const auto file = create(interrupted ? "a" : "b").value();
    ASSERT_TRUE(io::ok(run(file->write(0, as_bytes("lost with the power")))));
    cut_off(true);
    CancellationToken cancel;
    const auto outcome = begin(file->sync(), interrupted ? &cancel : nullptr);
    if (interrupted) {
      pass(kSecond);
      cancel.request(fail(Errc::interrupted, "a signal"));
    }
    ASSERT_TRUE(eventually([&] { return outcome->has_value(); }));
    EXPECT_FALSE((*outcome)->ok());
    cut_off(false);
    EXPECT_TRUE(io::ok(run(file->sync())));
    EXPECT_TRUE(io::ok(run(file->close())));
  }
}

TEST_F(LateErrorsTest, WhatAllReplicasHaveLostIsToldToEach) {
  const auto file = create("f").value();
  const auto other = open(file->inode().id, meta::kMayRead | meta::kMayWrite).value();
  ASSERT_TRUE(io::ok(run(file->write(0, as_bytes("lost with the power")))));
  cut_off(true);
  CancellationToken cancel;
  const auto outcome = begin(file->sync(), &cancel);
  pass(50 * kMillisecond);
  for (const auto& node : cluster_.nodes()) node->power_loss();
  cancel.request(fail(Errc::interrupted, "a signal"));
  ASSERT_TRUE(eventually([&] { return outcome->has_value(); }));
  EXPECT_EQ((*outcome)->error().code, Errc::interrupted);
  for (const auto& node : cluster_.nodes()) node->start();
  cut_off(false);
  const auto synced = run(file->sync());
  ASSERT_FALSE(synced.ok());
  EXPECT_EQ(synced.error().sys, EIO);
  EXPECT_FALSE(run(other->sync()).ok());
  EXPECT_TRUE(io::ok(run(file->sync())));
  EXPECT_TRUE(io::ok(run(other->sync())));
  EXPECT_TRUE(io::ok(run(file->close())));
  EXPECT_TRUE(io::ok(run(other->close())));
}

// Another client has punched the hole before and not synced it: it must be durable after the sync
// of a client that found nothing to punch.
TEST_F(LateErrorsTest, WhatAnotherHasClearedStaysClearedAfterASync) {
  User other(stage_, "other");
  ASSERT_TRUE(io::ok(run(other.files().start(INT64_MAX))));
  constexpr size_t kSize = 4 * kChunk;
  for (int round = 0; round < 8; round++) {  // a loss of power leaves this or that
    const auto file = create(fmt::format("f{}", round)).value();
    ASSERT_TRUE(io::ok(run(file->write(0, as_bytes(text_of(1, kSize))))));
    ASSERT_TRUE(io::ok(run(file->sync())));
    const auto theirs = run(other.files().open({}, {.id = file->inode().id}, meta::kMayWrite));
    ASSERT_TRUE(io::ok(theirs));
    ASSERT_TRUE(io::ok(run((*theirs)->punch_hole(0, kSize))));
    ASSERT_TRUE(io::ok(run(file->punch_hole(0, kSize))));
    ASSERT_TRUE(io::ok(run(file->sync())));
    for (const auto& node : cluster_.nodes()) node->power_loss();
    for (const auto& node : cluster_.nodes()) node->start();
    ASSERT_TRUE(eventually([&] { return cluster_.all_serve(); }));
    EXPECT_TRUE(read(*this, *file, 0, kSize) == std::string(kSize, '\0')) << round;
    EXPECT_TRUE(io::ok(run((*theirs)->close())));
    EXPECT_TRUE(io::ok(run(file->close())));
  }
}

}  // namespace
}  // namespace ff::client
