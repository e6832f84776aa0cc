// The chunks of removed files go away: many files cost little more than one, files on a chain that
// is offline hold up nobody, and what was told to be gone stays gone after a power failure.
#include "storage/meta/garbage_collector.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "storage/chain/chain_world.h"
#include "storage/meta/counting_store.h"
#include "storage/meta/keys.h"

namespace ff::meta {
namespace {

using chain::ChainWorld;
using chain::kChain;

constexpr cluster::ChainId kOffline = 9;  // a chain whose only target serves nobody
constexpr uint64_t kOnlineTable = 1;      // of kChain
constexpr uint64_t kOfflineTable = 2;

Layout layout_of(uint64_t table) {
  return {.table = table, .version = 1, .chunk_size = chain::kChunkSize, .stripe = 1};
}

// A metadata server with one chain of one storage node.
class CollectorTest : public testing::Test {
 protected:
  CollectorTest() {
    world_.truth.tables[{kOnlineTable, 1}] = {.id = kOnlineTable, .version = 1, .chains = {kChain}};
    world_.truth.tables[{kOfflineTable, 1}] = {
        .id = kOfflineTable, .version = 1, .chains = {kOffline}};
    cluster::Chain offline{.id = kOffline, .version = 1, .changed = 1};
    offline.targets.push_back(
        {.id = 500, .node = 1, .disk = 1, .state = chain::TargetState::lastsrv});
    world_.truth.chains[kOffline] = offline;
    EXPECT_TRUE(world_.run(names_.create_root()).ok());
  }
  ~CollectorTest() override { world_.run(client_.close()); }

