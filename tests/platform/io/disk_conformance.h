// The contract of Disk and IoQueue (io/disk.h) as one test suite. A test program includes this once
// and instantiates DiskConformance with factories of its disks.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "platform/io/buffers.h"
#include "platform/io/disk.h"
#include "platform/io/files.h"
#include "platform/io/test_bytes.h"

namespace ff::io {

// One disk with an empty directory to work in.
class TestedDisk {
 public:
  virtual ~TestedDisk() = default;
  virtual Disk& disk() = 0;
  virtual std::string dir() = 0;
  // Null if this machine does not support that kind of queue.
  virtual std::unique_ptr<IoQueue> make_queue(QueueOptions options) = 0;
  // The loop of the queues under test; null if they use run().
  virtual Loop* loop() { return nullptr; }
  // Whether the file system supports read_cached() for a range that was just read.
  virtual bool has_cache() = 0;
  // Whether paths lead through symbolic links.
  virtual bool follows_links() { return true; }
  // Whether the disk supports next_data() and punch_hole().
  virtual bool has_holes() { return true; }
};

struct DiskMaker {
  std::string name;
  std::function<std::unique_ptr<TestedDisk>()> make;
};

class DiskConformance : public testing::TestWithParam<DiskMaker> {
 protected:
  void SetUp() override {
    tested_ = GetParam().make();
    queue_ = tested_->make_queue({.depth = 16, .loop = tested_->loop()});
    if (!queue_) GTEST_SKIP() << "this kind of queue is not offered on this machine";
  }
  Disk& disk() { return tested_->disk(); }
  IoQueue& queue() { return *queue_; }
  std::string at(const std::string& name) { return join(tested_->dir(), name); }

  std::unique_ptr<File> open(const std::string& name, OpenOptions options) {
    auto file = disk().open(at(name), options);
    EXPECT_TRUE(ok(file));
    return file ? std::move(*file) : nullptr;
  }
  std::unique_ptr<File> make(const std::string& name, bool direct = false) {
    return open(name, {.access = AccessMode::read_write, .create = true, .direct = direct});
  }
  void drain() {
    if (tested_->loop() != nullptr) return run_task(*tested_->loop(), drained());
    while (queue().in_flight() > 0) queue().run();
  }
  Task<void> drained() {
    constexpr int64_t kLookAgainNs = 100'000;
    while (queue().in_flight() > 0) (void)co_await sleep_for(*tested_->loop(), kLookAgainNs);
  }

  // Lets the loop process earlier wake-ups.
  Task<void> pause() { (void)co_await sleep_for(*tested_->loop(), 1); }

