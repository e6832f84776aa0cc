// A storage node on simulated disks with a real manager: disk identities, records on disks, and
// missing, foreign or failed disks.
#include "storage/chain/storage_node.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lab/scenario/cluster_parts.h"
#include "platform/base/log.h"
#include "platform/io/files.h"
#include "platform/io/test_bytes.h"
#include "platform/sim/sim_disk.h"
#include "storage/chain/chain_client.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/routing_cache.h"

namespace ff::chain {
namespace {

using scenario::cluster_parts::ClusterSimulation;
using scenario::cluster_parts::kPort;
using scenario::cluster_parts::manager_addresses;
using scenario::cluster_parts::ManagerProcess;

// The parameter is the number of shards of node 7.
class StorageNodeTest : public testing::TestWithParam<int> {
 protected:
  StorageNodeTest() { log_setup({.level = LogLevel::none}); }

  template <class T>
  T run(Task<T> task) {
    std::optional<T> result;
    Gate gate(stage_.world.loop());
    gate.spawn([](Task<T> what, std::optional<T>& into) -> Task<void> {
      into.emplace(co_await std::move(what));
    }(std::move(task), result));
    until([&] { return result.has_value(); });
    return std::move(*result);
  }
  void run(Task<void> task) {
    (void)run([](Task<void> what) -> Task<bool> {
      co_await std::move(what);
      co_return true;
    }(std::move(task)));
  }
  template <class Condition>
  void until(Condition condition) {
    const int64_t end_ns = stage_.world.now_ns() + 120 * kSecond;
    while (!condition()) {
      ASSERT_LT(stage_.world.now_ns(), end_ns) << "it does not come to that";
      stage_.world.run_for(10 * kMillisecond);
    }
  }

  void init() { (void)call(cluster::kInit, cluster::wire::InitRequest()); }
  template <class Request, class Reply>
  Result<Reply> call(rpc::Method<Request, Reply> method, Request request) {
    return run(managers_.call(method, std::move(request), 2 * kSecond,
                              stage_.world.now_ns() + 30 * kSecond, true));
  }
  // A chain with a target on a disk of node 7 and one on the first disk of another node.
  void make_chain(cluster::DiskId disk, cluster::NodeId other = 0) {
    cluster::wire::CreateChainsRequest request;
    auto& chain = *request.add_chains();
    auto& target = *chain.add_targets();
    target.set_node(7);
    target.set_disk(disk);
    if (other != 0) {
      auto& second = *chain.add_targets();
      second.set_node(other);
      second.set_disk(1);
    }
    const auto made = call(cluster::kCreateChains, std::move(request));
    ASSERT_TRUE(made) << made.error().message;
  }

  ClusterSimulation stage_{1};
  ManagerProcess manager_{stage_, 0};
  sim::SimDisk disk_{1, stage_.world.clock()};
  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport_ = stage_.net.transport("operator");
  rpc::ClientContext context_{stage_.world.loop(), *transport_, grants_,
                              stage_.metrics,      stage_.rng,  stage_.identity("operator")};
  cluster::ManagerClient managers_{context_, manager_addresses()};
};

// One shard of a process: the loops of all run at the same time, in simulation in turn.
struct Shard {
  Shard(ClusterSimulation& stage, Loop& loop, net::Transport& transport, const std::string& name)
      : context{loop, transport, grants, stage.metrics, stage.rng, stage.identity(name)},
        server(loop, transport, router, stage.metrics, stage.identity(name)) {}

  rpc::GrantScheduler grants;
  rpc::ClientContext context;
  rpc::Router router;
  rpc::Server server;
};

// A process of a node.
struct Process {
  Process(ClusterSimulation& stage, sim::SimDisk& disk, StorageOptions options,
          std::string host = "node")
      : Process(stage, disk, std::move(options), 1, std::move(host)) {}
  Process(ClusterSimulation& stage, sim::SimDisk& disk, StorageOptions options, int count,
          std::string host = "node")
      : name(std::move(host)), transport(stage.net.transport(name)) {
    std::vector<ShardContext> contexts;
    std::vector<rpc::Server*> servers;
    for (int i = 0; i < count; ++i) {
      if (i > 0) loops.push_back(std::make_unique<sim::SimLoop>(stage.world));
      Loop& loop = i == 0 ? static_cast<Loop&>(stage.world.loop()) : *loops.back();
      shards.push_back(std::make_unique<Shard>(stage, loop, *transport, name));
      contexts.push_back({shards.back()->context, shards.back()->router});
      servers.push_back(&shards.back()->server);
    }
    if (count > 1) shards.front()->server.set_shards(servers);
    node = std::make_unique<StorageNode>(std::move(contexts), disk, manager_addresses(),
                                         std::move(options));
  }

