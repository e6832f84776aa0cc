// The chunks of a target in memory: the same as a plain map, whether they rest or are in use.
#include "storage/chunk/chunk_table.h"

#include <gtest/gtest.h>

#include <malloc.h>

#include <map>
#include <vector>

#include "storage/chunk/chunk_world.h"

namespace ff::chunk {
namespace {

using io::ok;

PackedChunk chunk_of(const ChunkId& id, uint64_t version) {
  return {.id = id, .version = version, .chain_version = 1, .length = 5, .checksum = 1};
}

TEST(PackedChunks, BehaveLikeAMap) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    SeededRng rng(seed);
    PackedChunks packed;
    std::map<ChunkId, uint64_t> model;
    const uint64_t inodes = 1 + rng.below(40);
    const auto any = [&] { return ChunkId{.inode = rng.below(inodes), .index = rng.below(60)}; };
    for (uint64_t step = 0; step < 3000; ++step) {
      const ChunkId id = any();
      const bool grows = step < 2000 ? rng.below(4) > 0 : rng.below(4) == 0;
      if (grows && !model.contains(id)) {
        packed.insert(chunk_of(id, step));
        model[id] = step;
      } else if (!grows && model.contains(id)) {
        packed.erase(id);
        model.erase(id);
      }
      const ChunkId asked = any();
      const auto at = model.lower_bound(asked);
      const PackedChunk* const first = packed.first_from(asked);
      ASSERT_EQ(first == nullptr, at == model.end());
      if (first != nullptr) {
        ASSERT_TRUE(first->id == at->first && first->version == at->second);
      }
      const PackedChunk* const last = packed.last_before(asked);
      ASSERT_EQ(last == nullptr, at == model.begin());
      if (last != nullptr) {
        ASSERT_TRUE(last->id == std::prev(at)->first);
      }
      ASSERT_EQ(packed.find(asked) != nullptr, model.contains(asked));
    }
    EXPECT_EQ(packed.size(), model.size());
    std::map<ChunkId, uint64_t> all;
    packed.each([&](const PackedChunk& chunk) { all[chunk.id] = chunk.version; });
    EXPECT_TRUE(all == model);
  }
}

// Bytes of memory for each of many chunks that come in this order.
template <class Order>
double memory_per_chunk(const Order& order) {
  constexpr uint64_t kMany = 300'000;
  const size_t before = mallinfo2().uordblks;
  PackedChunks packed;
  for (uint64_t i = 0; i < kMany; ++i) packed.insert(chunk_of(order(i), 1));
  const size_t after = mallinfo2().uordblks;
  EXPECT_EQ(packed.size(), kMany);
  return static_cast<double>(after - before) / kMany;
}

TEST(PackedChunks, EachTakesAtMost64Bytes) {
  EXPECT_LE(memory_per_chunk([](uint64_t i) { return ChunkId{i / 64, i % 64}; }), 52);
  EXPECT_LE(memory_per_chunk([](uint64_t i) { return ChunkId{i * 0x9E3779B97F4A7C15, i}; }), 64);
  EXPECT_LE(memory_per_chunk([](uint64_t i) { return ChunkId{i % 1000, i}; }), 64);
}

// A chunk that was cut keeps its old bytes until that is durable, also if it could rest.
TEST(ChunkTable, AChunkThatIsNotDurableDoesNotRest) {
  const ChunkId id{.inode = 1, .index = 1};
  const ChunkId other{.inode = 1, .index = 2};
  for (uint64_t seed = 4; seed <= 160; seed += 4) {  // used_chunks_max = 0, no cached CRCs
    SCOPED_TRACE(seed);
    ChunkWorld world(seed);
    world.make();
    const std::string whole = bytes_of(seed, 60'000);
    const std::string shorter = whole.substr(0, 8192);
    const std::string longer = shorter + bytes_of(seed + 1000, 40'000);
    ASSERT_TRUE(ok(world.write(id, whole)));
    ASSERT_TRUE(ok(world.write(other, "other")));
    ASSERT_TRUE(ok(world.run(world.store->sync())));
    ASSERT_TRUE(ok(world.resize(id, shorter.size())));
    for (int i = 0; i < 6; ++i) ASSERT_EQ(world.get(other), "other");
    ASSERT_TRUE(ok(world.write(id, longer.substr(8192), 8192)));
    EXPECT_TRUE(world.get(id) == longer);
    world.power_loss();
    ASSERT_TRUE(ok(world.open()));
    const std::string left = world.get(id);
    EXPECT_TRUE(left == whole || left == shorter || left == longer) << left.substr(0, 20);
  }
}

// Chunks that are only read or written once go back to rest, and keep their blocks.
TEST(ChunkTable, ChunksRestAfterUse) {
  ChunkWorld world(4);  // used_chunks_max = 0
  world.make();
  constexpr uint64_t kMany = 200;
  std::map<ChunkId, std::string> texts;
  for (uint64_t i = 0; i < kMany; ++i) {
    const ChunkId id{.inode = 1 + i / 10, .index = i % 10};
    texts[id] = bytes_of(i, 3000 + i);
    ASSERT_TRUE(ok(world.write(id, texts[id])));
  }
  ASSERT_TRUE(ok(world.run(world.store->sync())));
  world.close();
  ASSERT_TRUE(ok(world.open()));
  const auto usage = world.store->usage();
  for (int round = 0; round < 3; ++round) {
    for (auto& [id, text] : texts) {
      ASSERT_TRUE(world.get(id) == text) << to_string(id);
      if (id.index != 3) continue;
      text.replace(10, 20, bytes_of(static_cast<uint64_t>(round), 20));
      ASSERT_TRUE(ok(world.write(id, text.substr(0, 100))));
    }
    ASSERT_TRUE(ok(world.run(world.store->sync())));
    EXPECT_EQ(world.store->usage().at(0).used_blocks, usage.at(0).used_blocks);
  }
  EXPECT_EQ(world.store->list(kTarget, {}, 1000)->size(), kMany);
  EXPECT_EQ(world.store->list_inodes(kTarget, 0, 1000)->size(), kMany / 10);
  const auto last = world.store->last_chunk(kTarget, 5);
  ASSERT_TRUE(ok(last));
  EXPECT_TRUE(last->value().id == (ChunkId{.inode = 5, .index = 9}));
  EXPECT_EQ(world.store->targets().at(0).last_inode, kMany / 10);
  ASSERT_TRUE(ok(world.run(world.store->remove_target(kTarget))));
  ASSERT_TRUE(ok(world.run(world.store->sync())));
  for (const SizeClassUsage& used : world.store->usage()) EXPECT_EQ(used.used_blocks, 0u);
}

}  // namespace
}  // namespace ff::chunk
