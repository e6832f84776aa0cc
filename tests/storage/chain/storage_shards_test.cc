// Storage nodes whose shards run in threads of their own, with real sockets and disks: clients and
// other nodes reach each shard directly. ThreadSanitizer runs this.
#include <gtest/gtest.h>

#include "platform/base/log.h"
#include "platform/base/run_on.h"
#include "platform/kv/memory_engine.h"
#include "storage/chain/chain_client.h"
#include "storage/chain/storage_node.h"
#include "storage/cluster/manager_service.h"
#include "storage/cluster/routing_cache.h"
#include "storage/shard_thread.h"

namespace ff::chain {
namespace {

constexpr int64_t kPatienceNs = 120 * kSecond;

using test::LoopParts;
using test::Machine;
using test::ShardThread;

// A storage node with a disk for each shard.
class NodeProcess {
 public:
  NodeProcess(Machine& machine, cluster::NodeId id, int shards,
              const std::vector<net::Address>& managers)
      : machine_(machine), first_(machine, machine.loop, fmt::format("node {}", id)) {
    StorageOptions options{.node = id, .name = fmt::format("node {}", id), .boot_id = "boot"};
    options.direct = false;
    std::vector<ShardContext> contexts = {{first_.context, first_.router}};
    for (int i = 0; i < shards; ++i) {
      options.dirs.push_back(fmt::format("{}/{}-{}", machine.dir.path(), id, i));
      if (i == 0) continue;
      threads_.push_back(std::make_unique<ShardThread>(machine, fmt::format("node {}", id)));
      LoopParts& parts = threads_.back()->parts;
      contexts.push_back({parts.context, parts.router});
    }
    std::vector<rpc::Server*> servers = {&first_.server};
    for (const auto& thread : threads_) servers.push_back(&thread->parts.server);
    for (rpc::Server* const server : servers) {
      if (shards > 1) server->set_shards(servers);
    }
    node.emplace(std::move(contexts), machine.disk, managers, std::move(options));
  }

  Task<Result<void>> start() {
    FF_CO_TRY(co_await node->open());
    const net::Address any{"127.0.0.1", 0, ""};
    FF_CO_TRY(const net::Address at, first_.server.listen(any));
    std::vector<std::string> addresses = {at.text()};
    co_await node->start(std::move(addresses));
    co_return Result<void>();
  }
  Task<void> close() {
    co_await first_.server.close(0);
    for (const auto& thread : threads_) {
      LoopParts& parts = thread->parts;
      co_await run_on(machine_.loop, parts.calls, parts.server.close(0));
    }
    co_await node->close();
  }

  std::optional<StorageNode> node;

 private:
  Machine& machine_;
  LoopParts first_;
  std::vector<std::unique_ptr<ShardThread>> threads_;
};

// Node 1 has four shards, node 2 one. Chains 1 to 4 begin on node 1, chains 5 to 8 on node 2.
class ShardThreads : public testing::TestWithParam<net::NetMode> {
 protected:
  static constexpr int kShards = 4;

  void SetUp() override {
    log_setup({.level = LogLevel::error});
    const auto at = manager_.server.listen({"127.0.0.1", 0, ""});
    ASSERT_TRUE(at);
    managers_ = {*at};
    service_.start({.address = at->text(), .sole_manager = true});
    operator_.emplace(client_.context, managers_);
    command(cluster::kInit, cluster::wire::InitRequest());
    for (const auto& [id, shards] : {std::pair(1, kShards), std::pair(2, 1)}) {
      nodes_.push_back(std::make_unique<NodeProcess>(machine_, id, shards, managers_));
      const auto started = run_task(machine_.loop, nodes_.back()->start());
      ASSERT_TRUE(started) << started.error().message;
    }
    routing_.emplace(client_.context, managers_, [this] { client_changed(); });
    gate_.spawn(routing_->run());
    until([&] { return routing_->routing().nodes.size() == 2; });
    make_chains();
    until([&] { return serving() == 4u * kShards; });
  }
  void TearDown() override {
    run_task(machine_.loop, gate_.close(fail(Errc::interrupted, "the test is over")));
    if (routing_) run_task(machine_.loop, routing_->close());
    for (const auto& node : nodes_) run_task(machine_.loop, node->close());
    nodes_.clear();
    run_task(machine_.loop, operator_->close());
    run_task(machine_.loop, manager_.server.close(0));
    run_task(machine_.loop, service_.close());
  }