  // A gate of one loop may run the servers of the others: all are one thread here.
  Task<void> serve() {
    EXPECT_TRUE(shards.front()->server.listen({"", kPort, ""}).ok());
    std::vector<std::string> addresses = {fmt::format("{}:{}", name, kPort)};
    co_await node->start(std::move(addresses));
  }
  Task<void> close() {
    for (const auto& shard : shards) co_await shard->server.close(0);
    co_await node->close();
  }

  const std::string name;
  std::unique_ptr<net::Transport> transport;
  std::vector<std::unique_ptr<sim::SimLoop>> loops;
  std::vector<std::unique_ptr<Shard>> shards;
  std::unique_ptr<StorageNode> node;
};

StorageOptions options(std::vector<std::string> dirs, cluster::NodeId node = 0) {
  return {.dirs = std::move(dirs),
          .node = node,
          .name = "n",
          .boot_id = "boot",
          .commit_on = chunk::CommitOn::loop};
}

const StorageShard::DiskState& disk_at(const StorageNode& node, const std::string& dir) {
  for (const auto& shard : node.shards()) {
    const auto found = std::ranges::find(shard->disks(), dir, &StorageShard::DiskState::dir);
    if (found != shard->disks().end()) return *found;
  }
  ADD_FAILURE() << "no disk in " << dir;
  std::abort();
}

TEST_P(StorageNodeTest, ANewNodeWaitsForItsClusterAndStaysWhoItIs) {
  uint64_t generation = 0;
  {
    Process process(stage_, disk_, options({"/a", "/b"}, 7), GetParam());
    std::optional<Result<void>> opened;
    Gate gate(stage_.world.loop());
    gate.spawn([](StorageNode& node, std::optional<Result<void>>& into) -> Task<void> {
      into = co_await node.open();
    }(*process.node, opened));
    stage_.world.run_for(20 * kSecond);
    EXPECT_FALSE(opened) << "there is no cluster yet";
    init();
    until([&] { return opened.has_value(); });
    ASSERT_TRUE(*opened) << opened->error().message;
    EXPECT_EQ(process.node->member().self().id, 7u);
    EXPECT_EQ(disk_at(*process.node, "/a").id, 1u);
    EXPECT_EQ(disk_at(*process.node, "/b").id, 2u);
    generation = process.node->member().self().generation;
    run(process.node->close());
  }
  Process process(stage_, disk_, options({"/b", "/a"}), GetParam());
  const auto opened = run(process.node->open());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(process.node->member().self().id, 7u);
  EXPECT_EQ(disk_at(*process.node, "/a").id, 1u);
  EXPECT_GT(process.node->member().self().generation, generation);
}

TEST_P(StorageNodeTest, GenerationsGrowThoughTheClockGoesBack) {
  init();
  uint64_t last = 0;
  for (int start = 0; start < 3; start++) {
    Process process(stage_, disk_, options({"/a"}, 7), GetParam());
    ASSERT_TRUE(run(process.node->open()));
    const uint64_t generation = process.node->member().self().generation;
    EXPECT_GT(generation, last);
    last = generation;
    run(process.node->close());
    disk_.power_loss();
    stage_.world.clock().set_wall(stage_.world.clock().wall_ns() - 3600 * kSecond);
  }
}

TEST_P(StorageNodeTest, StrangeFoldersAreRefused) {
  init();
  {
    Process process(stage_, disk_, options({"/a"}, 7), GetParam());
    ASSERT_TRUE(run(process.node->open()));
    run(process.node->close());
  }
  {
    Process other(stage_, disk_, options({"/other"}, 8));
    ASSERT_TRUE(run(other.node->open()));
    run(other.node->close());
  }
  ASSERT_TRUE(chunk::write_identity(disk_, "/foreign", {"another", "1", 7}).ok() ||
              (io::make_dirs(disk_, "/foreign") &&
               chunk::write_identity(disk_, "/foreign", {"another", "1", 7})));
  ASSERT_TRUE(io::make_dirs(disk_, "/twin"));
  ASSERT_TRUE(chunk::write_identity(disk_, "/twin", *chunk::read_identity(disk_, "/a")));
  struct Case {
    std::vector<std::string> dirs;
    cluster::NodeId node;
    Errc code;
    std::string said;
  };
  const Case cases[] = {
      {{"/a", "/other"}, 0, Errc::refused, "belongs to node 8, but /a to node 7"},
      {{"/a", "/foreign"}, 0, Errc::refused, "belongs to cluster another"},
      {{"/a"}, 9, Errc::refused, "not to node 9"},
      {{"/a", "/a"}, 0, Errc::usage, "twice"},
      {{"/a", "/twin"}, 0, Errc::refused, "/twin: has disk id 1, and so has /a"},
      {{"/a", "/blank"}, 0, Errc::usage, "/blank: not a disk"},
  };
  for (const Case& one : cases) {
    Process process(stage_, disk_, options(one.dirs, one.node), GetParam());
    const auto opened = run(process.node->open());
    ASSERT_FALSE(opened) << one.said;
    EXPECT_EQ(opened.error().code, one.code) << opened.error().message;
    EXPECT_NE(opened.error().message.find(one.said), std::string::npos) << opened.error().message;
    run(process.node->close());
  }
  EXPECT_FALSE(io::exists(disk_, "/blank/ff-disk").value());
}

TEST_P(StorageNodeTest, AFolderThatIsNotEmptyIsNotMadeADisk) {
  init();
  ASSERT_TRUE(io::make_dirs(disk_, "/home/user"));
  Process process(stage_, disk_, options({"/home"}, 7), GetParam());
  const auto opened = run(process.node->open());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::refused);
  EXPECT_NE(opened.error().message.find("contains user"), std::string::npos)
      << opened.error().message;
  EXPECT_EQ(disk_.list("/home")->size(), 1u);
}

TEST_P(StorageNodeTest, ABlankFolderJoinsWithFormatOnly) {
  init();
  {
    Process process(stage_, disk_, options({"/a"}, 7), GetParam());
    ASSERT_TRUE(run(process.node->open()));
    run(process.node->close());
  }
  StorageOptions more = options({"/a", "/b"});
  more.format = true;
  Process process(stage_, disk_, more, GetParam());
  const auto opened = run(process.node->open());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(disk_at(*process.node, "/b").id, 2u);
  EXPECT_EQ(chunk::read_identity(disk_, "/b")->node, 7u);
}

class OnceServedTest : public StorageNodeTest {
 protected:
  // A known node with a target on each of its two disks.
  void SetUp() override {
    init();
    Process process(stage_, disk_, options({"/a", "/b"}, 7), GetParam());
    ASSERT_TRUE(run(process.node->open()));
    run(process.serve());
    until([&] { return process.node->member().routing().node(7) != nullptr; });
    make_chain(1);
    make_chain(2);
    until([&] { return serving(*process.node, 1) && serving(*process.node, 2); });
    run(process.node->drain());
    run(process.close());
  }
  static bool serving(StorageNode& node, cluster::ChainId chain) {
    const cluster::Chain* const at = node.member().routing().chain(chain);
    if (at == nullptr || at->targets.front().state != cluster::TargetState::serving) return false;
    const Replica* const replica = node.replica(at->targets.front().id);
    return replica != nullptr && replica->ready();
  }
  // Writes a chunk of its first target, as a client would.
  void write_one(chunk::ChunkStore& store, uint64_t version = 1) {
    const chunk::Update update{.target = store.targets().front().id,
                               .id = {1, 0},
                               .version = version,
                               .request_id = {.client = 1, .sequence = version},
                               .type = chunk::UpdateType::replace,
                               .data = as_bytes("content"),
                               .chunk_size = kMiB,
                               .commit_chain_version = 1};
    ASSERT_TRUE(run(store.write(update)));
  }
  // The disk in /b has failed, and /a serves.
  void expect_b_down(Process& process, const std::string& why) {
    const auto opened = run(process.node->open());
    ASSERT_TRUE(opened) << opened.error().message;
    run(process.serve());
    until([&] { return serving(*process.node, 1); });
    stage_.world.run_for(15 * kSecond);
    EXPECT_FALSE(serving(*process.node, 2));
    EXPECT_EQ(disk_at(*process.node, "/b").id, 2u);
    EXPECT_NE(disk_at(*process.node, "/b").error.find(why), std::string::npos)
        << disk_at(*process.node, "/b").error;
    const auto status = call(cluster::kStatus, cluster::wire::StatusRequest());
    ASSERT_TRUE(status);
    const auto& disks = status->nodes(0).disks();
    const auto told = std::ranges::find(disks, 2u, &cluster::wire::DiskUse::disk);
    ASSERT_NE(told, disks.end());
    EXPECT_NE(told->trouble().find(why), std::string::npos) << told->trouble();
    run(process.close());
  }
};

TEST_P(OnceServedTest, ItServesAgain) {
  Process process(stage_, disk_, options({"/a", "/b"}), GetParam());
  ASSERT_TRUE(run(process.node->open()));
  EXPECT_EQ(process.node->member().routing().chains.size(), 2u) << "kept on its disks";
  run(process.serve());
  until([&] { return serving(*process.node, 1) && serving(*process.node, 2); });
  run(process.close());
}

TEST_P(OnceServedTest, ADiskThatIsNotMountedIsNotTakenForANewOne) {
  ASSERT_TRUE(io::remove_tree(disk_, "/b"));
  Process process(stage_, disk_, options({"/a", "/b"}), GetParam());
  expect_b_down(process, "check that it is mounted");
  EXPECT_FALSE(io::exists(disk_, "/b/ff-disk").value());
}

TEST_P(OnceServedTest, WithoutItsDisksItIsNotTakenForANewNode) {
  ASSERT_TRUE(io::remove_tree(disk_, "/a"));
  ASSERT_TRUE(io::remove_tree(disk_, "/b"));
  {
    Process process(stage_, disk_, options({"/a", "/b"}, 7), GetParam());
    const auto opened = run(process.node->open());
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, Errc::refused) << opened.error().message;
    EXPECT_NE(opened.error().message.find("node 7"), std::string::npos) << opened.error().message;
    EXPECT_FALSE(io::exists(disk_, "/a").value());
  }
  // The disks are lost: new ones get new ids.
  StorageOptions again = options({"/a", "/b"}, 7);
  again.format = true;
  Process process(stage_, disk_, again, GetParam());
  const auto opened = run(process.node->open());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(disk_at(*process.node, "/a").id, 3u);
  EXPECT_EQ(disk_at(*process.node, "/b").id, 4u);
  run(process.node->close());
}

