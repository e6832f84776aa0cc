// Small new files whose bytes are stored after close(2) has returned: nobody sees them without
// their bytes, and nothing is lost when the client is killed.
#include "storage/client/deferred_closes.h"

#include <fmt/format.h>

#include <cerrno>
#include <map>

#include "storage/client/survivor.h"
#include "storage/meta/garbage_collector.h"
#include "storage/meta/service.h"

namespace ff::client {
namespace {

using meta::InodeId;
using meta::InodeType;

constexpr size_t kSmall = 8 * kKiB;
constexpr uint32_t kMayChange = meta::kMayRead | meta::kMayWrite;

class DeferredClosesTest : public FileSystemWorld {
 protected:
  explicit DeferredClosesTest(uint64_t seed = 5) : FileSystemWorld(seed) {}
  void SetUp() override {
    FileSystemWorld::SetUp();
    first_ = std::make_unique<Survivor>(stage_, "first", Memory(RecoveryTable::bytes_for(0)),
                                        Memory(64 * kMiB), true);
    ASSERT_TRUE(io::ok(run(holder().start(INT64_MAX))));
    auto made = run(
        metadata().create({}, meta::root(), "dir", {.kind = InodeType::directory, .mode = 0755}));
    ASSERT_TRUE(io::ok(made));
    dir_ = made->inode.id;
    for (int i = 0; i < 3; i++) write(fmt::format("first{}", i), "x");
    ASSERT_TRUE(eventually([&] { return holder().delegations() == 1; }));
    write("known", "x");
    pass(3 * kSecond);  // inode numbers, and how much space there is
  }
  FileSystem& holder() { return first_->files; }
  // As a program does it. False: close(2) has stored the bytes.
  bool write(const std::string& name, const std::string& text) {
    auto made = run(holder().create({}, {.id = dir_}, name, {.mode = 0644}));
    EXPECT_TRUE(io::ok(made));
    return made && write_and_close(**made, text);
  }
  bool write_and_close(File& file, const std::string& text) {
    EXPECT_TRUE(io::ok(run(file.write_behind(0, as_bytes(text)))));
    EXPECT_TRUE(io::ok(run(file.flush_on_close(file.cursor()))));
    const auto deferred = run(file.defer_close());
    EXPECT_TRUE(io::ok(deferred));
    if (deferred && *deferred) return true;
    EXPECT_TRUE(io::ok(run(file.close())));
    return false;
  }
  // As another client sees it after its open(2).
  std::string seen(const std::string& name) {
    const auto view = run(metadata().lookup({}, {.id = dir_}, name));
    if (!view) return "(" + view.error().message + ")";
    auto file = open(view->inode.id);
    EXPECT_TRUE(io::ok(file));
    return file ? read(**file, 0, 1 << 20) : "";
  }
  template <class T>
  static int sys_of(const Result<T>& result) {
    return result ? 0 : result.error().sys;
  }
  // Another client writes to the file as soon as it can open it.
  void change_soon(InodeId file, uint64_t offset, std::string_view text) {
    FileRef opened;
    EXPECT_TRUE(eventually([&] {
      if (opened != nullptr) return true;
      auto opening = open(file, kMayChange);
      if (opening) {
        opened = std::move(*opening);
      } else {
        EXPECT_EQ(opening.error().sys, ENOSPC);
      }
      return opened != nullptr;
    }));
    if (opened == nullptr) return;
    EXPECT_TRUE(io::ok(run(opened->write(offset, as_bytes(text)))));
    EXPECT_TRUE(io::ok(run(opened->close())));
  }
  void cut_storage(bool cut) {
    for (const auto& node : cluster_.nodes()) {
      if (cut) stage_.net.block("first", node->name());
      if (!cut) stage_.net.unblock("first", node->name());
    }
  }

  void cut_metadata(bool cut) {
    for (const auto& manager : cluster_.managers()) {
      if (cut) stage_.net.block("first", manager->name());
      if (!cut) stage_.net.unblock("first", manager->name());
    }
  }
  // fsync(2) of the holder's program that opens the file now.
  Result<void> sync_of_newly_opened(InodeId file) {
    auto opened = run(holder().open({}, {.id = file}, kMayChange));
    if (!opened) return std::move(opened).error();
    auto synced = run((*opened)->sync());
    EXPECT_TRUE(io::ok(run((*opened)->close())));
    return synced;
  }

