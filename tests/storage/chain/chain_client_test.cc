// The chain client: choice of targets, retries, and handling of responses.
#include "storage/chain/chain_client.h"

#include <gtest/gtest.h>

#include "storage/chain/chain_world.h"
#include "storage/chain/read_call.h"

namespace ff::chain {
namespace {

using chunk::ChunkId;
using chunk::UpdateType;

class ClientTest : public testing::Test {
 protected:
  explicit ClientTest(size_t targets = 3) : world_(targets) {}
  ~ClientTest() override { world_.run(client_.close()); }

  chunk::Update update(ChunkId id, std::string_view data, uint64_t offset = 0) {
    return {.id = id,
            .type = UpdateType::write,
            .offset = offset,
            .data = as_bytes(data),
            .chunk_size = kChunkSize};
  }
  Result<ChainClient::UpdateResult> write(ChunkId id, std::string_view data, uint64_t offset = 0) {
    return world_.run(client_.update(kChain, update(id, data, offset)));
  }
  std::string read(ChunkId id) {
    std::string text(kChunkSize, '?');
    std::vector<ChainClient::ReadIo> pieces = {
        {.chain = kChain, .id = id, .into = std::as_writable_bytes(std::span(text))}};
    const auto got = world_.run(client_.read(std::move(pieces)));
    EXPECT_EQ(got.size(), 1u);
    if (!got[0]) return fmt::format("({})", errc_name(got[0].error().code));
    text.resize(got[0]->bytes);
    return text;
  }
  void set(std::vector<TargetState> states) {
    world_.set(std::move(states));
    client_.on_routing_change();
  }
  uint64_t counted(std::string name) {
    const std::string text = machine_.metrics.text();
    name = fmt::format("\n{} ", name);
    const size_t at = text.find(name);
    return at == text.npos ? 0 : std::stoull(text.substr(at + name.size()));
  }
  uint64_t calls(std::string_view method, std::string_view code) {
    return counted(
        fmt::format("ff_rpc_client_calls_total{{method=\"{}\",code=\"{}\"}}", method, code));
  }
  // Enough reads for the hedge policy.
  void read_often(ChunkId id) {
    for (size_t i = 0; i < HedgePolicy::kWindow; i++) ASSERT_EQ(read(id), "one");
  }