TEST_P(OnceServedTest, ADiskThatIsNotGivenIsMissed) {
  Process process(stage_, disk_, options({"/a"}), GetParam());
  expect_b_down(process, "is not among the folders");
}

TEST_P(OnceServedTest, ADamagedDiskTakesItsTargetsDownOnly) {
  const auto size = disk_.info("/b/chunks.index");
  ASSERT_TRUE(size);
  for (uint64_t byte = 0; byte < size->size; byte += 16) {
    ASSERT_TRUE(disk_.flip_bit("/b/chunks.index", byte * 8 + 3));
  }
  Process process(stage_, disk_, options({"/a", "/b"}), GetParam());
  expect_b_down(process, "/b");
}

TEST_P(OnceServedTest, ADiskWithoutItsIndexTakesItsTargetsDownOnly) {
  ASSERT_TRUE(disk_.remove("/b/chunks.index"));
  Process process(stage_, disk_, options({"/a", "/b"}), GetParam());
  expect_b_down(process, "chunks.index: the metadata file is missing");
}

// Channel results are kept longer than any client retries.
TEST_P(OnceServedTest, AClockThatJumpsMakesNothingOld) {
  Process process(stage_, disk_, options({"/a", "/b"}), GetParam());
  ASSERT_TRUE(run(process.node->open()));
  run(process.serve());
  chunk::ChunkStore& store = *disk_at(*process.node, "/b").store;
  const cluster::TargetId target = store.targets().front().id;
  stage_.world.run_for(700 * kSecond);
  write_one(store);
  const auto kept = [&] { return store.channel_results(target)->size() == 1; };
  sim::SimClock& clock = stage_.world.clock();
  clock.set_wall(clock.wall_ns() + 24 * 3600 * kSecond);
  stage_.world.run_for(500 * kSecond);
  EXPECT_TRUE(kept());
  until([&] { return !kept(); });
  write_one(store, 2);
  clock.set_wall(clock.wall_ns() - 24 * 3600 * kSecond);
  stage_.world.run_for(500 * kSecond);
  clock.set_wall(clock.wall_ns() + 24 * 3600 * kSecond);
  stage_.world.run_for(60 * kSecond);
  EXPECT_TRUE(kept());
  run(process.close());
}