  std::unique_ptr<TestedDisk> tested_;
  std::unique_ptr<IoQueue> queue_;
};

inline void PrintTo(const DiskMaker& maker, std::ostream* out) { *out << maker.name; }

inline std::string maker_name(const testing::TestParamInfo<DiskMaker>& info) {
  return info.param.name;
}

// Files.

TEST_P(DiskConformance, OpenTellsWhyItFails) {
  EXPECT_EQ(code_of(disk().open(at("none"), {})), Errc::not_found);
  EXPECT_EQ(code_of(disk().open(at("none/below"), {.create = true})), Errc::not_found);
  const OpenOptions exclusive{.access = AccessMode::write, .create = true, .exclusive = true};
  EXPECT_TRUE(ok(disk().open(at("file"), exclusive)));
  EXPECT_EQ(code_of(disk().open(at("file"), exclusive)), Errc::exists);
  EXPECT_EQ(code_of(disk().open(at("file/below"), {})), Errc::failed);
  ASSERT_TRUE(ok(disk().make_dir(at("dir"), 0755)));
  EXPECT_EQ(code_of(disk().open(at("dir"), {})), Errc::failed);
  ASSERT_TRUE(ok(disk().make_symlink("file", at("link"))));
  EXPECT_EQ(disk().open(at("link"), {}).ok(), tested_->follows_links());
  EXPECT_EQ(code_of(disk().open(at("link"), {.no_follow = true})), Errc::failed);
  EXPECT_EQ(code_of(disk().open(at("link"), exclusive)), Errc::exists);
  const auto error = disk().open(at("none"), {});
  EXPECT_NE(error.error().message.find(at("none")), std::string::npos);
}

TEST_P(DiskConformance, OpenCreatesWithModeAndTruncates) {
  ASSERT_TRUE(
      ok(disk().open(at("file"), {.access = AccessMode::write, .create = true, .mode = 0700})));
  EXPECT_EQ(disk().info(at("file"))->mode, 0700u);
  ASSERT_TRUE(ok(put(disk(), at("file"), "content")));
  ASSERT_TRUE(ok(disk().open(at("file"), {.access = AccessMode::write, .create = true})));
  EXPECT_EQ(get(disk(), at("file")), "content");
  ASSERT_TRUE(ok(disk().open(at("file"), {.access = AccessMode::write, .truncate = true})));
  EXPECT_EQ(get(disk(), at("file")), "");
}

TEST_P(DiskConformance, ReadsAreShortOnlyAtTheEnd) {
  ASSERT_TRUE(ok(put(disk(), at("file"), "0123456789")));
  const auto file = open("file", {});
  std::vector<std::byte> into(8);
  EXPECT_EQ(*file->read_at(into, 1), 8u);
  EXPECT_EQ(as_text(into), "12345678");
  EXPECT_EQ(*file->read_at(into, 7), 3u);
  EXPECT_EQ(as_text(ByteView(into).first(3)), "789");
  EXPECT_EQ(*file->read_at(into, 10), 0u);
  EXPECT_EQ(*file->read_at(into, 1000), 0u);
}

TEST_P(DiskConformance, LargeUnalignedBufferedTransfers) {
  const auto bytes = random_bytes(5 * kMiB + 7, 1);
  const auto file = make("file");
  ASSERT_TRUE(ok(file->write_at(bytes, 3)));
  std::vector<std::byte> into(bytes.size() + 100);
  ASSERT_EQ(*file->read_at(into, 3), bytes.size());
  into.resize(bytes.size());
  EXPECT_TRUE(into == bytes);
  EXPECT_EQ(file->info()->size, bytes.size() + 3);
}

TEST_P(DiskConformance, AccessIsKept) {
  const auto bytes = random_bytes(10, 1);
  std::vector<std::byte> into(10);
  ASSERT_TRUE(ok(put(disk(), at("file"), "text")));
  const auto reader = open("file", {.access = AccessMode::read});
  EXPECT_EQ(code_of(reader->write_at(bytes, 0)), Errc::failed);
  EXPECT_EQ(code_of(reader->truncate(0)), Errc::failed);
  const auto writer = open("file", {.access = AccessMode::write});
  EXPECT_EQ(code_of(writer->read_at(into, 0)), Errc::failed);
  EXPECT_EQ(get(disk(), at("file")), "text");
}

TEST_P(DiskConformance, TruncateCutsAndGrowsWithZeros) {
  ASSERT_TRUE(ok(put(disk(), at("file"), std::string(10000, 'x'))));
  const auto file = make("file");
  ASSERT_TRUE(ok(file->truncate(5000)));
  EXPECT_EQ(file->info()->size, 5000u);
  ASSERT_TRUE(ok(file->truncate(9000)));
  EXPECT_EQ(get(disk(), at("file")), std::string(5000, 'x') + std::string(4000, '\0'));
}

TEST_P(DiskConformance, ReserveKeepsTheSize) {
  const auto file = make("file");
  ASSERT_TRUE(ok(file->write_at(as_bytes("text"), 0)));
  ASSERT_TRUE(ok(file->reserve(0, kMiB)));
  ASSERT_TRUE(ok(file->reserve(0, 0)));
  EXPECT_EQ(file->info()->size, 4u);
  EXPECT_EQ(get(disk(), at("file")), "text");
}

TEST_P(DiskConformance, PunchedSpaceIsGivenBackAndReadsAsZeros) {
  if (!tested_->has_holes()) GTEST_SKIP() << "this disk gives no space back";
  const auto file = make("file");
  const auto bytes = random_bytes(256 * kKiB, 1);
  ASSERT_TRUE(ok(file->write_at(bytes, 0)));
  ASSERT_TRUE(ok(file->sync()));
  const uint64_t before = file->info()->allocated;
  const uint64_t begin = 64 * kKiB + 100;
  const uint64_t end = 192 * kKiB + 7;
  ASSERT_TRUE(ok(file->punch_hole(begin, end - begin)));
  ASSERT_TRUE(ok(file->punch_hole(0, 0)));
  ASSERT_TRUE(ok(file->punch_hole(kGiB, kMiB)));  // behind the end
  ASSERT_TRUE(ok(file->sync()));
  EXPECT_EQ(file->info()->size, bytes.size());
  EXPECT_LE(file->info()->allocated + 96 * kKiB, before);
  auto expected = bytes;
  std::fill(expected.begin() + begin, expected.begin() + end, std::byte{0});
  EXPECT_TRUE(get(disk(), at("file")) == as_text(expected));
  ASSERT_TRUE(ok(file->reserve(32 * kKiB, 192 * kKiB)));
  EXPECT_GE(file->info()->allocated + 32 * kKiB, before);
  EXPECT_TRUE(get(disk(), at("file")) == as_text(expected));
  EXPECT_FALSE(open("file", {.access = AccessMode::read})->punch_hole(0, kMiB).ok());
}

TEST_P(DiskConformance, SparseFilesTellWhereTheirDataIs) {
  if (!tested_->has_holes()) GTEST_SKIP() << "this disk does not tell what is stored";
  const auto file = make("file");
  ASSERT_TRUE(ok(file->truncate(kGiB)));
  const auto bytes = random_bytes(64 * kKiB, 1);
  ASSERT_TRUE(ok(file->write_at(bytes, 8 * kMiB)));
  ASSERT_TRUE(ok(file->write_at(bytes, 512 * kMiB)));
  ASSERT_TRUE(ok(file->sync()));
  // Extents may be larger than the written ranges if the file system allocates larger units.
  uint64_t stored = 0;
  bool first = false;
  bool second = false;
  uint64_t from = 0;
  for (;;) {
    const DataRange range = *file->next_data(from);
    if (range.begin == range.end) {
      EXPECT_EQ(range.begin, kGiB);
      break;
    }
    ASSERT_GT(range.end, from);
    stored += range.end - range.begin;
    first |= range.begin <= 8 * kMiB && range.end >= 8 * kMiB + bytes.size();
    second |= range.begin <= 512 * kMiB && range.end >= 512 * kMiB + bytes.size();
    from = range.end;
  }
  EXPECT_TRUE(first && second);
  EXPECT_LT(stored, kGiB / 2);
  EXPECT_LT(file->info()->allocated, kGiB / 2);
  const DataRange middle = *file->next_data(8 * kMiB + 1000);
  EXPECT_LE(middle.begin, 8 * kMiB + 1000);
  EXPECT_GE(middle.end, 8 * kMiB + bytes.size());
  EXPECT_EQ(file->next_data(2 * kGiB)->begin, kGiB);
  std::vector<std::byte> into(10);
  EXPECT_EQ(*file->read_at(into, kGiB - 4), 4u);
}

TEST_P(DiskConformance, CachedReadsGiveTheContentOrNothing) {
  const auto bytes = random_bytes(128 * kKiB, 1);
  for (const bool direct : {false, true}) {
    SCOPED_TRACE(direct ? "direct" : "buffered");
    ASSERT_TRUE(ok(put(disk(), at("file"), as_text(bytes))));
    ASSERT_EQ(get(disk(), at("file")).size(), bytes.size());  // now in memory
    const auto file = open("file", {.direct = direct});
    std::vector<std::byte> into(50000);
    bool found = false;
    for (int i = 0; i < 50 && !found; ++i) {
      const auto cached = file->read_cached(into, 777);
      ASSERT_TRUE(ok(cached));
      found = *cached;
    }
    if (found) {
      EXPECT_EQ(as_text(into), as_text(ByteView(bytes).subspan(777, into.size())));
    }
    EXPECT_EQ(found, tested_->has_cache());
    EXPECT_FALSE(*file->read_cached(into, bytes.size() - 10));  // ends before
  }
}

TEST_P(DiskConformance, LocksExcludeOtherHandles) {
  auto first = make("file");
  const auto second = make("file");
  EXPECT_TRUE(*first->try_lock());
  EXPECT_TRUE(*first->try_lock());
  EXPECT_FALSE(*second->try_lock());
  first.reset();
  EXPECT_TRUE(*second->try_lock());
}

TEST_P(DiskConformance, DirectFilesMayEndOffTheGrid) {
  auto buffers = Buffers::make(2, 64 * kKiB).value();
  const auto bytes = random_bytes(64 * kKiB, 1);
  std::copy(bytes.begin(), bytes.end(), buffers.slot(0).begin());
  const auto file = make("file", true);
  ASSERT_TRUE(ok(file->write_at(buffers.slot(0), 0)));
  ASSERT_TRUE(ok(file->truncate(50001)));
  const auto same = [&] {
    return as_text(buffers.slot(1).first(50001)) == as_text(ByteView(bytes).first(50001));
  };
  ASSERT_EQ(*file->read_at(buffers.slot(1), 0), 50001u);
  EXPECT_TRUE(same());
  std::fill(buffers.slot(1).begin(), buffers.slot(1).end(), std::byte{0});
  size_t got = 0;
  queue().read(*file, buffers.slot(1), 0, [&](Result<size_t> result) { got = *result; });
  drain();
  EXPECT_EQ(got, 50001u);
  EXPECT_TRUE(same());
}

// Queues.

TEST_P(DiskConformance, QueueKeepsManyInFlight) {
  const auto bytes = random_bytes(16 * 10000, 1);
  std::vector<std::byte> into(bytes.size());
  const auto file = make("file");
  size_t written = 0;
  for (size_t i = 0; i < 16; ++i) {
    queue().write(*file, ByteView(bytes).subspan(i * 10000, 10000), i * 10000,
                  [&](Result<size_t> result) { written += *result; });
  }
  EXPECT_EQ(queue().in_flight(), 16u);
  EXPECT_EQ(written, 0u);  // callbacks run only inside run()
  drain();
  EXPECT_EQ(written, bytes.size());
  bool synced = false;
  queue().sync(*file, [&](Result<size_t> result) { synced = result.ok() && *result == 0; });
  drain();
  EXPECT_TRUE(synced);
  size_t read = 0;
  for (size_t i = 0; i < 16; ++i) {
    queue().read(*file, ByteSpan(into).subspan(i * 10000, 10000), i * 10000,
                 [&](Result<size_t> result) { read += *result; });
  }
  drain();
  EXPECT_EQ(read, bytes.size());
  EXPECT_TRUE(into == bytes);
}

TEST_P(DiskConformance, QueueCallbacksStartOperations) {
  const size_t count = 300;
  const size_t piece = 1000;
  const auto bytes = random_bytes(count * piece, 1);
  std::vector<std::byte> into(bytes.size());
  const auto file = make("file");
  size_t next = 0;
  size_t done = 0;
  std::function<void()> start = [&] {
    if (next == count) return;
    const size_t mine = next++ * piece;
    queue().write(*file, ByteView(bytes).subspan(mine, piece), mine, [&, mine](auto written) {
      EXPECT_TRUE(ok(written));
      queue().read(*file, ByteSpan(into).subspan(mine, piece), mine, [&](auto read) {
        EXPECT_TRUE(ok(read));
        ++done;
        start();
      });
    });
  };
  for (size_t i = 0; i < queue().depth(); ++i) start();  // a callback finds its own place free
  drain();
  EXPECT_EQ(done, count);
  EXPECT_TRUE(into == bytes);
}

TEST_P(DiskConformance, QueuePollsUntilDone) {
  const auto file = make("file");
  queue().run();  // nothing in flight: returns at once
  queue().poll();
  bool done = false;
  queue().write(*file, as_bytes("text"), 0, [&](Result<size_t>) { done = true; });
  while (!done) queue().poll();
  EXPECT_EQ(queue().in_flight(), 0u);
  EXPECT_EQ(get(disk(), at("file")), "text");
}

TEST_P(DiskConformance, QueueReadsAreShortOnlyAtTheEnd) {
  ASSERT_TRUE(ok(put(disk(), at("file"), "0123456789")));
  const auto file = open("file", {});
  std::vector<std::byte> into(8);
  size_t got = 99;
  const auto read = [&](uint64_t offset) {
    queue().read(*file, into, offset, [&](Result<size_t> result) { got = *result; });
    drain();
    return got;
  };
  EXPECT_EQ(read(2), 8u);
  EXPECT_EQ(read(7), 3u);
  EXPECT_EQ(as_text(ByteView(into).first(3)), "789");
  EXPECT_EQ(read(10), 0u);
  EXPECT_EQ(read(5000), 0u);
}

TEST_P(DiskConformance, QueueErrorsNameTheFile) {
  ASSERT_TRUE(ok(put(disk(), at("file"), "text")));
  const auto writer = open("file", {.access = AccessMode::write});
  std::vector<std::byte> into(4);
  std::string message;
  queue().read(*writer, into, 0, [&](Result<size_t> result) { message = result.error().message; });
  drain();
  EXPECT_NE(message.find(at("file")), std::string::npos) << message;
  const auto reader = open("file", {.access = AccessMode::read});
  queue().write(*reader, into, 0, [&](Result<size_t> result) { message = result.error().message; });
  drain();
  EXPECT_NE(message.find(at("file")), std::string::npos) << message;
}

TEST_P(DiskConformance, QueueWorksInAndOutsideRegisteredBuffers) {
  auto buffers = Buffers::make(4, kMiB).value();
  auto others = Buffers::make(2, kMiB).value();
  const ByteSpan spans[] = {buffers.all()};
  queue().register_buffers(spans);
  const auto bytes = random_bytes(kMiB, 1);
  std::copy(bytes.begin(), bytes.end(), buffers.slot(3).begin());
  std::copy(bytes.begin(), bytes.end(), others.slot(1).begin());
  for (const bool direct : {false, true}) {
    SCOPED_TRACE(direct ? "direct" : "buffered");
    const auto file = make("file", direct);
    size_t total = 0;
    const auto count = [&](Result<size_t> result) { total += *result; };
    queue().write(*file, buffers.slot(3), 0, count);
    queue().write(*file, others.slot(1), kMiB, count);
    drain();
    queue().read(*file, others.slot(0), 0, count);
    queue().read(*file, buffers.slot(0), kMiB, count);
    drain();
    EXPECT_EQ(total, 4 * kMiB);
    EXPECT_EQ(as_text(others.slot(0)), as_text(bytes));
    EXPECT_EQ(as_text(buffers.slot(0)), as_text(bytes));
  }
}

TEST_P(DiskConformance, QueueEndsWithoutCallbacks) {
  const auto bytes = random_bytes(kMiB, 1);
  const auto file = make("file");
  bool called = false;
  queue().write(*file, bytes, 0, [&](Result<size_t>) { called = true; });
  queue_.reset();
  if (tested_->loop() != nullptr) run_task(*tested_->loop(), pause());  // posts to it are late
  EXPECT_FALSE(called);
  std::vector<std::byte> into(bytes.size());
  EXPECT_EQ(*file->read_at(into, 0), bytes.size());
  EXPECT_TRUE(into == bytes);
}

TEST_P(DiskConformance, QueueMisuseStops) {
  // A plain fork: the dying child touches neither the ring nor the threads.
  GTEST_FLAG_SET(death_test_style, "fast");
  const auto file = make("file");
  while (queue().in_flight() < queue().depth()) queue().sync(*file, nullptr);
  EXPECT_DEATH(queue().sync(*file, nullptr), "check failed");
  drain();
  const auto direct = make("direct", true);
  if (!direct->direct()) GTEST_SKIP() << "no direct I/O on this file system";
  auto buffers = Buffers::make(1, 8192).value();
  EXPECT_DEATH(queue().read(*direct, buffers.slot(0), 512, nullptr), "check failed");
  EXPECT_DEATH(queue().write(*direct, buffers.slot(0).subspan(1, 4096), 0, nullptr),
               "check failed");
}

// Names.

TEST_P(DiskConformance, ListIsSortedWithKinds) {
  ASSERT_TRUE(ok(put(disk(), at("b"), "")));
  ASSERT_TRUE(ok(put(disk(), at("a"), "")));
  ASSERT_TRUE(ok(disk().make_dir(at("d"), 0755)));
  ASSERT_TRUE(ok(disk().make_symlink("nowhere", at("c"))));
  const auto entries = disk().list(tested_->dir());
  ASSERT_TRUE(ok(entries));
  ASSERT_EQ(entries->size(), 4u);
  const FileKind kinds[] = {FileKind::regular, FileKind::regular, FileKind::symlink,
                            FileKind::directory};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ((*entries)[i].name, std::string(1, static_cast<char>('a' + i)));
    EXPECT_EQ((*entries)[i].kind, kinds[i]);
  }
  EXPECT_TRUE(disk().list(at("d"))->empty());
  EXPECT_EQ(code_of(disk().list(at("none"))), Errc::not_found);
  EXPECT_EQ(code_of(disk().list(at("a"))), Errc::failed);
}

