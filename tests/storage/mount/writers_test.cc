// Programs that write the same file through a mount: which calls report writeback errors to whom;
// appends after fcntl(2) has changed the flags.
#include "storage/mount/two_mounts.h"

namespace ff::mount {
namespace {

class WritersTest : public TwoMounts {
 protected:
  void cut_off(bool cut) {
    for (const auto& node : cluster_.nodes()) {
      if (cut) stage_.net.block("user", node->name());
      if (!cut) stage_.net.unblock("user", node->name());
    }
  }
  Result<void> sync(uint64_t handle) { return run(here_->operations.sync(handle)); }
  Result<void> flush(uint64_t handle) { return run(here_->operations.flush(handle)); }
  // A file with a handle, and a write that storage refuses.
  Made make_failed(std::string name) {
    const Made made = make_open(*here_, std::move(name));
    cut_off(true);
    EXPECT_TRUE(write(*here_, made.handle, 0, "late").ok());
    EXPECT_FALSE(flush(made.handle).ok());
    return made;
  }
};

// As in Linux: each open file description gets the error once, from its own fsync.
TEST_F(WritersTest, LateErrorsAreToldOnceToEachHandle) {
  const Made first = make_open(*here_, "a");
  const auto second = open(*here_, first.inode, O_WRONLY);
  const auto reader = open(*here_, first.inode, O_RDONLY);
  ASSERT_TRUE(second.ok() && reader.ok());
  cut_off(true);
  EXPECT_TRUE(write(*here_, first.handle, 0, "late").ok());
  EXPECT_FALSE(flush(first.handle).ok());  // as of a child that does exec(2)
  cut_off(false);
  EXPECT_FALSE(flush(first.handle).ok());
  EXPECT_FALSE(flush(second->handle).ok());
  EXPECT_TRUE(flush(reader->handle).ok());
  const auto later = open(*here_, first.inode, O_RDWR);
  for (const uint64_t handle : {first.handle, second->handle, reader->handle, later->handle}) {
    EXPECT_FALSE(sync(handle).ok()) << handle;
    EXPECT_TRUE(sync(handle).ok()) << handle;
    EXPECT_TRUE(flush(handle).ok()) << handle;
  }
  EXPECT_EQ(read(*here_, first.handle, 0, 10), "late");
  const auto last = open(*here_, first.inode, O_RDWR);
  EXPECT_TRUE(sync(last->handle).ok());
}

// Calls that do not consume earlier errors, whatever they return.
TEST_F(WritersTest, NothingButFsyncTakesAReport) {
  using Call = std::function<void(const Made&)>;
  Operations& operations = here_->operations;
  const std::vector<std::pair<const char*, Call>> calls = {
      {"read", [&](const Made& made) { (void)read(*here_, made.handle, 0, 10); }},
      {"lseek", [&](const Made& made) { (void)run(operations.seek(made.handle, 0, SEEK_DATA)); }},
      {"fallocate",
       [&](const Made& made) { (void)run(operations.allocate(made.handle, 0, 0, 100)); }},
      {"punch",
       [&](const Made& made) {
         const int how = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
         (void)run(operations.allocate(made.handle, how, 0, 2));
       }},
      {"utimens",
       [&](const Made& made) {
         (void)run(operations.setattr({}, made.inode, {.to = {.mtime_ns = kSecond}}));
       }},
      {"ftruncate",
       [&](const Made& made) {
         (void)run(operations.setattr({}, made.inode, {.length = 2, .handle = made.handle}));
       }},
      {"truncate",
       [&](const Made& made) {
         (void)run(operations.setattr({.uid = 7}, made.inode, {.length = 2}));
       }},
      {"O_TRUNC", [&](const Made& made) { (void)open(*here_, made.inode, O_WRONLY | O_TRUNC); }},
      {"close of a dup", [&](const Made& made) { (void)flush(made.handle); }},
      {"write", [&](const Made& made) { (void)write(*here_, made.handle, 4, "more"); }},
      {"stat", [&](const Made& made) { (void)run(operations.getattr(made.inode)); }},
      {"syncfs", [&](const Made&) { (void)run(operations.sync_all()); }},
  };
  for (const auto& [name, call] : calls) {
    for (const bool healed : {true, false}) {
      const Made made = make_failed(fmt::format("{} {}", name, healed));
      if (healed) cut_off(false);
      call(made);
      cut_off(false);
      EXPECT_FALSE(sync(made.handle).ok()) << name;
      EXPECT_TRUE(sync(made.handle).ok()) << name;
      close(*here_, made.handle);
    }
  }
}

// A cancelled sync reports nothing.
TEST_F(WritersTest, AnInterruptedFsyncTakesNoReport) {
  const Made made = make_failed("a");
  CancellationToken cancel;
  std::optional<Result<void>> ended;
  Gate gate(stage_.world.loop());
  gate.spawn([](Task<Result<void>> it, CancellationToken& by,
                std::optional<Result<void>>& into) -> Task<void> {
    into.emplace(co_await std::move(it).with_cancellation(by));
  }(here_->operations.sync(made.handle), cancel, ended));
  pass(kSecond);
  Error signal = errno_error(EINTR, "the program");
  signal.code = Errc::interrupted;
  cancel.request(std::move(signal));
  ASSERT_TRUE(eventually([&] { return ended.has_value(); }));
  ASSERT_FALSE(ended->ok());
  EXPECT_EQ(ended->error().sys, EINTR);
  cut_off(false);
  EXPECT_FALSE(sync(made.handle).ok());
  EXPECT_TRUE(sync(made.handle).ok());
  close(*here_, made.handle);
}

// Every call that waits for storage ends when its program is interrupted.
TEST_F(WritersTest, CallsThatWaitForStorageCanBeInterrupted) {
  const Made made = make_open(*here_, "a");
  const std::string text(3 * client::kChunk, 'x');
  ASSERT_TRUE(io::ok(write(*here_, made.handle, 0, text)));
  ASSERT_TRUE(io::ok(sync(made.handle)));
  cut_off(true);
  Operations& operations = here_->operations;
  const auto plain = [](auto task) -> Task<Result<void>> {
    const auto done = co_await std::move(task);
    co_return done ? Result<void>() : done.error();
  };
  constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  const uint64_t handle = made.handle;
  const std::vector<std::pair<const char*, std::function<Task<Result<void>>()>>> calls = {
      {"read", [&] { return plain(operations.read(handle, 0, 2 * client::kChunk, {})); }},
      {"SEEK_DATA", [&] { return plain(operations.seek(handle, 0, SEEK_DATA)); }},
      {"SEEK_HOLE", [&] { return plain(operations.seek(handle, 0, SEEK_HOLE)); }},
      {"punch", [&] { return operations.allocate(handle, kPunch, 10, 2 * client::kChunk); }},
      {"zero", [&] { return operations.allocate(handle, FALLOC_FL_ZERO_RANGE, 0, 10); }},
      {"write",
       [&] {
         return operations.write(handle, {.offset = 0, .from = as_bytes(text), .flags = O_DSYNC});
       }},
  };
  for (const auto& [name, call] : calls) {
    CancellationToken cancel;
    std::optional<Result<void>> ended;
    Gate gate(stage_.world.loop());
    gate.spawn([](Task<Result<void>> it, CancellationToken& by,
                  std::optional<Result<void>>& into) -> Task<void> {
      into.emplace(co_await std::move(it).with_cancellation(by));
    }(call(), cancel, ended));
    pass(2 * kSecond);
    EXPECT_FALSE(ended) << name;
    Error signal = errno_error(EINTR, "the program");
    signal.code = Errc::interrupted;
    cancel.request(std::move(signal));
    pass(kSecond / 10);
    ASSERT_TRUE(ended) << name;
    ASSERT_FALSE(ended->ok()) << name;
    EXPECT_EQ(ended->error().sys, EINTR) << name << ": " << ended->error().message;
  }
  cut_off(false);
  EXPECT_EQ(read(*here_, handle, 0, 2), "xx");
  close(*here_, handle);
}

TEST_F(WritersTest, SynchronousWritesTellAndPagesOfMappingsAreTakenInAnyCase) {
  const Made made = make_failed("a");
  // A failure now is returned at once; earlier errors are still to be reported.
  EXPECT_FALSE(write(*here_, made.handle, 8, "now", O_RDWR | O_DSYNC).ok());
  Operations::Write mapped{
      .offset = 4, .from = as_bytes("page"), .flags = 0, .from_page_cache = true};
  EXPECT_TRUE(run(here_->operations.write(made.handle, std::move(mapped))).ok());
  cut_off(false);
  EXPECT_FALSE(sync(made.handle).ok());
  EXPECT_TRUE(sync(made.handle).ok());
  EXPECT_EQ(read(*here_, made.handle, 0, 8), "latepage");
  EXPECT_TRUE(write(*here_, made.handle, 8, "now", O_RDWR | O_DSYNC).ok());
  close(*here_, made.handle);
}

// Writeback errors of a directory (client/error_seq.h).
TEST_F(WritersTest, ADirectoryHasLateErrorsToo) {
  const auto one = run(here_->operations.open_dir({}, meta::kRoot));
  const auto two = run(here_->operations.open_dir({}, meta::kRoot));
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_TRUE(run(here_->operations.sync_dir(*one)).ok());
  files_.report_lost(meta::kRoot, errno_error(EIO, "names were lost"));
  for (const uint64_t handle : {*one, *two}) {
    EXPECT_EQ(run(here_->operations.sync_dir(handle)).error().sys, EIO);
    EXPECT_TRUE(run(here_->operations.sync_dir(handle)).ok());
  }
}

// fcntl(2) with F_SETFL: each write carries the current flags.
TEST_F(WritersTest, AppendsByTheFlagsOfTheMoment) {
  constexpr uint32_t kAppends = O_WRONLY | O_APPEND;
  const Made ours = make_open(*here_, "log", O_WRONLY);
  ASSERT_EQ(lookup(*there_, "log"), 0);
  const auto theirs = open(*there_, ours.inode, O_WRONLY);
  ASSERT_TRUE(theirs.ok());
  EXPECT_FALSE(theirs->direct);
  for (uint64_t i = 0; i < 5; i++) {
    // Each kernel computes the end of the file from its own writes.
    EXPECT_TRUE(write(*here_, ours.handle, i, "a", kAppends).ok());
    EXPECT_TRUE(write(*there_, theirs->handle, i, "b", kAppends).ok());
  }
  // The cached pages there are wrong: all but our first bytes.
  EXPECT_EQ(here_->kernel.dropped.size(), 4u);
  EXPECT_EQ(there_->kernel.dropped.size(), 5u);
  EXPECT_EQ(here_->kernel.dropped[0], (std::pair<uint64_t, uint64_t>{1, 1}));
  // And removed again.
  EXPECT_TRUE(write(*here_, ours.handle, 0, "X", O_WRONLY).ok());
  close(*here_, ours.handle);
  close(*there_, theirs->handle);
  ASSERT_EQ(lookup(*here_, "log"), 0);
  const auto reader = open(*here_, ours.inode, O_RDONLY);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(read(*here_, reader->handle, 0, 100), "Xbabababab");
}

// Buffered writes go before an append.
TEST_F(WritersTest, AppendsGoBehindWhatWaitsHere) {
  const Made made = make_open(*here_, "log");
  EXPECT_TRUE(write(*here_, made.handle, 0, "waits").ok());
  EXPECT_TRUE(write(*here_, made.handle, 5, "appended", O_RDWR | O_APPEND).ok());
  EXPECT_EQ(read(*here_, made.handle, 0, 100), "waitsappended");
  EXPECT_TRUE(here_->kernel.dropped.empty());
  // While it fails, the end of the file is unknown.
  cut_off(true);
  EXPECT_TRUE(write(*here_, made.handle, 13, "late").ok());
  EXPECT_FALSE(flush(made.handle).ok());
  EXPECT_FALSE(write(*here_, made.handle, 17, "more", O_RDWR | O_APPEND).ok());
  cut_off(false);
  EXPECT_FALSE(sync(made.handle).ok());
  EXPECT_TRUE(write(*here_, made.handle, 17, "more", O_RDWR | O_APPEND).ok());
  EXPECT_EQ(read(*here_, made.handle, 0, 100), "waitsappendedlatemore");
  close(*here_, made.handle);
}

}  // namespace
}  // namespace ff::mount