TEST_P(OnceServedTest, LostBlockFilesAreTold) {
  {
    Process process(stage_, disk_, options({"/a", "/b"}), GetParam());
    ASSERT_TRUE(run(process.node->open()));
    write_one(*disk_at(*process.node, "/b").store);
    run(process.node->close());
  }
  ASSERT_TRUE(disk_.remove("/b/64KiB.data"));
  Process process(stage_, disk_, options({"/a", "/b"}), GetParam());
  ASSERT_TRUE(run(process.node->open()));
  run(process.serve());
  until([&] { return serving(*process.node, 1) && serving(*process.node, 2); });
  until([&] {
    const auto status = call(cluster::kStatus, cluster::wire::StatusRequest());
    if (!status || status->nodes_size() != 1) return false;
    const auto& disks = status->nodes(0).disks();
    const auto told = std::ranges::find(disks, 2u, &cluster::wire::DiskUse::disk);
    const std::string why = "1 of its 1 chunks are damaged or missing";
    return told != disks.end() && told->trouble().find(why) != std::string::npos;
  });
  run(process.close());
}

TEST_P(OnceServedTest, ADamagedIdentityTakesItsTargetsDownOnly) {
  ASSERT_TRUE(disk_.flip_bit("/b/ff-disk", 200));
  Process process(stage_, disk_, options({"/a", "/b"}), GetParam());
  expect_b_down(process, "/b/ff-disk");
}