  ChainWorld world_;
  ClientMachine machine_{world_, "user"};
  int refreshed_ = 0;
  ChainClient client_{machine_.context, world_.truth, [this] { refreshed_++; }};
};

TEST_F(ClientTest, WritesReadsAndSyncs) {
  const auto one = write(kA, "one");
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_EQ(one->state.version, 1u);
  EXPECT_EQ(read(kA), "one");
  EXPECT_EQ(read({1, 1}), "(not_found)");
  EXPECT_EQ(world_.run(client_.sync(kChain)).value(), one->verifier);
  const auto last = world_.run(client_.last_chunk(kChain, 1));
  ASSERT_TRUE(last.ok() && *last);
  EXPECT_EQ((*last)->id, kA);
  EXPECT_EQ((*last)->state, one->state);
  EXPECT_FALSE(world_.run(client_.last_chunk(kChain, 2)).value());
  EXPECT_EQ(write(kA, "x", kChunkSize).error().code, Errc::usage);
  EXPECT_EQ(refreshed_, 0);
}

TEST_F(ClientTest, ChunksOfAFileInARange) {
  std::set<uint64_t> there;
  for (const uint64_t index : {0, 2, 4, 6, 9, 10, 40}) {
    ASSERT_TRUE(write({5, index}, "x").ok());
    there.insert(index);
  }
  ASSERT_TRUE(write({4, 7}, "of another").ok());
  ASSERT_TRUE(write({6, 7}, "of another").ok());
  const auto ask = [&](ChainClient::ChunkQuery asked) {
    asked.inode = 5;
    return world_.run(client_.list_chunks(kChain, asked)).value();
  };
  const auto indexes = [](const ChainClient::ChunkList& found) {
    std::vector<uint64_t> all;
    for (const auto& one : found.chunks) all.push_back(one.id.index);
    return all;
  };
  const auto some = ask({.from = 1, .end = 10, .limit = 3});
  EXPECT_EQ(indexes(some), (std::vector<uint64_t>{2, 4, 6}));
  EXPECT_EQ(some.chunks[0].state.version, 1u);
  EXPECT_EQ(some.next, 9u);
  const auto rest = ask({.from = 9, .end = 10, .limit = 3});
  EXPECT_EQ(indexes(rest), std::vector<uint64_t>{9});
  EXPECT_FALSE(rest.next);
  EXPECT_EQ(indexes(ask({.from = 7, .limit = 100})), (std::vector<uint64_t>{9, 10, 40}));
  EXPECT_EQ(ask({.from = 1, .limit = 1, .step = 2}).run, 3u);
  EXPECT_EQ(ask({.from = 8, .limit = 1, .step = 1}).run, 2u);
  EXPECT_TRUE(ask({.from = 41, .limit = 1, .step = 1}).chunks.empty());
  chunk::Update removal{.id = {5, 4}, .type = UpdateType::remove, .chunk_size = kChunkSize};
  ASSERT_TRUE(world_.run(client_.update(kChain, removal)).ok());
  EXPECT_EQ(indexes(ask({.from = 3, .limit = 1})), std::vector<uint64_t>{6});
  EXPECT_EQ(ask({.from = 0, .limit = 1, .step = 2}).run, 2u);
}

TEST_F(ClientTest, ManyPiecesInOneCallEach) {
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < 100; i++) {
    texts.push_back(text_of(i, 1000 + i));
    ASSERT_TRUE(write({1, i}, texts.back()).ok());
  }
  std::string memory(100 * 2000, '?');
  std::vector<ChainClient::ReadIo> pieces;
  for (uint64_t i = 0; i < 100; i++) {
    pieces.push_back({.chain = kChain,
                      .id = {1, i},
                      .offset = 10,
                      .into = std::as_writable_bytes(std::span(memory)).subspan(i * 2000, 2000)});
  }
  pieces[7].id = {9, 9};
  const auto got = world_.run(client_.read(std::move(pieces)));
  ASSERT_EQ(got.size(), 100u);
  for (uint64_t i = 0; i < 100; i++) {
    if (i == 7) {
      EXPECT_EQ(got[i].error().code, Errc::not_found);
      continue;
    }
    ASSERT_TRUE(got[i].ok()) << got[i].error().message;
    EXPECT_TRUE(memory.substr(i * 2000, got[i]->bytes) == texts[i].substr(10)) << i;
  }
  EXPECT_EQ(calls("chain.read", "ok"), 3u);  // one per target
}

TEST_F(ClientTest, ReadsGoToAllTargetsThatServe) {
  ASSERT_TRUE(write(kA, "one").ok());
  for (int i = 0; i < 60; i++) EXPECT_EQ(read(kA), "one");
  const auto served = [&](size_t i) {
    const std::string text = world_.nodes[i]->live->metrics.text();
    return text.find("method=\"chain.read\",code=\"ok\"") != text.npos;
  };
  for (size_t i = 0; i < 3; i++) EXPECT_TRUE(served(i)) << i;
}

TEST_F(ClientTest, AReadGoesElsewhereWhenATargetIsGone) {
  ASSERT_TRUE(write(kA, "one").ok());
  world_.kill(0);
  world_.kill(2);
  for (int i = 0; i < 10; i++) {
    const int64_t began_ns = world_.sim.now_ns();
    EXPECT_EQ(read(kA), "one");
    EXPECT_LT(world_.sim.now_ns() - began_ns, 10 * kSecond);
  }
}

TEST_F(ClientTest, AReadWaitsForAChainThatNobodyServes) {
  ASSERT_TRUE(write(kA, "one").ok());
  for (const char* const node : {"n1", "n2", "n3"}) world_.net.block(node, "user");
  std::string text(3, '?');
  std::vector<ChainClient::ReadIo> pieces = {
      {.chain = kChain, .id = kA, .into = std::as_writable_bytes(std::span(text))}};
  std::optional<Result<ChainClient::ReadResult>> done;
  world_.begin(
      [](ChainClient& client,
         std::vector<ChainClient::ReadIo> what) -> Task<Result<ChainClient::ReadResult>> {
        auto got = co_await client.read(std::move(what));
        co_return std::move(got[0]);
      }(client_, std::move(pieces)),
      done);
  world_.sim.run_for(kSecond);
  for (const char* const node : {"n1", "n2", "n3"}) world_.net.unblock(node, "user");
  set({TargetState::lastsrv, TargetState::offline, TargetState::offline});
  world_.sim.run_for(5 * kSecond);
  EXPECT_FALSE(done);
  set({TargetState::serving, TargetState::offline, TargetState::offline});
  ASSERT_TRUE(world_.eventually([&] { return done.has_value(); }));
  ASSERT_TRUE(io::ok(*done));
  EXPECT_EQ(text, "one");
}

TEST_F(ClientTest, AReadThatIsLateIsAskedOfAnother) {
  ASSERT_TRUE(write(kA, "one").ok());
  read_often(kA);
  const uint64_t before = counted("ff_chain_client_hedged_reads_total");
  world_.net.block("n2", "user");
  int64_t longest_ns = 0;
  for (uint64_t i = 0; i < HedgePolicy::kMaxBurst; i++) {
    const int64_t began_ns = world_.sim.now_ns();
    EXPECT_EQ(read(kA), "one");
    longest_ns = std::max(longest_ns, world_.sim.now_ns() - began_ns);
  }
  EXPECT_LT(longest_ns, 100 * kMillisecond);
  EXPECT_GT(counted("ff_chain_client_hedged_reads_total"), before);
}

// A target on the machine of the client, which writes to its memory directly.
class SharedMemoryTest : public ClientTest {
 protected:
  SharedMemoryTest() : ClientTest(2) { memory_ = world_.net.share_memory("user", "n2", 64 * kKiB); }
  void begin_read() {
    std::vector<ChainClient::ReadIo> pieces = {{.chain = kChain, .id = kA, .into = memory_}};
    world_.begin(
        [](ChainClient& client,
           std::vector<ChainClient::ReadIo> what) -> Task<Result<ChainClient::ReadResult>> {
          auto got = co_await client.read(std::move(what));
          co_return std::move(got[0]);
        }(client_, std::move(pieces)),
        done_);
  }
  // The memory belongs to the caller again.
  void expect_untouched(const std::string& text = "one", int64_t for_ns = 20 * kSecond) {
    ASSERT_TRUE(done_ && done_->ok()) << done_->error().message;
    EXPECT_EQ(as_text(memory_.first((*done_)->bytes)), text);
    std::ranges::fill(memory_, std::byte{'#'});
    world_.sim.run_for(for_ns);
    EXPECT_TRUE(
        std::ranges::all_of(memory_, [](std::byte byte) { return byte == std::byte{'#'}; }));
  }