  template <class Condition>
  void until(Condition condition) {
    const int64_t end_ns = machine_.loop.now_ns() + kPatienceNs;
    run_task(machine_.loop, poll_until(machine_.loop, [&] {
               return condition() || machine_.loop.now_ns() > end_ns;
             }));
    ASSERT_TRUE(condition()) << "it does not come to that";
  }
  // Retries: a manager needs a moment to become primary.
  template <class Request, class Reply>
  void command(rpc::Method<Request, Reply> method, Request request) {
    const int64_t end_ns = machine_.loop.now_ns() + kPatienceNs;
    const auto done = run_task(
        machine_.loop, operator_->call(method, std::move(request), 2 * kSecond, end_ns, true));
    ASSERT_TRUE(done) << done.error().message;
  }
  void make_chains() {
    cluster::wire::CreateChainsRequest request;
    for (uint64_t i = 0; i < 2 * kShards; ++i) {
      auto& chain = *request.add_chains();
      auto& head = *chain.add_targets();
      auto& tail = *chain.add_targets();
      auto& sharded = i < kShards ? head : tail;
      auto& other = i < kShards ? tail : head;
      sharded.set_node(1);
      sharded.set_disk(1 + i % kShards);
      other.set_node(2);
      other.set_disk(1);
    }
    command(cluster::kCreateChains, std::move(request));
  }
  size_t serving() const {
    size_t count = 0;
    for (const auto& [id, chain] : routing_->routing().chains) {
      count += static_cast<size_t>(std::ranges::count(chain.targets, cluster::TargetState::serving,
                                                      &cluster::Target::state));
    }
    return count;
  }
  void client_changed() {
    if (current_ != nullptr) current_->on_routing_change();
  }

  static std::string text_of(uint64_t chain, uint64_t index) {
    return std::string(4096, static_cast<char>('a' + (chain + index) % 26));
  }
  // Updates and reads small pieces of one chunk of the chain.
  static Task<void> use_chain(ChainClient& client, uint64_t chain) {
    const chunk::ChunkId id{.inode = 1, .index = chain};
    for (uint64_t i = 0; i < 20; ++i) {
      const std::string text = text_of(chain, i);
      chunk::Update update;
      update.id = id;
      update.type = chunk::UpdateType::write;
      update.offset = i % 5 * text.size();
      update.data = as_bytes(text);
      update.chunk_size = kMiB;
      const auto done = co_await client.update(chain, update);
      EXPECT_TRUE(done) << done.error().message;
      std::string bytes(text.size(), '?');
      std::vector<ChainClient::ReadIo> reads(1);
      reads[0].chain = chain;
      reads[0].id = id;
      reads[0].offset = update.offset;
      reads[0].into = std::as_writable_bytes(std::span(bytes));
      const auto read = co_await client.read(std::move(reads));
      EXPECT_TRUE(read.front()) << read.front().error().message;
      EXPECT_EQ(bytes, text);
    }
    const auto synced = co_await client.sync(chain);
    EXPECT_TRUE(synced);
  }
  void use(const cluster::Routing& routing) {
    ChainClient client(client_.context, routing, [] {});
    current_ = &routing == &routing_->routing() ? &client : nullptr;
    Gate gate(machine_.loop);
    for (uint64_t chain = 1; chain <= 2 * kShards; ++chain) gate.spawn(use_chain(client, chain));
    run_task(machine_.loop, gate.wait_empty());
    current_ = nullptr;
    run_task(machine_.loop, client.close());
  }
  uint64_t handovers() const {
    const std::string text = machine_.metrics.text();
    const std::string name = "\nff_shard_handovers_total ";
    const size_t at = text.find(name);
    return at == std::string::npos ? UINT64_MAX : std::stoull(text.substr(at + name.size()));
  }

  Machine machine_{GetParam()};
  LoopParts manager_{machine_, machine_.loop, "manager"};
  LoopParts client_{machine_, machine_.loop, "client"};
  kv::MemoryStore store_;
  kv::MemoryEngine engine_{store_, machine_.loop, manager_.rng};
  cluster::ManagerService service_{engine_, machine_.loop, manager_.rng, manager_.router};
  std::vector<net::Address> managers_;
  std::optional<cluster::ManagerClient> operator_;
  std::vector<std::unique_ptr<NodeProcess>> nodes_;
  std::optional<cluster::RoutingCache> routing_;
  ChainClient* current_ = nullptr;
  Gate gate_{machine_.loop};
};

// An older client connects to the first shard, which hands its calls over.
TEST_P(ShardThreads, OnlyCallsOfOlderClientsChangeTheThread) {
  use(routing_->routing());
  EXPECT_EQ(handovers(), 0u);
  const auto status = nodes_.front()->node->status();
  ASSERT_EQ(status.size(), size_t{kShards});
  for (const DiskStatus& disk : status) EXPECT_EQ(disk.shard, disk.id - 1);
  cluster::Routing routing = routing_->routing();
  for (auto& [id, node] : routing.nodes) {
    for (cluster::DiskInfo& disk : node.disks) disk.shard.reset();
  }
  use(routing);
  EXPECT_GT(handovers(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Transports, ShardThreads,
                         testing::Values(net::NetMode::tcp, net::NetMode::automatic));

}  // namespace
}  // namespace ff::chain