TEST_P(OnceServedTest, WithoutAnyDiskItDoesNotStart) {
  ASSERT_TRUE(disk_.flip_bit("/a/ff-disk", 200));
  ASSERT_TRUE(disk_.flip_bit("/b/ff-disk", 200));
  Process process(stage_, disk_, options({"/a", "/b"}), GetParam());
  const auto opened = run(process.node->open());
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("/a/ff-disk"), std::string::npos) << opened.error().message;
  run(process.node->close());
}

// Another target replaces the one on disk 2, whose data is removed once the chain is complete.
TEST_P(OnceServedTest, AReplacedTargetIsRemoved) {
  Process process(stage_, disk_, options({"/a", "/b"}), GetParam());
  ASSERT_TRUE(run(process.node->open()));
  run(process.serve());
  Process other(stage_, disk_, options({"/c"}, 8), "other");
  ASSERT_TRUE(run(other.node->open()));
  run(other.serve());
  until([&] { return process.node->member().routing().node(8) != nullptr; });
  make_chain(2, 8);
  const auto whole = [&] {
    const cluster::Chain* const chain = process.node->member().routing().chain(3);
    return chain != nullptr && std::ranges::all_of(chain->targets, [](const auto& target) {
             return target.state == cluster::TargetState::serving;
           });
  };
  until(whole);
  const auto& targets = process.node->member().routing().chain(3)->targets;
  const cluster::TargetId id = std::ranges::find(targets, 7u, &cluster::Target::node)->id;
  cluster::wire::DrainRequest drain;
  drain.set_target(id);
  drain.set_drain(true);
  ASSERT_TRUE(call(cluster::kDrain, std::move(drain)));
  until([&] { return !whole(); });
  EXPECT_EQ(disk_at(*process.node, "/b").store->targets().size(), 2u);
  std::optional<Error> refused = fail(Errc::refused, "not asked yet");
  until([&] {
    cluster::wire::ReplaceTargetRequest replace;
    replace.set_target(id);
    replace.mutable_place()->set_node(7);
    replace.mutable_place()->set_disk(1);
    if (call(cluster::kReplaceTarget, std::move(replace))) refused.reset();
    return !refused;
  });
  until(whole);
  until([&] { return disk_at(*process.node, "/b").store->targets().size() == 1; });
  EXPECT_EQ(process.node->replica(id), nullptr);
  EXPECT_EQ(disk_at(*process.node, "/a").store->targets().size(), 2u);
  for (Process* const each : {&process, &other}) {
    run(each->close());
  }
}

