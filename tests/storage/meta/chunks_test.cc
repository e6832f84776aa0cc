// Cutting a file in storage: done means durable, whoever has done it.
#include "storage/meta/chunks.h"

#include <gtest/gtest.h>

#include "storage/chain/chain_world.h"

namespace ff::meta {
namespace {

using chain::ChainWorld;
using chain::kA;
using chain::kChain;
using chain::text_of;
using cluster::State;

constexpr uint64_t kBefore = 100'000;
constexpr uint64_t kAfter = 1000;

// A file of one chunk on a chain of one target, and a metadata server that cuts it.
class Cutting {
 public:
  // The seed decides what a loss of power leaves of what was not synced.
  explicit Cutting(uint64_t seed) : world_(1, seed) {
    world_.truth.tables[{1, 1}] = {.id = 1, .version = 1, .chains = {kChain}};
    EXPECT_TRUE(io::ok(world_.write(0, {.id = kA, .data = text_of(1, kBefore)})));
    EXPECT_TRUE(io::ok(world_.run(world_.ask_sync(0))));
  }
  ~Cutting() { world_.run(client_.close()); }

  // Another server cuts the file, and has not synced it yet.
  void cut_by_another() {
    EXPECT_TRUE(
        io::ok(world_.write(0, {.id = kA, .change = chunk::Change::resize, .length = kAfter})));
  }
  Task<Result<void>> cut() {
    Inode file{.id = kA.inode, .kind = Kind::file};
    file.layout = {.table = 1, .version = 1, .chunk_size = chain::kChunkSize, .stripe = 1};
    return chunks_.cut(std::move(file), kAfter, [this]() -> Task<Result<bool>> {
      asked_++;
      co_return true;
    });
  }
  // The only target comes back and serves, with what was durable.
  void lose_power() {
    world_.lose_power(0);
    world_.start(0);
    world_.tell(0);
    world_.set({State::offline});
    world_.set({State::serving});
    client_.look();
  }
  size_t length() { return world_.read(0, kA).size(); }
  int asked() const { return asked_; }
  ChainWorld& world() { return world_; }

 private:
  ChainWorld world_;
  chain::ClientMachine machine_{world_, "meta"};
  chain::Client client_{machine_.context, world_.truth, [] {}};
  Chunks chunks_{client_, world_.truth, world_.sim.loop()};
  int asked_ = 0;
};

constexpr uint64_t kSeeds = 30;

TEST(ChunksTest, WhatIsCutStaysCut) {
  for (uint64_t seed = 1; seed <= kSeeds; seed++) {
    Cutting cutting(seed);
    ASSERT_TRUE(io::ok(cutting.world().run(cutting.cut())));
    EXPECT_EQ(cutting.asked(), 1);
    cutting.lose_power();
    EXPECT_EQ(cutting.length(), kAfter) << seed;
  }
}

TEST(ChunksTest, WhatAnotherHasCutStaysCut) {
  size_t lost = 0;
  for (uint64_t seed = 1; seed <= kSeeds; seed++) {
    Cutting cutting(seed);
    cutting.cut_by_another();
    ASSERT_TRUE(io::ok(cutting.world().run(cutting.cut())));
    cutting.lose_power();
    EXPECT_EQ(cutting.length(), kAfter) << seed;
    Cutting unsynced(seed);
    unsynced.cut_by_another();
    unsynced.lose_power();
    if (unsynced.length() == kBefore) lost++;
  }
  EXPECT_GT(lost, 0u);
}

TEST(ChunksTest, WhatAnotherHasCutAndLostIsCutAgain) {
  // The loss of power falls anywhere between the look and the sync behind it.
  for (uint64_t seed = 1; seed <= 4 * kSeeds; seed++) {
    Cutting cutting(seed);
    cutting.cut_by_another();
    std::optional<Result<void>> done;
    cutting.world().begin(cutting.cut(), done);
    cutting.world().sim.run_for(static_cast<int64_t>(seed) * 10 * kMicrosecond);
    cutting.lose_power();
    ASSERT_TRUE(cutting.world().eventually([&] { return done.has_value(); }));
    ASSERT_TRUE(io::ok(*done));
    cutting.lose_power();
    EXPECT_EQ(cutting.length(), kAfter) << seed;
  }
}

}  // namespace
}  // namespace ff::meta