TEST_P(DiskConformance, InfoDescribesWithoutFollowing) {
  ASSERT_TRUE(ok(put(disk(), at("file"), "text")));
  ASSERT_TRUE(ok(disk().make_symlink("file", at("link"))));
  EXPECT_EQ(disk().info(at("file"))->kind, FileKind::regular);
  EXPECT_EQ(disk().info(at("file"))->size, 4u);
  EXPECT_EQ(disk().info(at("link"))->kind, FileKind::symlink);
  EXPECT_EQ(disk().info(tested_->dir())->kind, FileKind::directory);
  EXPECT_EQ(code_of(disk().info(at("none"))), Errc::not_found);
}

TEST_P(DiskConformance, DirectoriesAreMadeAndRemoved) {
  EXPECT_TRUE(ok(disk().make_dir(at("dir"), 0700)));
  EXPECT_EQ(disk().info(at("dir"))->mode, 0700u);
  EXPECT_EQ(code_of(disk().make_dir(at("dir"), 0700)), Errc::exists);
  EXPECT_EQ(code_of(disk().make_dir(at("none/dir"), 0700)), Errc::not_found);
  ASSERT_TRUE(ok(put(disk(), at("dir/file"), "")));
  EXPECT_EQ(code_of(disk().remove_dir(at("dir"))), Errc::failed);
  EXPECT_EQ(code_of(disk().remove(at("dir"))), Errc::failed);
  EXPECT_EQ(code_of(disk().remove_dir(at("dir/file"))), Errc::failed);
  EXPECT_TRUE(ok(disk().remove(at("dir/file"))));
  EXPECT_EQ(code_of(disk().remove(at("dir/file"))), Errc::not_found);
  EXPECT_TRUE(ok(disk().remove_dir(at("dir"))));
  EXPECT_EQ(code_of(disk().remove_dir(at("dir"))), Errc::not_found);
}