// A disk was removed, and a target on another disk replaces the one that was on it.
TEST_P(StorageNodeTest, AnAbsentDiskIsForgottenOnceItsTargetsAreReplaced) {
  init();
  Process other(stage_, disk_, options({"/c"}, 8), "other");
  ASSERT_TRUE(run(other.node->open()));
  run(other.serve());
  const auto chain = [&] { return other.node->member().routing().chain(1); };
  {
    Process process(stage_, disk_, options({"/a", "/b"}, 7), GetParam());
    ASSERT_TRUE(run(process.node->open()));
    run(process.serve());
    until([&] {
      const cluster::Routing& routing = other.node->member().routing();
      return routing.node(7) != nullptr && routing.node(8) != nullptr;
    });
    make_chain(2, 8);
    until([&] {
      return chain() != nullptr && std::ranges::all_of(chain()->targets, [](const auto& target) {
               return target.state == cluster::TargetState::serving;
             });
    });
    run(process.node->drain());
    run(process.close());
  }
  const cluster::TargetId id = std::ranges::find(chain()->targets, 7u, &cluster::Target::node)->id;
  Process process(stage_, disk_, options({"/a"}), GetParam());
  ASSERT_TRUE(run(process.node->open()));
  run(process.serve());
  const auto disks_with_trouble = [&] {
    const auto status = call(cluster::kStatus, cluster::wire::StatusRequest());
    size_t count = 0;
    for (const auto& node : status->nodes()) {
      for (const auto& disk : node.disks()) count += disk.trouble().empty() ? 0 : 1;
    }
    return count;
  };
  until([&] { return disks_with_trouble() == 1; });
  stage_.world.run_for(15 * kSecond);
  EXPECT_EQ(disks_with_trouble(), 1u) << "its target is not replaced yet";
  cluster::wire::ReplaceTargetRequest replace;
  replace.set_target(id);
  replace.mutable_place()->set_node(7);
  replace.mutable_place()->set_disk(1);
  ASSERT_TRUE(call(cluster::kReplaceTarget, std::move(replace)));
  until([&] { return disks_with_trouble() == 0; });
  until([&] { return process.node->member().routing().node(7)->disks.size() == 1; });
  EXPECT_EQ(process.node->member().routing().node(7)->disks.front().id, 1u);
  for (Process* const each : {&process, &other}) {
    run(each->close());
  }
}

// A chain of a node whose disk fails, and one whose disk does not.
class FailingDiskTest : public StorageNodeTest {
 protected:
  void SetUp() override {
    init();
    ASSERT_TRUE(run(failing_.node->open()));
    run(failing_.serve());
    ASSERT_TRUE(run(sound_.node->open()));
    run(sound_.serve());
    until([&] { return failing_.node->member().routing().node(8) != nullptr; });
    make_chain(1, 8);
    until([&] { return serving() == 2; });
  }
  void TearDown() override {
    run(client_.close());
    run(routing_.close());
    for (Process* const each : {&failing_, &sound_}) {
      run(each->close());
    }
  }
  // Serving targets of the chain, as node 8 knows.
  size_t serving() {
    const cluster::Chain* const chain = sound_.node->member().routing().chain(1);
    if (chain == nullptr) return 0;
    return static_cast<size_t>(
        std::ranges::count(chain->targets, cluster::TargetState::serving, &cluster::Target::state));
  }
  Result<ChainClient::UpdateResult> write(uint64_t index, std::string_view text) {
    if (!polling_) gate_.spawn(routing_.run());
    polling_ = true;
    return run(client_.update(1, {.id = {1, index},
                                  .type = chunk::UpdateType::write,
                                  .data = as_bytes(text),
                                  .chunk_size = kMiB}));
  }
  // Content of a chunk on the failing disk; empty: it is not there.
  std::string stored(uint64_t index) {
    chunk::ChunkStore* const store = disk_at(*failing_.node, "/a").store.get();
    if (store == nullptr) return "";
    std::string text(100, '?');
    const auto read = run(store->read({.target = store->targets().front().id, .id = {1, index}},
                                      std::as_writable_bytes(std::span(text))));
    return read ? text.substr(0, read->bytes) : "";
  }