  // A successor of a client: continues what it has left.
  std::vector<std::shared_ptr<File>> restore(Survivor& survivor) {
    EXPECT_TRUE(io::ok(run(survivor.files.start(INT64_MAX))));
    std::optional<Result<FileSystem::Restored>> restored;
    Gate gate(stage_.world.loop());
    gate.spawn([](Task<Result<FileSystem::Restored>> restoring,
                  std::optional<Result<FileSystem::Restored>>& into) -> Task<void> {
      into.emplace(co_await std::move(restoring));
    }(survivor.files.restore(), restored));
    EXPECT_TRUE(eventually([&] { return restored.has_value(); }));
    if (!restored) return {};
    EXPECT_TRUE(io::ok(*restored));
    survivor.table->drop_untaken();
    return *restored ? std::move((*restored)->writers) : std::vector<std::shared_ptr<File>>();
  }
  // The end of a mount.
  Task<void> finish(std::optional<Result<void>>& into) {
    into.emplace(co_await holder().finish_closes());
  }

  void set_full(bool full) {
    for (const auto& node : cluster_.nodes()) {
      node->disk().set_fault(sim::SimOp::write, full ? 1 : 0, ENOSPC);
    }
  }

  std::unique_ptr<Survivor> first_;
  InodeId dir_ = 0;
};

TEST_F(DeferredClosesTest, CloseReturnsAtOnceAndOthersSeeTheBytes) {
  const uint64_t delivered = stage_.net.delivered();
  const int64_t before_ns = stage_.world.now_ns();
  for (int i = 0; i < 20; i++) {
    EXPECT_TRUE(write(fmt::format("f{}", i), text_of(static_cast<uint64_t>(i), kSmall)));
  }
  EXPECT_EQ(stage_.world.now_ns(), before_ns);
  EXPECT_EQ(stage_.net.delivered(), delivered);
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(seen(fmt::format("f{}", i)), text_of(static_cast<uint64_t>(i), kSmall));
  }
  const auto report = fsck();
  EXPECT_EQ(report.problems(), 0u);
  EXPECT_EQ(report.sessions(), 0u);
  EXPECT_EQ(holder().dirty_bytes(), 0u);
  EXPECT_EQ(first_->table->used(), 1u);  // the lease
}

TEST_F(DeferredClosesTest, ItsOwnProgramsReadTheBytes) {
  ASSERT_TRUE(write("f", "text"));
  const auto view = run(holder().metadata().lookup({}, {.id = dir_}, "f"));
  ASSERT_TRUE(io::ok(view));
  EXPECT_EQ(view->inode.length, 4u);
  auto file = run(holder().open({}, {.id = view->inode.id}, meta::kMayRead));
  ASSERT_TRUE(io::ok(file));
  EXPECT_EQ(read(**file, 0, 100), "text");
}

TEST_F(DeferredClosesTest, NobodySeesAFileWhoseBytesStorageHasNotTakenYet) {
  cut_storage(true);
  ASSERT_TRUE(write("f", "text"));
  std::optional<Result<meta::InodeView>> found;
  Gate gate(stage_.world.loop());
  gate.spawn([](Task<Result<meta::InodeView>> looking,
                std::optional<Result<meta::InodeView>>& into) -> Task<void> {
    into.emplace(co_await std::move(looking));
  }(metadata().lookup({}, {.id = dir_}, "f"), found));
  pass(8 * kSecond);
  EXPECT_FALSE(found);
  cut_storage(false);
  EXPECT_TRUE(eventually([&] { return found.has_value(); }));
  ASSERT_TRUE(io::ok(*found));
  EXPECT_EQ((*found)->inode.length, 4u);
  EXPECT_EQ(seen("f"), "text");
}

// Their inode numbers stay granted, however many are granted meanwhile.
TEST_F(DeferredClosesTest, ThousandsOfChangesMayWaitForOneFile) {
  cut_storage(true);
  ASSERT_TRUE(write("f", "text"));
  constexpr int kFiles = 3000;
  for (int i = 0; i < kFiles; i++) {
    auto made =
        run(holder().metadata().create({}, {.id = dir_}, fmt::format("n{}", i), {.mode = 0644}));
    ASSERT_TRUE(io::ok(made));
    if (i % 100 == 99) pass(50 * kMillisecond);
  }
  EXPECT_GT(holder().pending_changes(), static_cast<uint64_t>(kFiles));
  cut_storage(false);
  ASSERT_TRUE(eventually([&] { return holder().pending_changes() == 0; }));
  ASSERT_TRUE(io::ok(run(holder().metadata().sync())));
  for (const int i : {0, 1, kFiles / 2, kFiles - 1}) EXPECT_EQ(seen(fmt::format("n{}", i)), "");
  EXPECT_EQ(seen("f"), "text");
  EXPECT_EQ(fsck().problems(), 0u);
}

// As tar does it: writes, sets the times, closes.
TEST_F(DeferredClosesTest, TimesThatAProgramSetsStayAndWaitForNoBytes) {
  constexpr int64_t kTime = 1'000'000'000;
  const uint64_t delivered = stage_.net.delivered();
  auto made = run(holder().create({}, {.id = dir_}, "f", {.mode = 0644}));
  ASSERT_TRUE(io::ok(made));
  File& file = **made;
  ASSERT_TRUE(io::ok(run(file.write_behind(0, as_bytes(std::string_view("text"))))));
  ASSERT_TRUE(io::ok(run(file.publish_times())));
  auto set = run(holder().metadata().set_attributes({}, file.ref(), {.mtime_ns = kTime}));
  ASSERT_TRUE(io::ok(set));
  EXPECT_EQ(stage_.net.delivered(), delivered);
  // The bytes are stored before close(2), which reports again.
  ASSERT_TRUE(io::ok(run(holder().metadata().sync())));
  EXPECT_EQ(holder().dirty_bytes(), 0u);
  ASSERT_TRUE(io::ok(run(file.flush_on_close(file.cursor()))));
  const auto deferred = run(file.defer_close());
  ASSERT_TRUE(io::ok(deferred));
  if (!*deferred) {
    ASSERT_TRUE(io::ok(run(file.close())));
  }
  EXPECT_EQ(seen("f"), "text");
  EXPECT_EQ(run(metadata().lookup({}, {.id = dir_}, "f"))->inode.mtime_ns, kTime);
  // A later write counts again.
  auto again = run(holder().open({}, {.id = file.inode().id}, meta::kMayRead | meta::kMayWrite));
  ASSERT_TRUE(io::ok(again));
  ASSERT_TRUE(io::ok(run((*again)->write(0, as_bytes(std::string_view("more"))))));
  ASSERT_TRUE(io::ok(run((*again)->close())));
  EXPECT_GT(run(metadata().lookup({}, {.id = dir_}, "f"))->inode.mtime_ns, kTime);
}

TEST_F(DeferredClosesTest, AnFsyncOfTheDirectoryWaitsForTheBytes) {
  ASSERT_TRUE(write("f", "text"));
  EXPECT_GT(holder().dirty_bytes(), 0u);
  ASSERT_TRUE(io::ok(run(holder().metadata().sync())));
  EXPECT_EQ(holder().dirty_bytes(), 0u);
}

TEST_F(DeferredClosesTest, ARemovedFileIsNotWritten) {
  const size_t before = stored();
  for (int i = 0; i < 5; i++) {
    const std::string name = fmt::format("f{}", i);
    ASSERT_TRUE(write(name, text_of(1, kSmall)));
    auto removed = run(holder().metadata().unlink({}, {.id = dir_}, name, std::nullopt));
    ASSERT_TRUE(io::ok(removed));
    holder().drop_unstored(removed->inode.id);
  }
  ASSERT_TRUE(io::ok(run(holder().metadata().sync())));
  EXPECT_EQ(stored(), before);
  EXPECT_EQ(fsck().problems(), 0u);
}

TEST_F(DeferredClosesTest, OnlySmallFilesAreDeferred) {
  EXPECT_FALSE(write("large", text_of(1, DeferredCloses::kFileMax + 1)));
  EXPECT_TRUE(write("small", text_of(1, DeferredCloses::kFileMax)));
  EXPECT_EQ(seen("large").size(), DeferredCloses::kFileMax + 1);
  // The directory was given back.
  EXPECT_FALSE(write("plain", "x"));
}

// A bounded part of the memory for writes, which has 64 buffers here.
TEST_F(DeferredClosesTest, ManyAreDeferredAtMostAndAllAreWritten) {
  size_t deferred = 0;
  for (int i = 0; i < 100; i++) deferred += write(fmt::format("f{}", i), "x") ? 1 : 0;
  EXPECT_GE(deferred, 20u);
  EXPECT_LT(deferred, 100u);
  for (int i = 0; i < 100; i++) EXPECT_EQ(seen(fmt::format("f{}", i)), "x");
}

TEST_F(DeferredClosesTest, EachFileThatItCreatesByItselfIsDeferred) {
  pass(60 * kSecond);  // the free space has changed since
  EXPECT_TRUE(write("f", "x"));
  // Also those of a client that has no delegation yet.
  Survivor other(stage_, "other", Memory(RecoveryTable::bytes_for(0)), Memory(64 * kMiB), true);
  ASSERT_TRUE(io::ok(run(other.files.start(INT64_MAX))));
  const auto dir = run(other.files.metadata().create({}, meta::root(), "other",
                                                     {.kind = InodeType::directory, .mode = 0755}));
  ASSERT_TRUE(io::ok(dir));
  int alone = 0;
  for (int i = 0; i < 50; i++) {
    const int64_t before_ns = stage_.world.now_ns();
    auto made =
        run(other.files.create({}, {.id = dir->inode.id}, fmt::format("f{}", i), {.mode = 0644}));
    ASSERT_TRUE(io::ok(made));
    const bool by_itself = stage_.world.now_ns() == before_ns;
    EXPECT_EQ(write_and_close(**made, "x"), by_itself) << i;
    alone += by_itself ? 1 : 0;
    pass(kMillisecond);
  }
  EXPECT_GT(alone, 30);
}

// The lease ends while storage is out of reach: the bytes are stored later.
TEST_F(DeferredClosesTest, ALostLeaseDoesNotLoseBytesOfAFileThatTheServersKnow) {
  auto made = run(holder().create({}, {.id = dir_}, "f", {.mode = 0644}));
  ASSERT_TRUE(io::ok(made));
  ASSERT_TRUE(io::ok(run(holder().metadata().sync())));
  cut_storage(true);
  ASSERT_TRUE(io::ok(run((*made)->write_behind(0, as_bytes(std::string_view("text"))))));
  ASSERT_TRUE(io::ok(run((*made)->flush_on_close((*made)->cursor()))));
  ASSERT_TRUE(*run((*made)->defer_close()));
  cut_metadata(true);
  EXPECT_EQ(seen("f"), "");
  cut_metadata(false);
  cut_storage(false);
  EXPECT_TRUE(eventually([&] { return seen("f") == "text"; }));
  EXPECT_EQ(fsck().problems(), 0u);
}

// The disks become full between close(2) and the moment at which the bytes are stored.
class FullDisksTest : public DeferredClosesTest {
 protected:
  void SetUp() override {
    DeferredClosesTest::SetUp();
    set_full(true);
    ASSERT_TRUE(write("f", text_));
    auto made = run(holder().metadata().create({}, {.id = dir_}, "other", {.mode = 0644}));
    ASSERT_TRUE(io::ok(made));
  }
  InodeId id() { return run(metadata().lookup({}, {.id = dir_}, "f"))->inode.id; }
  const std::string text_ = text_of(1, 50 * kKiB);
};

TEST_F(FullDisksTest, TheBytesAreKeptUntilThereIsRoom) {
  const int64_t before_ns = stage_.world.now_ns();
  EXPECT_EQ(seen("other"), "");
  EXPECT_LT(stage_.world.now_ns() - before_ns, 5 * kSecond);  // other changes do not wait
  EXPECT_EQ(seen("f"), "");
  EXPECT_EQ(holder().waiting_files(), 1u);
  const auto opened = run(holder().open({}, {.id = id()}, meta::kMayRead));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().sys, ENOSPC);
  EXPECT_EQ(run(holder().stat({.id = id()}))->inode.length, text_.size());
  constexpr int64_t kTime = 1'000'000'000;
  ASSERT_TRUE(io::ok(run(metadata().set_attributes({}, {.id = id()}, {.mtime_ns = kTime}))));
  pass(100 * kSecond);
  set_full(false);
  EXPECT_TRUE(eventually([&] { return seen("f") == text_; }));
  EXPECT_EQ(run(metadata().lookup({}, {.id = dir_}, "f"))->inode.mtime_ns, kTime);
  EXPECT_EQ(holder().waiting_files(), 0u);
  EXPECT_EQ(holder().dirty_bytes(), 0u);
  pass(2 * kSecond);
  EXPECT_EQ(fsck().problems(), 0u);
  EXPECT_EQ(fsck().sessions(), 0u);
}