TEST_P(DiskConformance, AnOpenFileOutlivesItsName) {
  ASSERT_TRUE(ok(put(disk(), at("file"), "text")));
  const auto file = open("file", {});
  ASSERT_TRUE(ok(disk().remove(at("file"))));
  std::vector<std::byte> into(4);
  EXPECT_EQ(*file->read_at(into, 0), 4u);
  EXPECT_EQ(as_text(into), "text");
}

TEST_P(DiskConformance, RenameReplacesFilesAndEmptyDirectories) {
  ASSERT_TRUE(ok(put(disk(), at("a"), "a")));
  ASSERT_TRUE(ok(put(disk(), at("b"), "b")));
  EXPECT_TRUE(ok(disk().rename(at("a"), at("b"))));
  EXPECT_EQ(get(disk(), at("b")), "a");
  EXPECT_EQ(get(disk(), at("a")), "(not_found)");
  EXPECT_EQ(code_of(disk().rename(at("a"), at("c"))), Errc::not_found);
  ASSERT_TRUE(ok(make_dirs(disk(), at("full/inner"))));
  ASSERT_TRUE(ok(make_dirs(disk(), at("empty"))));
  EXPECT_EQ(code_of(disk().rename(at("empty"), at("full"))), Errc::failed);
  EXPECT_EQ(code_of(disk().rename(at("b"), at("empty"))), Errc::failed);
  EXPECT_EQ(code_of(disk().rename(at("empty"), at("b"))), Errc::failed);
  EXPECT_EQ(code_of(disk().rename(at("full"), at("full/inner/x"))), Errc::failed);
  EXPECT_TRUE(ok(disk().rename(at("full"), at("empty"))));
  EXPECT_EQ(disk().info(at("empty/inner"))->kind, FileKind::directory);
  EXPECT_FALSE(*exists(disk(), at("full")));
}