  sim::SimDisk sound_disk_{2, stage_.world.clock()};
  Process failing_{stage_, disk_, options({"/a"}, 7), GetParam()};
  Process sound_{stage_, sound_disk_, options({"/c"}, 8), "other"};
  cluster::RoutingCache routing_{context_, manager_addresses(),
                                 [this] { client_.on_routing_change(); }};
  ChainClient client_{context_, routing_.routing(), [this] { routing_.refresh(); }};
  Gate gate_{stage_.world.loop()};
  bool polling_ = false;
};

TEST_P(FailingDiskTest, ATargetReturnsWhenItsDiskWorksAgain) {
  ASSERT_TRUE(write(0, "before"));
  disk_.set_fault(sim::SimOp::write, 1, EIO);
  ASSERT_TRUE(write(1, "meanwhile"));
  until([&] { return serving() == 1; });
  ASSERT_TRUE(write(2, "without it"));
  stage_.world.run_for(60 * kSecond);
  EXPECT_EQ(serving(), 1u) << "the disk does not work yet";
  EXPECT_FALSE(disk_at(*failing_.node, "/a").error.empty());
  disk_.set_fault(sim::SimOp::write, 0, 0);
  until([&] { return serving() == 2; });
  EXPECT_EQ(disk_at(*failing_.node, "/a").error, "");
  EXPECT_EQ(stored(0), "before");
  EXPECT_EQ(stored(1), "meanwhile");
  EXPECT_EQ(stored(2), "without it");
  ASSERT_TRUE(write(3, "with it"));
  EXPECT_EQ(stored(3), "with it");
}

// As on Linux, pages that a sync could not write seem to be there until they leave the cache.
TEST_P(FailingDiskTest, WhatAFailedSyncDroppedIsWrittenAgain) {
  ASSERT_TRUE(write(0, "one"));
  stage_.world.run_for(5 * kSecond);
  disk_.set_fault(sim::SimOp::sync, 1, EIO);
  ASSERT_TRUE(write(0, "two"));
  ASSERT_TRUE(write(1, "new"));
  until([&] { return serving() == 1; });
  disk_.set_fault(sim::SimOp::sync, 0, 0);
  until([&] { return serving() == 2; });
  ASSERT_TRUE(run(client_.sync(1)));
  disk_.crash();
  run(failing_.close());
  disk_.power_loss();
  Process again(stage_, disk_, options({"/a"}, 7), GetParam());
  ASSERT_TRUE(run(again.node->open()));
  chunk::ChunkStore& store = *disk_at(*again.node, "/a").store;
  EXPECT_EQ(store.rolled_back_chunks(), 0u);
  for (const uint64_t index : {0, 1}) {
    std::string text(3, '?');
    const auto read = run(store.read({.target = store.targets().front().id, .id = {1, index}},
                                     std::as_writable_bytes(std::span(text))));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(text, index == 0 ? "two" : "new");
  }
  run(again.node->close());
}

TEST_P(FailingDiskTest, AnotherDiskInItsPlaceIsNotTakenForIt) {
  disk_.set_fault(sim::SimOp::write, 1, EIO);
  ASSERT_TRUE(write(1, "meanwhile"));
  until([&] { return serving() == 1; });
  disk_.set_fault(sim::SimOp::write, 0, 0);
  ASSERT_TRUE(chunk::write_identity(disk_, "/a", {"cluster", "9", 7}));
  const auto told = [&](std::string_view what) {
    return disk_at(*failing_.node, "/a").error.find(what) != std::string::npos;
  };
  until([&] { return told("this is disk 9 of node 7, not disk 1"); });
  EXPECT_EQ(serving(), 1u);
}