// The bytes that wait would undo what another client has written since.
TEST_F(FullDisksTest, OthersWriteToTheFileWhenTheBytesAreStored) {
  pass(3 * kSecond);
  ASSERT_EQ(holder().waiting_files(), 1u);
  const InodeId file = id();
  set_full(false);
  change_soon(file, 10, "newer");
  EXPECT_TRUE(eventually([&] { return holder().waiting_files() == 0; }));
  std::string expected = text_;
  expected.replace(10, 5, "newer");
  EXPECT_EQ(seen("f"), expected);
  pass(2 * kSecond);
  EXPECT_EQ(fsck().problems(), 0u);
  EXPECT_EQ(fsck().sessions(), 0u);
}

// The metadata server has not heard from the client for so long that it has ended its sessions.
TEST_F(FullDisksTest, BytesOfAnEndedSessionUndoNothingThatOthersHaveWritten) {
  pass(3 * kSecond);
  ASSERT_EQ(holder().waiting_files(), 1u);
  const InodeId file = id();
  cut_storage(true);
  cut_metadata(true);
  set_full(false);
  pass(meta::kClientTimeoutNs + 60 * kSecond);
  change_soon(file, 0, "newer");
  cut_metadata(false);
  cut_storage(false);
  EXPECT_TRUE(eventually([&] { return holder().waiting_files() == 0; }));
  EXPECT_EQ(seen("f"), "newer");
  const auto synced = sync_of_newly_opened(file);
  ASSERT_FALSE(synced.ok());
  EXPECT_NE(synced.error().message.find("ended the session"), std::string::npos)
      << synced.error().message;
  pass(2 * kSecond);
  EXPECT_EQ(holder().dirty_bytes(), 0u);
  EXPECT_EQ(fsck().problems(), 0u);
  EXPECT_EQ(fsck().sessions(), 0u);
}