  RequestId request() { return {.client = 7, .slot = 0, .sequence = ++sequence_}; }
  // A file whose metadata says that it has bytes, and its chunk if the chain can store it.
  Inode make(const std::string& name, uint64_t table) {
    Namespace::CreateOptions create{.mode = 0644, .layout = layout_of(table)};
    const auto made = world_.run(names_.create({}, request(), kRoot, name, std::move(create)));
    EXPECT_TRUE(made.ok());
    if (table == kOnlineTable) {
      EXPECT_TRUE(io::ok(world_.write(0, {.id = {made->id, 0}, .data = "bytes"})));
    }
    EXPECT_TRUE(world_.run(names_.extend_length(made->id, 5, made->truncate_seq)).ok());
    return *made;
  }
  void unlink(const std::string& name) {
    EXPECT_TRUE(world_.run(names_.unlink({}, request(), kRoot, name, std::nullopt)).ok());
  }
  bool has_chunk(InodeId id) { return world_.read(0, {id, 0}) == "bytes"; }
  size_t garbage() {
    size_t count = 0;
    kv::TxnFunction counting = [&count](kv::Txn& txn) -> Task<Result<void>> {
      kv::Range all{.begin = std::string(keys::kGarbage),
                    .end = kv::end_of_prefix(std::string(keys::kGarbage)),
                    .limit = 10'000};
      FF_CO_TRY(const auto entries, co_await txn.range(all, std::string()));
      count = entries.size();
      co_return Result<void>();
    };
    EXPECT_TRUE(world_.run(engine_->view(counting, INT64_MAX)).ok());
    return count;
  }
  Result<void> collect() {
    world_.sim.run_for(kMillisecond);  // so that the unlinks are in the past
    return world_.run(collector_.collect());
  }

  ChainWorld world_{1};
  int reads_ = 0;  // round trips to the store
  CountingStore store_{reads_};
  std::unique_ptr<kv::Engine> engine_ = store_.engine(world_.sim.loop());
  InodeIdAllocator ids_{*engine_, world_.sim.loop()};
  std::shared_ptr<TableVersions> tables_ =
      std::make_shared<TableVersions>(TableVersions{{kOnlineTable, 1}, {kOfflineTable, 1}});
  Namespace names_{*engine_, world_.sim.clock(), {.ids = ids_, .rng = world_.rng, .tables = [this] {
                                                    return tables_;
                                                  }}};
  chain::ClientMachine machine_{world_, "meta"};
  chain::ChainClient client_{machine_.context, world_.truth, [] {}};
  FileChunks chunks_{client_, world_.truth, world_.sim.loop()};
  Metrics metrics_;
  GarbageCollector collector_{*engine_, names_,
                              chunks_,  world_.sim.loop(),
                              metrics_, {.delay_ns = 0, .active = [] { return true; }}};
  uint64_t sequence_ = 0;
};

TEST_F(CollectorTest, ManyFilesTakeFewRoundTrips) {
  std::vector<InodeId> made;
  for (int i = 0; i < 200; i++) made.push_back(make("f" + std::to_string(i), kOnlineTable).id);
  for (int i = 0; i < 200; i++) unlink("f" + std::to_string(i));
  const uint64_t linked = make("stays", kOnlineTable).id;
  reads_ = 0;
  ASSERT_TRUE(io::ok(collect()));
  // Ten transactions of 20 files, three reads that find the files, and those of empty queues.
  EXPECT_LE(reads_, 30);
  EXPECT_EQ(garbage(), 0u);
  for (const InodeId id : made) {
    EXPECT_FALSE(has_chunk(id));
    EXPECT_EQ(world_.run(names_.stat(id)).error().code, Errc::stale);
  }
  EXPECT_TRUE(has_chunk(linked));
}

TEST_F(CollectorTest, FilesOfAnOfflineChainHoldUpNobody) {
  // More than are read at once.
  for (int i = 0; i < 300; i++) {
    make("off" + std::to_string(i), kOfflineTable);
    unlink("off" + std::to_string(i));
  }
  const InodeId behind = make("behind", kOnlineTable).id;
  unlink("behind");
  const int64_t begin_ns = world_.sim.now_ns();
  EXPECT_FALSE(collect().ok());
  EXPECT_LT(world_.sim.now_ns() - begin_ns, kSecond);  // simulated: nothing waits for the chain
  EXPECT_FALSE(has_chunk(behind));
  EXPECT_EQ(garbage(), 300u);
}

TEST_F(CollectorTest, FilesWithAttributesGoTogether) {
  for (const std::string name : {"a", "b", "c"}) {
    const InodeId id = make(name, kOnlineTable).id;
    for (uint32_t i = 0; i < kXattrsMax; i++) {
      ASSERT_TRUE(world_
                      .run(names_.set_xattr({}, request(), id, "user.x" + std::to_string(i),
                                            "value", Namespace::XattrMode::any))
                      .ok());
    }
    unlink(name);
  }
  ASSERT_TRUE(io::ok(collect()));
  EXPECT_EQ(garbage(), 0u);
}

// The power fails at any time while the files are removed.
TEST(CollectorPowerTest, WhatIsRemovedStaysRemoved) {
  constexpr uint64_t kRemoved = 5;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    ChainWorld world(1, seed);
    world.truth.tables[{1, 1}] = {.id = 1, .version = 1, .chains = {kChain}};
    chain::ClientMachine machine(world, "meta");
    chain::ChainClient client(machine.context, world.truth, [] {});
    FileChunks chunks(client, world.truth, world.sim.loop());
    std::vector<Inode> files;
    for (uint64_t id = 1; id <= kRemoved; id++) {
      EXPECT_TRUE(io::ok(world.write(0, {.id = {id, 0}, .data = "bytes"})));
      files.push_back({.id = id, .kind = InodeType::file, .layout = layout_of(1)});
    }
    EXPECT_TRUE(io::ok(world.run(world.ask_sync(0))));
    const auto fail_power = [&] {
      world.power_loss(0);
      world.start(0);
      world.tell(0);
      world.set({chain::TargetState::offline});
      world.set({chain::TargetState::serving});
      client.on_routing_change();
    };
    std::optional<Result<std::vector<Result<void>>>> removed;
    world.begin(
        [](FileChunks& of, std::vector<Inode> all) -> Task<Result<std::vector<Result<void>>>> {
          co_return co_await of.remove(std::move(all));
        }(chunks, files),
        removed);
    world.sim.run_for(static_cast<int64_t>(seed) * 20 * kMicrosecond);
    fail_power();
    ASSERT_TRUE(world.eventually([&] { return removed.has_value(); })) << seed;
    for (const Result<void>& one : **removed) EXPECT_TRUE(io::ok(one)) << seed;
    fail_power();
    for (uint64_t id = 1; id <= kRemoved; id++) EXPECT_NE(world.read(0, {id, 0}), "bytes") << seed;
    world.run(client.close());
  }
}

}  // namespace
}  // namespace ff::meta