// Each disk of node 7 with a chain of its own, and a client.
class ShardsTest : public OnceServedTest {
 protected:
  void SetUp() override {
    OnceServedTest::SetUp();
    process_.emplace(stage_, disk_, options({"/a", "/b"}), GetParam());
    ASSERT_TRUE(run(process_->node->open()));
    run(process_->serve());
    until([&] { return serving(*process_->node, 1) && serving(*process_->node, 2); });
    gate_.spawn(routing_.run());
    until([&] { return routing_.routing().node(7) != nullptr; });
  }
  void TearDown() override {
    run(routing_.close());
    run(process_->close());
  }
  // Updates and reads a chunk of each chain.
  void use(const cluster::Routing& routing) {
    ChainClient client(context_, routing, [] {});
    for (const cluster::ChainId chain : {1, 2}) {
      const std::string text = fmt::format("of chain {}", chain);
      ASSERT_TRUE(run(client.update(chain, {.id = {1, chain},
                                            .type = chunk::UpdateType::write,
                                            .data = as_bytes(text),
                                            .chunk_size = kMiB})));
      std::string bytes(text.size(), '?');
      std::vector<ChainClient::ReadIo> reads(1);
      reads[0] = {
          .chain = chain, .id = {1, chain}, .into = std::as_writable_bytes(std::span(bytes))};
      EXPECT_TRUE(run(client.read(reads)).front());
      EXPECT_EQ(bytes, text);
    }
    run(client.close());
  }
  uint64_t handovers() {
    const std::string text = stage_.metrics.text();
    const std::string name = "\nff_shard_handovers_total ";
    const size_t at = text.find(name);
    return at == std::string::npos ? UINT64_MAX : std::stoull(text.substr(at + name.size()));
  }

  std::optional<Process> process_;
  cluster::RoutingCache routing_{context_, manager_addresses(), [] {}};
  Gate gate_{stage_.world.loop()};
};

TEST_P(ShardsTest, AClientTalksToTheShardOfEachTarget) {
  for (const cluster::DiskInfo& disk : routing_.routing().node(7)->disks) {
    const bool one = GetParam() == 1;
    EXPECT_EQ(disk.shard, one ? std::nullopt : std::optional<uint32_t>(disk.id - 1));
  }
  use(routing_.routing());
  EXPECT_EQ(handovers(), 0u);
}

TEST_P(ShardsTest, AClientThatKnowsNoShardsIsServedToo) {
  cluster::Routing routing = routing_.routing();
  for (auto& [id, node] : routing.nodes) {
    for (cluster::DiskInfo& disk : node.disks) disk.shard.reset();
  }
  use(routing);
  EXPECT_EQ(handovers(), GetParam() == 1 ? 0u : 2u);
}

// A heartbeat confirms no routing that a shard does not know: while one hangs, there is none.
TEST_P(ShardsTest, AHangingShardEndsTheLeaseOfItsNode) {
  if (GetParam() == 1) return;
  process_->loops.front()->set_paused(true);
  stage_.world.run_for(20 * kSecond);
  EXPECT_FALSE(process_->node->member().has_lease(stage_.world.now_ns()));
  process_->loops.front()->set_paused(false);
  until([&] { return serving(*process_->node, 1) && serving(*process_->node, 2); });
  use(routing_.routing());
}

const auto kShardCounts = testing::Values(1, 2);
INSTANTIATE_TEST_SUITE_P(Shards, StorageNodeTest, kShardCounts);
INSTANTIATE_TEST_SUITE_P(Shards, OnceServedTest, kShardCounts);
INSTANTIATE_TEST_SUITE_P(Shards, FailingDiskTest, kShardCounts);
INSTANTIATE_TEST_SUITE_P(Shards, ShardsTest, kShardCounts);

}  // namespace
}  // namespace ff::chain