// It still has the file open.
TEST_F(FullDisksTest, OthersDoNotWriteWhileTheWriterGoesOn) {
  auto made = run(holder().create({}, {.id = dir_}, "open", {.mode = 0644}));
  ASSERT_TRUE(io::ok(made));
  ASSERT_TRUE(io::ok(run((*made)->write_behind(0, as_bytes(text_)))));
  ASSERT_TRUE(io::ok(run((*made)->flush_on_close((*made)->cursor()))));  // of a dup(2)
  pass(3 * kSecond);
  ASSERT_EQ(holder().waiting_files(), 2u);
  const auto more = as_bytes(std::string_view("more"));
  for (int i = 0; i < 2; i++) {
    ASSERT_TRUE(io::ok(run((*made)->write_behind(0, more, nullptr, true))));
    (void)run((*made)->refresh());  // reports again: in a batch, then to servers that know it
    pass(kSecond);
    EXPECT_EQ(sys_of(open((*made)->inode().id, kMayChange)), ENOSPC) << i;
    EXPECT_EQ(seen("open"), "");
  }
  (void)run((*made)->close());
}

TEST_F(FullDisksTest, OthersTruncateTheFileWhenTheBytesAreStored) {
  pass(3 * kSecond);
  const InodeId file = id();
  const auto cut = [&] { return run(metadata().truncate({}, {.id = file}, 5, std::nullopt)); };
  EXPECT_EQ(sys_of(cut()), ENOSPC);
  EXPECT_EQ(sys_of(run(files_.create({}, {.id = dir_}, "f", {.exclusive = false}))), ENOSPC);
  set_full(false);
  EXPECT_TRUE(eventually([&] { return cut().ok(); }));
  EXPECT_EQ(holder().waiting_files(), 0u);
  EXPECT_EQ(seen("f"), text_.substr(0, 5));
}