TEST_P(DiskConformance, LinkIsExclusive) {
  ASSERT_TRUE(ok(put(disk(), at("a"), "a")));
  ASSERT_TRUE(ok(put(disk(), at("b"), "b")));
  EXPECT_EQ(code_of(disk().link(at("a"), at("b"))), Errc::exists);
  EXPECT_EQ(get(disk(), at("b")), "b");
  EXPECT_TRUE(ok(disk().link(at("a"), at("c"))));
  EXPECT_EQ(disk().info(at("a"))->inode, disk().info(at("c"))->inode);
  ASSERT_TRUE(ok(disk().remove(at("a"))));
  EXPECT_EQ(get(disk(), at("c")), "a");
  EXPECT_EQ(code_of(disk().link(at("none"), at("d"))), Errc::not_found);
  ASSERT_TRUE(ok(disk().make_dir(at("dir"), 0755)));
  EXPECT_EQ(code_of(disk().link(at("dir"), at("dir2"))), Errc::refused);
  EXPECT_TRUE(*exists(disk(), at("dir")));
}

TEST_P(DiskConformance, RenameBetweenTwoNamesOfOneFileKeepsBoth) {
  ASSERT_TRUE(ok(put(disk(), at("a"), "a")));
  ASSERT_TRUE(ok(disk().link(at("a"), at("b"))));
  EXPECT_TRUE(ok(disk().rename(at("a"), at("b"))));
  EXPECT_EQ(get(disk(), at("a")), "a");
  EXPECT_EQ(get(disk(), at("b")), "a");
}

