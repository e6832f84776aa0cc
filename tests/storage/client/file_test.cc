// Files striped over chains: every later opener reads what was written, wherever it is stored.
#include "storage/client/file.h"

#include <cerrno>

#include "storage/client/file_system_world.h"
#include "storage/meta/file_chunks.h"

namespace ff::client {
namespace {

class FileTest : public FileSystemWorld {};

TEST_F(FileTest, WhatIsWrittenIsReadByOthers) {
  const std::string text = text_of(1, 5 * kChunk + 1000);
  const uint64_t id = make("f", text);
  User other(stage_, "other");
  ASSERT_TRUE(io::ok(run(other.files().start(INT64_MAX))));
  const auto file = run(other.files().open({}, {.id = id}, meta::kMayRead));
  ASSERT_TRUE(io::ok(file));
  EXPECT_EQ((*file)->inode().length, text.size());
  EXPECT_TRUE(read(**file, 0, text.size() + 10) == text);
  for (const uint64_t offset : {uint64_t{1}, kChunk - 1, kChunk, 3 * kChunk + 7}) {
    EXPECT_TRUE(read(**file, offset, kChunk + 3) == text.substr(offset, kChunk + 3)) << offset;
  }
  EXPECT_EQ(read(**file, text.size(), 10), "");
  EXPECT_EQ(read(**file, text.size() + kChunk, 10), "");
  const auto wrote = run((*file)->write(0, as_bytes("x")));
  ASSERT_FALSE(wrote.ok());
  EXPECT_EQ(wrote.error().sys, EBADF);
}

TEST_F(FileTest, PiecesInAnyOrder) {
  auto file = create("f");
  ASSERT_TRUE(io::ok(file));
  std::string text(4 * kChunk, '\0');
  SeededRng rng(3);
  for (int i = 0; i < 60; i++) {
    const uint64_t offset = rng.below(text.size());
    const std::string piece =
        text_of(i, 1 + rng.below(std::min<uint64_t>(text.size() - offset, kChunk)));
    text.replace(offset, piece.size(), piece);
    // Write-behind keeps its order, also with direct writes.
    if (i % 3 == 0) {
      ASSERT_TRUE(io::ok(run((*file)->flush())));
      ASSERT_TRUE(io::ok(run((*file)->write(offset, as_bytes(piece)))));
    } else {
      ASSERT_TRUE(io::ok(run((*file)->write_behind(offset, as_bytes(piece)))));
    }
    if (i % 10 == 0) {
      const std::string seen = read(**file, 0, text.size());
      ASSERT_TRUE(seen == text.substr(0, seen.size())) << i;
    }
  }
  ASSERT_TRUE(io::ok(run((*file)->close())));
  const auto again = open((*file)->inode().id);
  ASSERT_TRUE(io::ok(again));
  const std::string seen = read(**again, 0, text.size());
  EXPECT_TRUE(seen == text.substr(0, seen.size()));
  EXPECT_EQ(text.find_first_not_of('\0', seen.size()), text.npos);
}

TEST_F(FileTest, HolesAreZeros) {
  auto file = create("f");
  ASSERT_TRUE(io::ok(file));
  const uint64_t far = uint64_t{1} << 40;
  ASSERT_TRUE(io::ok(run((*file)->write(far, as_bytes("end")))));
  ASSERT_TRUE(io::ok(run((*file)->write(10, as_bytes("begin")))));
  EXPECT_EQ((*file)->inode().length, far + 3);
  EXPECT_TRUE(read(**file, 0, 20) == std::string(10, '\0') + "begin" + std::string(5, '\0'));
  EXPECT_TRUE(read(**file, far - 5, 100) == std::string(5, '\0') + "end");
  ASSERT_TRUE(io::ok(run((*file)->close())));
  EXPECT_EQ(run(metadata().stat((*file)->ref(), true))->inode.length, far + 3);
  EXPECT_EQ(run((*file)->read(uint64_t{1} << 63, {})).error().sys, EFBIG);
  const auto beyond = run((*file)->write(meta::kLengthMax, as_bytes("x")));
  EXPECT_EQ(beyond.error().sys, EFBIG);
}

// Reads ask only for existing chunks, and holes take no space.
TEST_F(FileTest, HolesOfAnySizeTakeAFewCalls) {
  auto file = create("f");
  ASSERT_TRUE(io::ok(file));
  constexpr uint64_t kLength = uint64_t{1} << 50;
  constexpr uint64_t kFar = uint64_t{1} << 49;
  ASSERT_TRUE(io::ok(run((*file)->extend(kLength))));
  const auto calls = [&] {
    uint64_t sum = 0;
    for (const std::string method : {"chain.chunks", "chain.write", "chain.read"}) {
      sum += stage_.metrics
                 .counter("ff_rpc_client_calls_total", "", {{"method", method}, {"code", "ok"}})
                 .value();
    }
    return sum;
  };
  const auto looks_empty = [&] {
    const auto range = run((*file)->next_data(5));
    return range.ok() && range->begin == kLength && range->end == kLength;
  };
  const uint64_t before = calls();
  EXPECT_TRUE(looks_empty());
  ASSERT_TRUE(io::ok(run((*file)->punch_hole(0, kLength))));
  EXPECT_LE(calls() - before, 4u);
  ASSERT_TRUE(io::ok(run((*file)->write(kFar, as_bytes("end")))));
  ASSERT_TRUE(io::ok(run((*file)->write(kFar - 2 * kChunk, as_bytes(text_of(1, 2 * kChunk))))));
  const auto range = run((*file)->next_data(kChunk + 1));
  ASSERT_TRUE(io::ok(range));
  EXPECT_EQ(range->begin, kFar - 2 * kChunk);
  EXPECT_EQ(range->end, kFar + kChunk);
  ASSERT_TRUE(io::ok(run((*file)->punch_hole(kFar - kChunk - 10, kLength))));
  EXPECT_EQ(run((*file)->next_data(0))->end, kFar - kChunk);
  const std::string left = text_of(1, 2 * kChunk).substr(0, kChunk - 10);
  EXPECT_TRUE(read(**file, kFar - 2 * kChunk, 2 * kChunk + 3) ==
              left + std::string(kChunk + 13, '\0'));
  ASSERT_TRUE(io::ok(run((*file)->truncate(10))));
  EXPECT_LE(calls() - before, 40u);
  EXPECT_EQ(stored(), 0u);
  ASSERT_TRUE(io::ok(run((*file)->close())));
}

TEST_F(FileTest, DataIsFoundChunkByChunkOnAllChains) {
  auto file = create("f");
  ASSERT_TRUE(io::ok(file));
  SeededRng rng(7);
  constexpr uint64_t kChunks = 40;
  std::vector<bool> there(kChunks);
  for (uint64_t i = 0; i < kChunks; i++) {
    there[i] = rng.below(3) > 0;
    if (!there[i]) continue;
    ASSERT_TRUE(io::ok(run((*file)->write(i * kChunk + 7, as_bytes("x")))));
  }
  const uint64_t length = kChunks * kChunk - 100;
  there[kChunks - 1] = false;
  ASSERT_TRUE(io::ok(run((*file)->truncate(length - kChunk))));
  ASSERT_TRUE(io::ok(run((*file)->truncate(length))));
  for (uint64_t i = 0; i < kChunks; i++) {
    const auto range = run((*file)->next_data(i * kChunk + 3));
    ASSERT_TRUE(io::ok(range));
    uint64_t first = i;
    while (first < kChunks && !there[first]) first++;
    uint64_t last = first;
    while (last < kChunks && there[last]) last++;
    EXPECT_EQ(range->begin, std::min(std::max(first * kChunk, i * kChunk + 3), length)) << i;
    EXPECT_EQ(range->end, std::min(last * kChunk, length)) << i;
  }
  ASSERT_TRUE(io::ok(run((*file)->close())));
}

// Punching a hole does not affect what another client appends meanwhile.
TEST_F(FileTest, ClearedBesideAppends) {
  const uint64_t id = make("log", "");
  User other(stage_, "other");
  ASSERT_TRUE(io::ok(run(other.files().start(INT64_MAX))));
  auto mine = open(id, meta::kMayWrite | meta::kMayRead);
  auto theirs = run(other.files().open({}, {.id = id}, meta::kMayWrite));
  ASSERT_TRUE(mine.ok() && theirs.ok());
  constexpr size_t kRecord = 4000;
  constexpr size_t kRounds = 60;
  std::vector<uint64_t> cleared_to(kRounds);
  for (size_t i = 0; i < kRounds; i++) {
    Gate both(stage_.world.loop());
    const std::string record(kRecord, static_cast<char>('A' + i % 26));
    both.spawn([](File& file, ByteView bytes) -> Task<void> {
      const auto appended = co_await file.append(bytes);
      EXPECT_TRUE(io::ok(appended));
    }(**theirs, as_bytes(record)));
    // All records but this one, which may not be written yet.
    both.spawn([](File& file, uint64_t size) -> Task<void> {
      const auto cleared = co_await file.punch_hole(0, size);
      EXPECT_TRUE(io::ok(cleared));
    }(**mine, i * kRecord));
    run(both.wait_empty());
    ASSERT_EQ(run((*theirs)->refresh())->length, (i + 1) * kRecord);
    const std::string log = read(**mine, 0, (i + 1) * kRecord);
    ASSERT_TRUE(log == std::string(i * kRecord, '\0') + record) << i;
  }
  ASSERT_TRUE(io::ok(run((*theirs)->close())));
  ASSERT_TRUE(io::ok(run((*mine)->close())));
}

// A server that is late: another one has finished the truncation and the file was written again.
TEST_F(FileTest, ALateTruncationTakesNothingThatCameAfterIt) {
  const uint64_t id = make("f", text_of(1, 3 * kChunk));
  auto file = open(id, meta::kMayRead | meta::kMayWrite);
  ASSERT_TRUE(io::ok(file));
  rpc::GrantScheduler grants;
  const auto transport = stage_.net.transport("server");
  rpc::ClientContext context{stage_.world.loop(), *transport, grants,
                             stage_.metrics,      stage_.rng, stage_.identity("server")};
  chain::ChainClient storage(context, cluster_.routing(), [] {});
  meta::FileChunks chunks(storage, cluster_.routing(), stage_.world.loop());
  const std::string anew = text_of(2, 2 * kChunk);
  const meta::Inode inode = (*file)->inode();
  // Listed before, removed after: the chunk version prevents it.
  int asked = 0;
  const auto write_anew = [&]() -> Task<Result<bool>> {
    if (asked++ > 0) co_return false;
    const auto cut = co_await (*file)->truncate(0);
    EXPECT_TRUE(io::ok(cut));
    const auto written = co_await (*file)->write(0, as_bytes(anew));
    EXPECT_TRUE(io::ok(written));
    co_return true;
  };
  ASSERT_TRUE(io::ok(run(chunks.truncate(inode, 0, write_anew))));
  EXPECT_GT(asked, 1);
  EXPECT_TRUE(read(**file, 0, 3 * kChunk) == anew);
  // Listed after: the metadata prevents it.
  ASSERT_TRUE(
      io::ok(run(chunks.truncate(inode, 0, []() -> Task<Result<bool>> { co_return false; }))));
  EXPECT_TRUE(read(**file, 0, 3 * kChunk) == anew);
  ASSERT_TRUE(io::ok(run(chunks.truncate(inode, 100, {}))));
  EXPECT_TRUE(read(**file, 0, kChunk) == anew.substr(0, 100) + std::string(kChunk - 100, '\0'));
  ASSERT_TRUE(io::ok(run((*file)->close())));
  run(storage.close());
}

TEST_F(FileTest, TruncatedUpAndDown) {
  const std::string text = text_of(2, 3 * kChunk);
  const uint64_t id = make("f", text);
  auto file = open(id, meta::kMayRead | meta::kMayWrite);
  ASSERT_TRUE(io::ok(file));
  ASSERT_TRUE(io::ok(run((*file)->truncate(kChunk + 100))));
  EXPECT_TRUE(read(**file, 0, 3 * kChunk) == text.substr(0, kChunk + 100));
  ASSERT_TRUE(io::ok(run((*file)->truncate(2 * kChunk + 5))));
  // Truncated bytes do not come back.
  EXPECT_TRUE(read(**file, 0, 3 * kChunk) ==
              text.substr(0, kChunk + 100) + std::string(kChunk - 95, '\0'));
  ASSERT_TRUE(io::ok(run((*file)->truncate(0))));
  EXPECT_EQ(read(**file, 0, 10), "");
  ASSERT_TRUE(io::ok(run((*file)->close())));
  EXPECT_EQ(stored(), 0u);
}

// An owner that cannot renew its lock loses it before another owner can get it.
TEST_F(FileTest, ALockThatCannotBeKeptIsLost) {
  const uint64_t id = make("f", "x");
  User other(stage_, "other");
  ASSERT_TRUE(io::ok(run(other.files().start(INT64_MAX))));
  auto mine = open(id);
  auto theirs = run(other.files().open({}, {.id = id}, meta::kMayRead));
  ASSERT_TRUE(mine.ok() && theirs.ok());
  EXPECT_TRUE(run((*mine)->try_lock({})).value());
  pass(60 * kSecond);
  EXPECT_FALSE(run((*theirs)->try_lock({})).value());
  EXPECT_FALSE(files_.lost_lock());
  for (const auto& manager : cluster_.managers()) stage_.net.block("user", manager->name());
  int64_t lost_s = 0;
  for (int64_t second = 1; second <= 90; second++) {
    pass(kSecond);
    if (lost_s == 0 && files_.lost_lock()) lost_s = second;
    const auto taken = run((*theirs)->try_lock({}));
    ASSERT_TRUE(io::ok(taken));
    if (*taken) break;
  }
  EXPECT_GT(lost_s, 0);
  EXPECT_TRUE(run((*theirs)->try_lock({})).value());
  for (const auto& manager : cluster_.managers()) stage_.net.unblock("user", manager->name());
  ASSERT_TRUE(io::ok(run((*theirs)->close())));
  ASSERT_TRUE(io::ok(run((*mine)->close())));
}

// A writer that does not know of a truncation by another client: the server asks storage for the
// length instead of using the report.
TEST_F(FileTest, CutByAnotherWhileItIsWritten) {
  auto file = create("f");
  ASSERT_TRUE(io::ok(file));
  ASSERT_TRUE(io::ok(run((*file)->write(0, as_bytes(text_of(3, 2 * kChunk))))));
  ASSERT_TRUE(io::ok(run((*file)->sync())));
  ASSERT_TRUE(io::ok(run(metadata().truncate({}, (*file)->ref(), 10, std::nullopt))));
  ASSERT_TRUE(io::ok(run((*file)->write(100, as_bytes("more")))));
  ASSERT_TRUE(io::ok(run((*file)->close())));
  const auto seen = run(metadata().stat((*file)->ref(), false));
  EXPECT_EQ(seen->inode.length, 104u);
}

TEST_F(FileTest, AppendsOfTwoNeverMeet) {
  const uint64_t id = make("log", "");
  User other(stage_, "other");
  ASSERT_TRUE(io::ok(run(other.files().start(INT64_MAX))));
  auto a = open(id, meta::kMayWrite);
  auto b = run(other.files().open({}, {.id = id}, meta::kMayWrite));
  ASSERT_TRUE(a.ok() && b.ok());
  for (int i = 0; i < 10; i++) {
    ASSERT_TRUE(io::ok(run((*a)->append(as_bytes("aaaa")))));
    ASSERT_TRUE(io::ok(run((*b)->append(as_bytes("bbbb")))));
  }
  ASSERT_TRUE(io::ok(run((*a)->close())));
  ASSERT_TRUE(io::ok(run((*b)->close())));
  auto file = open(id);
  std::string wanted;
  for (int i = 0; i < 10; i++) wanted += "aaaabbbb";
  EXPECT_EQ(read(**file, 0, 100), wanted);
}

TEST_F(FileTest, WritersTellTheirLengthNowAndThen) {
  auto file = create("f");
  ASSERT_TRUE(io::ok(file));
  ASSERT_TRUE(io::ok(run((*file)->write(0, as_bytes("hello")))));
  const auto length = [&] { return run(metadata().stat((*file)->ref(), false))->inode.length; };
  EXPECT_TRUE(eventually([&] { return length() == 5; }));
  ASSERT_TRUE(io::ok(run((*file)->write_behind(5, as_bytes(" world")))));
  EXPECT_TRUE(eventually([&] { return length() == 11; }));
  ASSERT_TRUE(io::ok(run((*file)->close())));
}

TEST_F(FileTest, GoneWhileItIsRead) {
  const uint64_t id = make("f", "x");
  auto file = open(id);
  ASSERT_TRUE(io::ok(file));
  ASSERT_TRUE(io::ok(run(metadata().unlink({}, meta::root(), "f", std::nullopt))));
  EXPECT_EQ(read(**file, 0, 10), "x");
  ASSERT_TRUE(eventually([&] { return !run(metadata().stat({.id = id}, false)).ok(); }));
  std::byte memory[10];
  const auto got = run((*file)->read(0, memory));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().sys, ESTALE);
}

// The read has asked for the length and waits for storage when the file is removed.
TEST_F(FileTest, GoneWhileAReadWaitsForStorage) {
  const uint64_t id = make("f", "text");
  User other(stage_, "other");
  ASSERT_TRUE(io::ok(run(other.files().start(INT64_MAX))));
  const auto file = run(other.files().open({}, {.id = id}, meta::kMayRead));
  ASSERT_TRUE(io::ok(file));
  for (const auto& node : cluster_.nodes()) stage_.net.block("other", node->name());
  std::optional<Result<uint64_t>> got;
  std::byte memory[10];
  Gate gate(stage_.world.loop());
  gate.spawn(
      [](Task<Result<uint64_t>> reading, std::optional<Result<uint64_t>>& into) -> Task<void> {
        into.emplace(co_await std::move(reading));
      }((*file)->read(0, memory), got));
  pass(kSecond);
  ASSERT_TRUE(io::ok(run(metadata().unlink({}, meta::root(), "f", std::nullopt))));
  ASSERT_TRUE(eventually([&] { return stored() == 0; }));
  EXPECT_FALSE(got);
  for (const auto& node : cluster_.nodes()) stage_.net.unblock("other", node->name());
  ASSERT_TRUE(eventually([&] { return got.has_value(); }));
  ASSERT_FALSE(got->ok());
  EXPECT_EQ(got->error().sys, ESTALE);
}

// The file is unlinked while it is open for writing: its chunks stay until it is closed.
TEST_F(FileTest, RemovedWhileItIsWritten) {
  auto file = create("f");
  ASSERT_TRUE(io::ok(file));
  ASSERT_TRUE(io::ok(run((*file)->write(0, as_bytes("kept")))));
  ASSERT_TRUE(io::ok(run(metadata().unlink({}, meta::root(), "f", std::nullopt))));
  pass(60 * kSecond);
  EXPECT_EQ(read(**file, 0, 10), "kept");
  ASSERT_TRUE(io::ok(run((*file)->close())));
  EXPECT_TRUE(eventually([&] { return stored() == 0; }));
  EXPECT_EQ(fsck().problems(), 0u);
}

TEST_F(FileTest, AClientThatDiesLeavesItsLength) {
  uint64_t id = 0;
  {
    User dying(stage_, "dying");
    ASSERT_TRUE(io::ok(run(dying.files().start(INT64_MAX))));
    const auto file = run(dying.files().create({}, meta::root(), "f", {.mode = 0644}));
    ASSERT_TRUE(io::ok(file));
    ASSERT_TRUE(io::ok(run((*file)->write(0, as_bytes("unsaid")))));
    id = (*file)->inode().id;
    stage_.net.stop_process("dying");
  }
  EXPECT_EQ(fsck().sessions(), 1u);
  pass(meta::kClientRenewNs);
  EXPECT_EQ(run(metadata().stat({.id = id}, false))->inode.length, 0u);
  for (int i = 0; i < 10 && fsck().sessions() > 0; i++) pass(60 * kSecond);
  EXPECT_EQ(fsck().sessions(), 0u);
  EXPECT_EQ(run(metadata().stat({.id = id}, false))->inode.length, 6u);
}

TEST_F(FileTest, AMetadataServerIsKilledUnderLoad) {
  for (int i = 0; i < 3; i++) {
    for (const auto& manager : cluster_.managers()) {
      if (!manager->running()) manager->start();
    }
    cluster_.managers()[static_cast<size_t>(i)]->kill();
    for (int j = 0; j < 10; j++) make(fmt::format("f{}.{}", i, j), text_of(j, 1000));
  }
  for (const auto& manager : cluster_.managers()) {
    if (!manager->running()) manager->start();
  }
  EXPECT_EQ(fsck().problems(), 0u);
  EXPECT_EQ(fsck().names(), 30u);
}

}  // namespace
}  // namespace ff::client