// It has been open for writing, and others know it already.
TEST_F(DeferredClosesTest, OthersWriteToAFileWhenASuccessorHasStoredItsBytes) {
  auto made = run(holder().create({}, {.id = dir_}, "f", {.mode = 0644}));
  ASSERT_TRUE(io::ok(made));
  EXPECT_EQ(seen("f"), "");
  set_full(true);
  ASSERT_TRUE(io::ok(run((*made)->write_behind(0, as_bytes(std::string_view("old text"))))));
  Survivor second(stage_, "second", first_->records, first_->data, true);
  cut_off(cluster_, "first");
  for (const auto& file : restore(second)) EXPECT_FALSE(run(file->close()).ok());
  ASSERT_EQ(second.files.waiting_files(), 1u);
  pass(kSecond);
  EXPECT_EQ(sys_of(open((*made)->inode().id, kMayChange)), ENOSPC);
  set_full(false);
  change_soon((*made)->inode().id, 0, "new");
  EXPECT_TRUE(eventually([&] { return second.files.waiting_files() == 0; }));
  EXPECT_EQ(seen("f"), "new text");
}

TEST_F(FullDisksTest, WhoHasTheFileOpenGetsTheErrorFromFsync) {
  pass(3 * kSecond);
  auto made = run(holder().create({}, {.id = dir_}, "open", {.mode = 0644}));
  ASSERT_TRUE(io::ok(made));
  ASSERT_TRUE(io::ok(run((*made)->write_behind(0, as_bytes(text_)))));
  const auto closed = run((*made)->flush_on_close((*made)->cursor()));
  ASSERT_FALSE(closed.ok());  // none is deferred any more
  EXPECT_EQ(closed.error().sys, ENOSPC);
  const auto synced = run((*made)->sync());
  ASSERT_FALSE(synced.ok());
  EXPECT_EQ(synced.error().sys, ENOSPC);
  (void)run((*made)->close());
}

