// Truncating a file in storage: done means durable, whichever server did it.
#include "storage/meta/file_chunks.h"

#include <gtest/gtest.h>

#include "storage/chain/chain_world.h"

namespace ff::meta {
namespace {

using chain::ChainWorld;
using chain::kA;
using chain::kChain;
using chain::text_of;
using cluster::TargetState;

constexpr uint64_t kBefore = 100'000;
constexpr uint64_t kAfter = 1000;

// A file with one chunk on a chain with one target, and a metadata server that truncates it.
class Cutting {
 public:
  // The seed decides which unsynced writes survive a power failure.
  explicit Cutting(uint64_t seed) : world_(1, seed) {
    world_.truth.tables[{1, 1}] = {.id = 1, .version = 1, .chains = {kChain}};
    EXPECT_TRUE(io::ok(world_.write(0, {.id = kA, .data = text_of(1, kBefore)})));
    EXPECT_TRUE(io::ok(world_.run(world_.ask_sync(0))));
  }
  ~Cutting() { world_.run(client_.close()); }

  // Another server truncates the file and has not synced it yet.
  void cut_by_another() {
    EXPECT_TRUE(
        io::ok(world_.write(0, {.id = kA, .type = chunk::UpdateType::truncate, .length = kAfter})));
  }
  Task<Result<void>> cut() {
    Inode file{.id = kA.inode, .kind = InodeType::file};
    file.layout = {.table = 1, .version = 1, .chunk_size = chain::kChunkSize, .stripe = 1};
    return chunks_.truncate(std::move(file), kAfter, [this]() -> Task<Result<bool>> {
      asked_++;
      co_return true;
    });
  }
  // The only target restarts with its durable data.
  void power_loss() {
    world_.power_loss(0);
    world_.start(0);
    world_.tell(0);
    world_.set({TargetState::offline});
    world_.set({TargetState::serving});
    client_.on_routing_change();
  }
  size_t length() { return world_.read(0, kA).size(); }
  int asked() const { return asked_; }
  ChainWorld& world() { return world_; }

 private:
  ChainWorld world_;
  chain::ClientMachine machine_{world_, "meta"};
  chain::ChainClient client_{machine_.context, world_.truth, [] {}};
  FileChunks chunks_{client_, world_.truth, world_.sim.loop()};
  int asked_ = 0;
};

constexpr uint64_t kSeeds = 30;

TEST(ChunksTest, WhatIsCutStaysCut) {
  for (uint64_t seed = 1; seed <= kSeeds; seed++) {
    Cutting cutting(seed);
    ASSERT_TRUE(io::ok(cutting.world().run(cutting.cut())));
    EXPECT_EQ(cutting.asked(), 1);
    cutting.power_loss();
    EXPECT_EQ(cutting.length(), kAfter) << seed;
  }
}

TEST(ChunksTest, WhatAnotherHasCutStaysCut) {
  size_t lost = 0;
  for (uint64_t seed = 1; seed <= kSeeds; seed++) {
    Cutting cutting(seed);
    cutting.cut_by_another();
    ASSERT_TRUE(io::ok(cutting.world().run(cutting.cut())));
    cutting.power_loss();
    EXPECT_EQ(cutting.length(), kAfter) << seed;
    Cutting unsynced(seed);
    unsynced.cut_by_another();
    unsynced.power_loss();
    if (unsynced.length() == kBefore) lost++;
  }
  EXPECT_GT(lost, 0u);
}

TEST(ChunksTest, WhatAnotherHasCutAndLostIsCutAgain) {
  // The power fails at any time between the listing and the sync.
  for (uint64_t seed = 1; seed <= 4 * kSeeds; seed++) {
    Cutting cutting(seed);
    cutting.cut_by_another();
    std::optional<Result<void>> done;
    cutting.world().begin(cutting.cut(), done);
    cutting.world().sim.run_for(static_cast<int64_t>(seed) * 10 * kMicrosecond);
    cutting.power_loss();
    ASSERT_TRUE(cutting.world().eventually([&] { return done.has_value(); }));
    ASSERT_TRUE(io::ok(*done));
    cutting.power_loss();
    EXPECT_EQ(cutting.length(), kAfter) << seed;
  }
}

}  // namespace
}  // namespace ff::meta