TEST_P(DiskConformance, SymbolicLinksLeadThePath) {
  if (!tested_->follows_links()) GTEST_SKIP() << "this disk follows none";
  ASSERT_TRUE(ok(make_dirs(disk(), at("dir/inner"))));
  ASSERT_TRUE(ok(put(disk(), at("dir/file"), "text")));
  ASSERT_TRUE(ok(disk().make_symlink("dir", at("to_dir"))));
  ASSERT_TRUE(ok(disk().make_symlink("../file", at("dir/inner/up"))));
  ASSERT_TRUE(ok(disk().make_symlink("loop", at("loop"))));
  EXPECT_EQ(*disk().read_symlink(at("to_dir")), "dir");
  EXPECT_EQ(get(disk(), at("to_dir/inner/up")), "text");
  EXPECT_EQ(get(disk(), at("loop")), "(failed)");
  EXPECT_EQ(code_of(disk().read_symlink(at("dir"))), Errc::failed);
  EXPECT_EQ(code_of(disk().read_symlink(at("none"))), Errc::not_found);
  EXPECT_EQ(code_of(disk().make_symlink("x", at("to_dir"))), Errc::exists);
  EXPECT_EQ(disk().info(at("to_dir/."))->kind, FileKind::directory);
  ASSERT_TRUE(ok(disk().make_symlink("made", at("dangling"))));
  ASSERT_TRUE(ok(put(disk(), at("dangling"), "new")));
  EXPECT_EQ(get(disk(), at("made")), "new");
}