TEST_F(FullDisksTest, ARemovedFileNeedsNoRoom) {
  pass(3 * kSecond);
  ASSERT_EQ(holder().waiting_files(), 1u);
  ASSERT_TRUE(io::ok(run(metadata().unlink({}, {.id = dir_}, "f", std::nullopt))));
  EXPECT_TRUE(eventually([&] { return holder().waiting_files() == 0; }));
  EXPECT_EQ(holder().dirty_bytes(), 0u);
}

// The predecessor had not tried to store the bytes yet, or kept them already.
class FullSuccessorTest : public FullDisksTest, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Seconds, FullSuccessorTest, testing::Values(0, 3));

TEST_P(FullSuccessorTest, ItServesAndKeepsTheBytes) {
  pass(GetParam() * kSecond);
  Survivor second(stage_, "second", first_->records, first_->data, true);
  cut_off(cluster_, "first");
  const int64_t before_ns = stage_.world.now_ns();
  for (const auto& file : restore(second)) (void)run(file->close());
  EXPECT_LT(stage_.world.now_ns() - before_ns, 5 * kSecond);
  EXPECT_EQ(second.files.waiting_files(), 1u);
  ASSERT_TRUE(io::ok(run(second.files.metadata().create({}, {.id = dir_}, "new", {}))));
  pass(5 * kSecond);
  EXPECT_EQ(seen("f"), "");
  EXPECT_EQ(sys_of(run(second.files.open({}, {.id = id()}, meta::kMayRead))), ENOSPC);
  EXPECT_EQ(sys_of(open(id(), kMayChange)), ENOSPC);
  EXPECT_EQ(run(second.files.stat({.id = id()}))->inode.length, text_.size());
  // It is killed, too.
  Survivor third(stage_, "third", second.records, second.data, true);
  cut_off(cluster_, "second");
  for (const auto& file : restore(third)) (void)run(file->close());
  EXPECT_EQ(third.files.waiting_files(), 1u);
  set_full(false);
  EXPECT_TRUE(eventually([&] { return seen("f") == text_; }));
  EXPECT_TRUE(eventually([&] { return third.files.waiting_files() == 0; }));
  EXPECT_EQ(third.files.dirty_bytes(), 0u);
  pass(2 * kSecond);
  EXPECT_EQ(fsck().problems(), 0u);
  EXPECT_EQ(fsck().sessions(), 0u);
}