  ByteSpan memory_;
  std::optional<Result<ChainClient::ReadResult>> done_;
};

TEST_F(SharedMemoryTest, ALateReadHasLeftTheMemoryBeforeAnotherTakesItsPlace) {
  ASSERT_TRUE(write(kA, "one").ok());
  read_often(kA);
  world_.nodes[1]->disk.set_slow(kSecond);
  for (uint64_t i = 0; i < HedgePolicy::kMaxBurst; i++) {
    done_.reset();
    begin_read();
    ASSERT_TRUE(world_.eventually([&] { return done_.has_value(); }));
    expect_untouched();
  }
  EXPECT_GT(counted("ff_chain_client_hedged_reads_total"), 0u);
}

TEST_F(SharedMemoryTest, ASilentNodeIsWaitedForUntilItHasNoLease) {
  ASSERT_TRUE(write(kA, "one").ok());
  set({TargetState::offline, TargetState::serving});
  world_.net.block("n2", "user");
  world_.nodes[1]->disk.set_slow(9 * kSecond);
  const int64_t began_ns = world_.sim.now_ns();
  begin_read();
  EXPECT_FALSE(world_.eventually([&] { return done_.has_value(); }, 4 * kSecond + kHaltedNs));
  world_.nodes[1]->disk.set_slow(0);
  set({TargetState::serving, TargetState::offline});
  ASSERT_TRUE(world_.eventually([&] { return done_.has_value(); }));
  EXPECT_LT(world_.sim.now_ns() - began_ns, 12 * kSecond);
  expect_untouched();
}

// The node lives, but the kernel cannot take back a read that a disk does not end.
TEST_F(SharedMemoryTest, ADiskThatHangsKeepsTheMemoryUntilItsReadHasEnded) {
  const std::string text = text_of(1, 8 * kKiB);  // the disk writes it to the memory itself
  ASSERT_TRUE(write(kA, text).ok());
  constexpr int64_t kHangsNs = 45 * kSecond;
  for (int round = 0; round < 3; round++) {
    set({TargetState::offline, TargetState::serving});
    world_.nodes[1]->disk.set_slow(kHangsNs);
    done_.reset();
    begin_read();
    world_.sim.run_for(kSecond);
    set({TargetState::serving, TargetState::offline});
    ASSERT_TRUE(world_.eventually([&] { return done_.has_value(); }, 2 * kHangsNs));
    expect_untouched(text, kHangsNs);
    world_.nodes[1]->disk.set_slow(0);
  }
}

TEST_F(ClientTest, ADamagedReplicaIsNotBelieved) {
  const std::string text = text_of(1, 50'000);
  ASSERT_TRUE(write(kA, text).ok());
  for (const size_t damaged : {0, 2}) {
    world_.damage(damaged, text.substr(5000, 100));
    for (int i = 0; i < 10; i++) EXPECT_TRUE(read(kA) == text);
    ASSERT_TRUE(world_.eventually([&] {  // read repair
      return world_.store(damaged).list_damaged(world_.target(damaged), {}, 1).empty();
    }));
  }
  for (const size_t damaged : {0, 1, 2}) world_.damage(damaged, text.substr(5000, 100));
  EXPECT_EQ(read(kA), "(corrupt)");
}

TEST_F(ClientTest, AnUpdateOutlivesItsHead) {
  ASSERT_TRUE(write(kA, "one").ok());
  world_.net.block("n2", "n1");
  chunk::Update cut{.id = kA, .type = UpdateType::truncate, .length = 2, .chunk_size = kChunkSize};
  std::optional<Result<ChainClient::UpdateResult>> done;
  world_.begin(client_.update(kChain, cut), done);
  ASSERT_TRUE(world_.eventually(
      [&] { return world_.store(1).state(world_.target(1), kA)->committed.version == 2; }));
  world_.kill(0);
  world_.sim.run_for(3 * kSecond);
  EXPECT_FALSE(done);
  EXPECT_GT(refreshed_, 0);
  set({TargetState::offline, TargetState::serving, TargetState::serving});
  ASSERT_TRUE(world_.eventually([&] { return done.has_value(); }, 2 * kSecond));
  ASSERT_TRUE(io::ok(*done));
  EXPECT_EQ((*done)->state.version, 2u);  // once
  EXPECT_EQ(read(kA), "on");
}

TEST_F(ClientTest, WhoNobodyAnswersGivesUpInTime) {
  ASSERT_TRUE(write(kA, "one").ok());
  for (size_t i = 0; i < 3; i++) world_.kill(i);
  const int64_t began_ns = world_.sim.now_ns();
  const auto wrote = write(kA, "two");
  EXPECT_EQ(wrote.error().code, Errc::deadline);
  EXPECT_NE(wrote.error().message.find("60 s"), std::string::npos) << wrote.error().message;
  EXPECT_EQ(read(kA), "(deadline)");
  EXPECT_LT(world_.sim.now_ns() - began_ns, 2 * kRetryTimeoutNs + kSecond);
  // An unknown chain may still be created.
  EXPECT_EQ(world_.run(client_.sync(99)).error().code, Errc::deadline);
}

TEST_F(ClientTest, ManyUpdatesAtOnce) {
  std::vector<std::string> texts;
  std::vector<std::optional<Result<ChainClient::UpdateResult>>> done(600);
  for (uint64_t i = 0; i < done.size(); i++) texts.push_back(fmt::format("text {}", i));
  for (uint64_t i = 0; i < done.size(); i++) {
    world_.begin(client_.update(kChain, update({1, i % 50}, texts[i])), done[i]);
  }
  ASSERT_TRUE(world_.eventually(
      [&] { return std::ranges::all_of(done, [](const auto& one) { return one.has_value(); }); }));
  for (const auto& one : done) EXPECT_TRUE(io::ok(*one));
  for (uint64_t i = 0; i < 50; i++) {
    EXPECT_EQ(world_.store(1).state(world_.target(1), {1, i})->committed.version, 12u);
  }
  world_.expect_equal(0, 2);
}

}  // namespace
}  // namespace ff::chain