TEST_P(DiskConformance, ModesAndTimesAreSet) {
  ASSERT_TRUE(ok(put(disk(), at("file"), "")));
  ASSERT_TRUE(ok(disk().make_symlink("file", at("link"))));
  EXPECT_TRUE(ok(disk().set_mode(at("file"), 0640)));
  EXPECT_EQ(disk().info(at("file"))->mode, 0640u);
  const int64_t old = 1'000'000'000'123'456'789;
  EXPECT_TRUE(ok(disk().set_mtime(at("file"), old)));
  EXPECT_EQ(disk().info(at("file"))->mtime_ns, old);
  for (const int64_t before_1970 : {-1'500'000'000 * int64_t{1'000'000'000} - 1, int64_t{-7}}) {
    EXPECT_TRUE(ok(disk().set_mtime(at("file"), before_1970)));
    EXPECT_EQ(disk().info(at("file"))->mtime_ns, before_1970);
  }
  EXPECT_TRUE(ok(disk().set_mtime(at("file"), old)));
  EXPECT_TRUE(ok(disk().set_mtime(at("link"), -1)));  // the link's own
  EXPECT_EQ(disk().info(at("file"))->mtime_ns, old);
  EXPECT_TRUE(ok(disk().set_mtime(at("file"), -1)));
  EXPECT_GT(disk().info(at("file"))->mtime_ns, old);
  EXPECT_EQ(code_of(disk().set_mode(at("none"), 0600)), Errc::not_found);
  EXPECT_EQ(code_of(disk().set_mtime(at("none"), 0)), Errc::not_found);
}