TEST_F(FullDisksTest, TimesThatAProgramHasSetStay) {
  const InodeId file = run(holder().metadata().lookup({}, {.id = dir_}, "f"))->inode.id;
  ASSERT_TRUE(io::ok(run(holder().metadata().set_attributes({}, {.id = file}, {.mtime_ns = 5}))));
  pass(3 * kSecond);
  ASSERT_EQ(holder().waiting_files(), 1u);
  set_full(false);
  EXPECT_TRUE(eventually([&] { return seen("f") == text_; }));
  EXPECT_EQ(run(metadata().stat({.id = file}, false))->inode.mtime_ns, 5);
}

TEST_F(FullDisksTest, AnUnmountWaitsForRoom) {
  std::optional<Result<void>> finished;
  Gate gate(stage_.world.loop());
  gate.spawn(finish(finished));
  pass(10 * kSecond);
  EXPECT_FALSE(finished);
  set_full(false);
  EXPECT_TRUE(eventually([&] { return finished.has_value(); }));
  EXPECT_TRUE(io::ok(*finished));
  EXPECT_EQ(seen("f"), text_);
  EXPECT_EQ(fsck().problems(), 0u);
}

TEST_F(FullDisksTest, AnUnmountNamesTheFilesWhoseBytesItDrops) {
  meta::MetaClient::Rename how{
      .from_dir = {.id = dir_}, .from = "f", .to_dir = {.id = dir_}, .to = "g"};
  ASSERT_TRUE(io::ok(run(holder().metadata().rename({}, std::move(how)))));
  std::optional<Result<void>> finished;
  Gate gate(stage_.world.loop());
  gate.spawn(finish(finished));
  pass(FileSystem::kUnmountNs + kSecond);
  ASSERT_TRUE(finished);
  ASSERT_FALSE(finished->ok());
  EXPECT_EQ(finished->error().code, Errc::disk_full);
  EXPECT_NE(finished->error().message.find("(1): /dir/g"), std::string::npos)
      << finished->error().message;
  run(holder().close());
  const int64_t before_ns = stage_.world.now_ns();
  EXPECT_EQ(seen("g"), "");
  EXPECT_LT(stage_.world.now_ns() - before_ns, kSecond);  // nobody holds the directory
  const auto left = run(metadata().lookup({}, {.id = dir_}, "g"));
  EXPECT_TRUE(io::ok(open(left->inode.id, kMayChange)));
}

TEST_F(DeferredClosesTest, AnUnmountWithoutStorageSaysWhatIsLost) {
  cut_storage(true);
  ASSERT_TRUE(write("f", "text"));
  std::optional<Result<void>> finished;
  Gate gate(stage_.world.loop());
  gate.spawn(finish(finished));
  pass(FileSystem::kUnmountNs + 2 * kSecond);
  ASSERT_TRUE(finished);
  ASSERT_FALSE(finished->ok());
  EXPECT_EQ(finished->error().code, Errc::unreachable);
  EXPECT_NE(finished->error().message.find(": f"), std::string::npos) << finished->error().message;
  run(holder().close());
}

TEST_F(FullDisksTest, ASuccessorStoresTheBytes) {
  pass(3 * kSecond);
  ASSERT_EQ(holder().waiting_files(), 1u);
  Survivor second(stage_, "second", first_->records, first_->data, true);
  cut_off(cluster_, "first");
  set_full(false);
  ASSERT_TRUE(io::ok(run(second.files.start(INT64_MAX))));
  auto restored = run(second.files.restore());
  ASSERT_TRUE(io::ok(restored));
  for (const auto& file : restored->writers) EXPECT_TRUE(io::ok(run(file->close())));
  EXPECT_EQ(seen("f"), text_);
}