TEST_P(DiskConformance, BeneathStaysInItsDirectory) {
  ASSERT_TRUE(ok(make_dirs(disk(), at("in/sub"))));
  ASSERT_TRUE(ok(make_dirs(disk(), at("out"))));
  ASSERT_TRUE(ok(put(disk(), at("out/file"), "kept")));
  ASSERT_TRUE(ok(disk().make_symlink("../out", at("in/away"))));
  ASSERT_TRUE(ok(disk().make_symlink("../out/file", at("in/link"))));
  EXPECT_EQ(code_of(disk().beneath(at("none"))), Errc::not_found);
  EXPECT_EQ(code_of(disk().beneath(at("out/file"))), Errc::failed);
  const auto below = std::move(disk().beneath(at("in/")).value());
  ASSERT_TRUE(ok(put(*below, at("in/sub/file"), "text")));
  EXPECT_EQ(get(disk(), at("in/sub/file")), "text");
  EXPECT_EQ(below->list(at("in"))->size(), 3u);
  EXPECT_EQ(below->info(at("in/sub/."))->kind, FileKind::directory);
  EXPECT_TRUE(ok(below->set_mode(at("in/sub"), 0700)));
  EXPECT_TRUE(ok(below->sync_dir(at("in"))));
  EXPECT_GT(below->space(at("in"))->total, 0u);
  for (const char* name : {"in/away/x", "in/../out/x", "out/x", "in2"}) {
    EXPECT_FALSE(put(*below, at(name), "x").ok()) << name;
    EXPECT_FALSE(below->make_dir(at(name), 0755).ok()) << name;
    EXPECT_FALSE(below->make_symlink("x", at(name)).ok()) << name;
    EXPECT_FALSE(below->rename(at("in/sub/file"), at(name)).ok()) << name;
    EXPECT_FALSE(below->link(at("in/sub/file"), at(name)).ok()) << name;
  }
  for (const char* name : {"in/away/file", "in/../out/file", "out/file"}) {
    EXPECT_FALSE(below->set_mode(at(name), 0600).ok()) << name;
    EXPECT_FALSE(below->set_mtime(at(name), 0).ok()) << name;
    EXPECT_FALSE(below->remove(at(name)).ok()) << name;
  }
  EXPECT_FALSE(put(*below, at("in/link"), "x").ok());
  EXPECT_FALSE(below->set_mode(at("in/link"), 0600).ok());
  EXPECT_FALSE(below->beneath(at("in/away")).ok());
  EXPECT_FALSE(below->beneath(at("out")).ok());
  EXPECT_TRUE(put(*std::move(below->beneath(at("in/sub")).value()), at("in/sub/y"), "y").ok());
  EXPECT_TRUE(ok(below->remove(at("in/link"))));
  EXPECT_EQ(disk().list(at("out"))->size(), 1u);
  EXPECT_EQ(get(disk(), at("out/file")), "kept");
}

// `dir` itself may be a symbolic link.
TEST_P(DiskConformance, BeneathFollowsLinksOnlyInItsOwnName) {
  if (!tested_->follows_links()) GTEST_SKIP() << "this disk follows none";
  ASSERT_TRUE(ok(make_dirs(disk(), at("real"))));
  ASSERT_TRUE(ok(disk().make_symlink("real", at("to_real"))));
  const auto below = std::move(disk().beneath(at("to_real")).value());
  ASSERT_TRUE(ok(below->make_dir(at("to_real/sub"), 0755)));
  ASSERT_TRUE(ok(put(*below, at("to_real/sub/file"), "text")));
  EXPECT_EQ(get(disk(), at("real/sub/file")), "text");
}

TEST_P(DiskConformance, SyncAndSpace) {
  const auto file = make("file");
  EXPECT_TRUE(ok(file->sync()));
  EXPECT_TRUE(ok(disk().sync_dir(tested_->dir())));
  EXPECT_EQ(code_of(disk().sync_dir(at("none"))), Errc::not_found);
  const auto space = disk().space(tested_->dir());
  ASSERT_TRUE(ok(space));
  EXPECT_GT(space->free, 0u);
  EXPECT_LE(space->free, space->total);
  EXPECT_EQ(code_of(disk().space(at("none"))), Errc::not_found);
}

}  // namespace ff::io