// The successor cannot store the bytes before its lease ends, since others ask for the directory.
TEST_F(DeferredClosesTest, ASuccessorSendsNoLengthBeforeTheBytes) {
  cut_storage(true);
  ASSERT_TRUE(write("f", "text"));
  Survivor second(stage_, "second", first_->records, first_->data, true);
  cut_off(cluster_, "first");
  for (const auto& node : cluster_.nodes()) stage_.net.block("second", node->name());
  ASSERT_TRUE(io::ok(run(second.files.start(INT64_MAX))));
  std::optional<Result<FileSystem::Restored>> restored;
  Gate gate(stage_.world.loop());
  gate.spawn([](Task<Result<FileSystem::Restored>> restoring,
                std::optional<Result<FileSystem::Restored>>& into) -> Task<void> {
    into.emplace(co_await std::move(restoring));
  }(second.files.restore(), restored));
  EXPECT_EQ(seen("f"), "");  // as of a writer that has not closed it yet
  EXPECT_FALSE(restored);
  for (const auto& node : cluster_.nodes()) stage_.net.unblock("second", node->name());
  ASSERT_TRUE(eventually([&] { return restored.has_value(); }));
  ASSERT_TRUE(io::ok(*restored));
  // Their length reports were lost with the lease, which is an error.
  for (const auto& file : (*restored)->writers) EXPECT_FALSE(run(file->close()).ok());
  EXPECT_EQ(seen("f"), "text");
  EXPECT_EQ(fsck().problems(), 0u);
}

// As cp -p and tar do it.
TEST_F(DeferredClosesTest, TimesThatAProgramHasSetStayAfterARestart) {
  cut_storage(true);
  ASSERT_TRUE(write("f", "text"));
  const InodeId file = run(holder().metadata().lookup({}, {.id = dir_}, "f"))->inode.id;
  ASSERT_TRUE(io::ok(run(holder().metadata().set_attributes({}, {.id = file}, {.mtime_ns = 5}))));
  Survivor second(stage_, "second", first_->records, first_->data, true);
  cut_off(cluster_, "first");
  for (const auto& one : restore(second)) EXPECT_TRUE(io::ok(run(one->close())));
  EXPECT_EQ(seen("f"), "text");
  EXPECT_EQ(run(metadata().stat({.id = file}, false))->inode.mtime_ns, 5);
}

constexpr int kKilledAt = 16;

class KilledWriterTest : public DeferredClosesTest, public testing::WithParamInterface<int> {
 protected:
  KilledWriterTest() : DeferredClosesTest(static_cast<uint64_t>(GetParam()) + 1) {}
};
INSTANTIATE_TEST_SUITE_P(AtEachStep, KilledWriterTest, testing::Range(0, kKilledAt));

TEST_P(KilledWriterTest, TheSuccessorStoresTheBytes) {
  std::map<std::string, std::string> expected;
  for (int i = 0; i <= GetParam(); i++) {
    const std::string name = fmt::format("f{}", i);
    expected[name] = text_of(static_cast<uint64_t>(i), kSmall);
    ASSERT_TRUE(write(name, expected[name]));
    if (i % 3 == 2) {
      auto removed = run(holder().metadata().unlink({}, {.id = dir_}, name, std::nullopt));
      ASSERT_TRUE(io::ok(removed));
      holder().drop_unstored(removed->inode.id);
      expected.erase(name);
    }
    if (i < GetParam()) pass(600 * kMicrosecond);
  }
  Survivor second(stage_, "second", first_->records, first_->data, true);
  cut_off(cluster_, "first");
  ASSERT_TRUE(io::ok(run(second.files.start(INT64_MAX))));
  auto restored = run(second.files.restore());
  ASSERT_TRUE(io::ok(restored));
  for (const auto& file : restored->writers) EXPECT_TRUE(io::ok(run(file->close())));
  for (const auto& [name, text] : expected) EXPECT_EQ(seen(name), text) << name;
  EXPECT_EQ(fsck().problems(), 0u);
  EXPECT_EQ(fsck().sessions(), 0u);
}

}  // namespace
}  // namespace ff::client
