// A chain of storage nodes with one target each, on simulated disks. The test itself sets the
// states of the targets, in place of the cluster manager. RPCs run over a simulated network.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "platform/io/files.h"
#include "platform/io/test_bytes.h"
#include "platform/rpc/error_wire.h"
#include "platform/rpc/server.h"
#include "platform/sim/sim_disk.h"
#include "platform/sim/sim_net.h"
#include "platform/simd/crc32c.h"
#include "storage/chain/replica_service.h"
#include "storage/chain/wire.h"

namespace ff::chain {

constexpr cluster::ChainId kChain = 3;
constexpr uint64_t kChunkSize = 256 * kKiB;
constexpr chunk::ChunkId kA{1, 0};
constexpr chunk::ChunkId kB{1, 1};
using cluster::TargetState;

inline std::string text_of(uint64_t seed, size_t size) {
  SeededRng rng(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(rng.below(256));
  return text;
}

class ChainWorld {
 public:
  struct Node {
    Node(ChainWorld& world, uint64_t number, uint64_t seed)
        : name(fmt::format("n{}", number)), id(number), disk(seed, world.sim.clock()) {}
    const std::string name;
    const cluster::NodeId id;
    sim::SimDisk disk;
    std::string boot = "boot";
    uint64_t generation = 0;
    cluster::Routing kept;
    bool silent = false;  // gets no heartbeat responses
    bool made = false;
    bool broken = false;  // its target has failed
    struct Live;
    std::unique_ptr<Live> live;
  };

  explicit ChainWorld(size_t targets, uint64_t seed = 1)
      : rng(seed), net(sim, seed), transport(net.transport("client")), gate(sim.loop()) {
    truth.cluster = "cluster-1";
    truth.version = 1;
    cluster::Chain chain{.id = kChain, .version = 1, .changed = 1};
    for (size_t i = 0; i < targets; i++) {
      nodes.push_back(std::make_unique<Node>(*this, i + 1, seed * 100 + i));
      chain.targets.push_back({.id = target(i), .node = i + 1, .disk = 1});
      truth.nodes[i + 1] = {
          .id = i + 1, .name = nodes[i]->name, .addresses = {nodes[i]->name + ":7000"}};
    }
    truth.chains[kChain] = chain;
    for (size_t i = 0; i < targets; i++) start(i);
    gate.spawn(keep_leases());
    tell_all();
    std::vector<TargetState> all(targets, TargetState::serving);
    set(all);
    sim.run_for(10 * kMillisecond);
  }
  ~ChainWorld();

  static cluster::TargetId target(size_t i) { return 100 + i; }
  Replica& replica(size_t i);
  chunk::ChunkStore& store(size_t i);
  cluster::Member& member(size_t i);

  void start(size_t i);
  // Lets a target rejoin: starts its process if necessary, then it is syncing.
  void bring_back(size_t i) {
    if (!lives(i)) start(i);
    tell(i);
    change_one(i, TargetState::waiting);
    change_one(i, TargetState::syncing);
  }
  void change_one(size_t i, TargetState state) {
    std::vector<TargetState> states;
    for (size_t at = 0; at < nodes.size(); at++) states.push_back(at == i ? state : state_of(at));
    set(states);
  }
  // Whether it has reported a complete copy.
  bool copied(size_t i) {
    return member(i).local_state(target(i)) == cluster::LocalTargetState::uptodate &&
           state_of(i) == TargetState::syncing;
  }
  // Kills the process; lose_power() also crashes the machine.
  void kill(size_t i);
  void power_loss(size_t i);
  bool lives(size_t i) const { return nodes[i]->live != nullptr; }

  uint64_t version() const { return truth.chains.at(kChain).version; }
  // Sets new states, in the current order of the targets, and tells all nodes; then the chain is
  // reordered.
  void set(std::vector<TargetState> states) {
    change(std::move(states));
    tell_all();
  }
  void change(std::vector<TargetState> states) {
    cluster::Chain& chain = truth.chains.at(kChain);
    ASSERT_EQ(states.size(), chain.targets.size());
    for (size_t i = 0; i < states.size(); i++) state_of(i) = states[i];
    std::ranges::stable_sort(chain.targets, {}, &cluster::Target::state);
    chain.version++;
    chain.changed = ++truth.version;
  }
  TargetState& state_of(size_t i) {
    for (cluster::Target& at : truth.chains.at(kChain).targets) {
      if (at.id == target(i)) return at.state;
    }
    FF_CHECK(!"no such target");
    return truth.chains.at(kChain).targets[0].state;
  }
  // Delivers a heartbeat response; `joined`: all predecessors have confirmed.
  void tell(size_t i, bool joined = true);
  void tell_all() {
    for (size_t i = 0; i < nodes.size(); i++) {
      if (lives(i) && !nodes[i]->silent) tell(i);
    }
  }

  // Client calls to target `i`.
  struct Write {
    chunk::ChunkId id = {1, 0};
    chunk::UpdateType type = chunk::UpdateType::write;
    std::string data = {};
    uint64_t offset = 0;
    uint64_t length = 0;
    std::optional<uint64_t> expected_version = {};
    chunk::RequestId request_id = {};  // none: a new one
    uint64_t version = 0;              // chain version; 0: the newest
    std::optional<uint32_t> crc = {};
  };
  chunk::RequestId new_request_id() {
    return {.client = 77, .channel = next_channel_++, .sequence = 1};
  }
  Task<Result<wire::WriteReply>> send(size_t i, Write write);
  Task<Result<std::string>> get(size_t i, chunk::ChunkId id, uint64_t offset = 0,
                                uint64_t length = kChunkSize);
  Task<Result<uint64_t>> ask_sync(size_t i);
  Task<Result<wire::LastReply>> ask_last(size_t i, uint64_t inode);

  template <class T>
  T run(Task<T> task) {
    return run_task(sim.loop(), std::move(task));
  }
  void run(Task<void> task) { run_task(sim.loop(), std::move(task)); }
  Result<wire::WriteReply> write(size_t i, Write what) { return run(send(i, std::move(what))); }
  // "(CODE)" for an error.
  std::string read(size_t i, chunk::ChunkId id = {1, 0}) {
    auto got = run(get(i, id));
    return got ? *got : fmt::format("({})", errc_name(got.error().code));
  }
  // Starts the task without waiting.
  template <class T>
  void begin(Task<Result<T>> task, std::optional<Result<T>>& result) {
    gate.spawn([](Task<Result<T>> what, std::optional<Result<T>>& into) -> Task<void> {
      into = co_await std::move(what);
    }(std::move(task), result));
  }
  // Runs until the condition holds, at most for `most_ns`.
  template <class F>
  bool eventually(F condition, int64_t most_ns = 60 * kSecond) {
    const int64_t until_ns = sim.now_ns() + most_ns;
    while (!condition() && sim.now_ns() < until_ns) sim.run_for(kMillisecond);
    return condition();
  }
  static rpc::Identity identity(std::string name) {
    return {.name = std::move(name), .software = "ff test"};
  }
  // Compares all chunks of two targets, without pending versions and running updates.
  void expect_equal(size_t a, size_t b);

  // Flips a bit in each occurrence of these bytes on the disk of the node.
  void damage(size_t i, std::string_view needle);

  sim::SimWorld sim;
  SeededRng rng;
  sim::SimNet net;
  Metrics metrics;
  cluster::Routing truth;
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::string> failures;  // of targets

 private:
  Task<void> keep_leases() {
    for (;;) {
      const auto waited = co_await sleep_for(sim.loop(), kSecond);
      if (!waited) co_return;
      tell_all();
    }
  }

  uint64_t next_channel_ = 1;
  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport;
  std::optional<rpc::ClientContext> client_;
  std::optional<NodeClients> client_nodes_;
  Gate gate;
};

// The context of a client on a machine of its own, with the cluster key.
struct ClientMachine {
  ClientMachine(ChainWorld& world, const std::string& name)
      : transport(world.net.transport(name)), context{world.sim.loop(), *transport,
                                                      grants,           metrics,
                                                      world.rng,        world.identity(name)} {}

  Metrics metrics;
  rpc::GrantScheduler grants;
  std::unique_ptr<net::Transport> transport;
  rpc::ClientContext context;
};

struct ChainWorld::Node::Live {
  Live(ChainWorld& world, Node& node)
      : transport(world.net.transport(node.name)),
        client{world.sim.loop(), *transport, grants,
               world.metrics,    world.rng,  world.identity(node.name)},
        member({.id = node.id,
                .name = node.name,
                .generation = ++node.generation,
                .addresses = {node.name + ":7000"}},
               node.kept),
        nodes(client, member.routing()),
        limiter(world.sim.loop()),
        context{world.sim.loop(),
                member,
                nodes,
                world.rng,
                limiter,
                memory,
                metrics,
                [] {},
                [this, &world, &node](cluster::TargetId id, const Error& error) {
                  world.failures.push_back(fmt::format("{}: {}", node.name, error.message));
                  node.broken = true;
                  member.set_usable(id, false);
                },
                transport->keyring()},
        replicas(router, context),
        server(world.sim.loop(), *transport, router, metrics, world.identity(node.name)) {
    transport->keyring()->set_capability_keys({{1, auth::Key{}}});
  }

  rpc::GrantScheduler grants;
  Metrics metrics;
  std::unique_ptr<net::Transport> transport;
  rpc::ClientContext client;
  cluster::Member member;
  NodeClients nodes;
  RateLimiter limiter;
  BufferPool memory;
  ReplicaContext context;
  rpc::Router router;
  std::unique_ptr<chunk::ChunkStore> store;
  ReplicaService replicas;
  rpc::Server server;
};

inline ChainWorld::~ChainWorld() {
  run_task(sim.loop(), gate.close(fail(Errc::interrupted, "the test ends")));
  if (client_nodes_) run_task(sim.loop(), client_nodes_->close());
  for (size_t i = 0; i < nodes.size(); i++) {
    if (lives(i)) kill(i);
  }
}

inline Replica& ChainWorld::replica(size_t i) { return *nodes[i]->live->replicas.find(target(i)); }
inline chunk::ChunkStore& ChainWorld::store(size_t i) { return *nodes[i]->live->store; }
inline cluster::Member& ChainWorld::member(size_t i) { return nodes[i]->live->member; }

inline void ChainWorld::start(size_t i) {
  Node& node = *nodes[i];
  FF_CHECK(node.live == nullptr);
  node.live = std::make_unique<Node::Live>(*this, node);
  const chunk::ChunkStoreOptions options{
      .disk = node.disk,
      .loop = sim.loop(),
      .rng = rng,
      .dir = "/disk",
      .cluster = truth.cluster,
      .boot_id = node.boot,
      .commit_on = chunk::CommitOn::loop,
      .buffered_write_max = 0};  // a slow disk slows down whatever it does
  const bool fresh = !std::exchange(node.made, true);
  if (fresh) {
    ASSERT_TRUE(io::ok(chunk::ChunkStore::create(
        options, {.cluster = truth.cluster, .disk = "disk-" + node.name, .node = node.id})));
  }
  auto opened = run(chunk::ChunkStore::open(options));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  node.live->store = std::move(*opened);
  if (fresh) {
    ASSERT_TRUE(io::ok(run(store(i).create_target(target(i), kChain))));
    ASSERT_TRUE(io::ok(run(store(i).sync())));
  }
  node.live->replicas.add(store(i), target(i), kChain);
  ASSERT_TRUE(node.live->server.listen({node.name, 7000, ""}).ok());
  truth.nodes[node.id].generation = node.generation;
  truth.nodes[node.id].changed = ++truth.version;
}

inline void ChainWorld::kill(size_t i) {
  Node& node = *nodes[i];
  net.stop_process(node.name);
  node.disk.crash();
  node.live.reset();
  node.disk.kill();
}

inline void ChainWorld::power_loss(size_t i) {
  Node& node = *nodes[i];
  net.stop_process(node.name);
  node.disk.crash();
  node.live.reset();
  node.disk.power_loss();
  node.boot += "+";
}

inline void ChainWorld::tell(size_t i, bool joined) {
  Node& node = *nodes[i];
  cluster::Member& to = node.live->member;
  to.set_usable(target(i), !node.broken);
  const cluster::Heartbeat beat = to.next_heartbeat();
  cluster::HeartbeatResponse answer{.changes = truth.delta_since(beat.routing_version, kMiB)};
  if (joined) answer.predecessors.push_back({target(i), version()});
  ASSERT_TRUE(io::ok(to.on_response(beat, sim.now_ns(), answer)));
  node.kept = to.routing();
  node.live->replicas.on_routing_change();
}

inline Task<Result<wire::WriteReply>> ChainWorld::send(size_t i, Write write) {
  if (!client_nodes_) {
    client_.emplace(
        rpc::ClientContext{sim.loop(), *transport, grants_, metrics, rng, identity("client")});
    client_nodes_.emplace(*client_, truth);
  }
  if (write.request_id.sequence == 0) write.request_id = new_request_id();
  const int64_t deadline_ns = sim.now_ns() + 60 * kSecond;
  FF_CO_TRY(const auto client, client_nodes_->client_of(nodes[i]->id, kChain));
  FF_CO_TRY(auto channel, co_await client->channel(deadline_ns));
  rpc::BulkCall call(channel);
  wire::WriteRequest request;
  const chunk::Update update{.id = write.id,
                             .request_id = write.request_id,
                             .type = write.type,
                             .offset = write.offset,
                             .length = write.length,
                             .chunk_size = kChunkSize,
                             .expected_version = write.expected_version};
  to_wire(update, request);
  request.mutable_place()->set_chain(kChain);
  request.mutable_place()->set_chain_version(write.version == 0 ? version() : write.version);
  request.mutable_place()->set_target(target(i));
  const ByteView data = as_bytes(write.data);
  if (!data.empty()) {
    FF_CO_TRY(const net::RemoteBuffer buffer, call.source(data));
    rpc::to_wire(buffer, *request.mutable_data());
  }
  request.set_data_crc(write.crc.value_or(simd::crc32c(data)));
  co_return co_await call.run(kWrite, std::move(request), deadline_ns);
}

inline Task<Result<std::string>> ChainWorld::get(size_t i, chunk::ChunkId id, uint64_t offset,
                                                 uint64_t length) {
  const int64_t deadline_ns = sim.now_ns() + 60 * kSecond;
  FF_CO_TRY(const auto client, client_nodes_->client_of(nodes[i]->id, kChain));
  FF_CO_TRY(auto channel, co_await client->channel(deadline_ns));
  rpc::BulkCall call(channel);
  wire::ReadRequest request;
  request.mutable_place()->set_chain(kChain);
  request.mutable_place()->set_chain_version(version());
  request.mutable_place()->set_target(target(i));
  wire::ReadItem& item = *request.add_items();
  *item.mutable_chunk() = to_wire(id);
  item.set_offset(offset);
  std::string text(length, '?');
  FF_CO_TRY(const net::RemoteBuffer buffer, call.sink(std::as_writable_bytes(std::span(text))));
  rpc::to_wire(buffer, *item.mutable_sink());
  FF_CO_TRY(const wire::ReadReply reply, co_await call.run(kRead, std::move(request), deadline_ns));
  const wire::ReadDone& done = reply.items(0);
  if (done.has_error()) co_return rpc::from_wire(done.error());
  text.resize(done.bytes());
  if (simd::crc32c(as_bytes(text)) != done.crc()) co_return fail(Errc::corrupt, "on the way");
  co_return text;
}

inline Task<Result<uint64_t>> ChainWorld::ask_sync(size_t i) {
  FF_CO_TRY(const auto client, client_nodes_->client_of(nodes[i]->id, kChain));
  wire::SyncRequest request;
  request.mutable_place()->set_chain(kChain);
  request.mutable_place()->set_chain_version(version());
  request.mutable_place()->set_target(target(i));
  FF_CO_TRY(
      const wire::SyncReply reply,
      co_await rpc::call_method(*client, kSync, std::move(request), sim.now_ns() + 60 * kSecond));
  co_return reply.verifier();
}

inline Task<Result<wire::LastReply>> ChainWorld::ask_last(size_t i, uint64_t inode) {
  FF_CO_TRY(const auto client, client_nodes_->client_of(nodes[i]->id, kChain));
  wire::LastRequest request;
  request.mutable_place()->set_chain(kChain);
  request.mutable_place()->set_chain_version(version());
  request.mutable_place()->set_target(target(i));
  request.set_inode(inode);
  co_return co_await rpc::call_method(*client, kLast, std::move(request),
                                      sim.now_ns() + 60 * kSecond);
}

inline void ChainWorld::damage(size_t i, std::string_view needle) {
  sim::SimDisk& disk = nodes[i]->disk;
  ASSERT_TRUE(io::ok(run(store(i).sync())));
  size_t flipped = 0;
  const auto entries = disk.list("/disk").value();
  for (const io::DirEntry& entry : entries) {
    const std::string path = "/disk/" + entry.name;
    if (disk.info(path)->kind != io::FileKind::regular) continue;
    const std::string text = io::read_file(disk, path, kGiB).value();
    for (size_t at = text.find(needle); at != text.npos; at = text.find(needle, at + 1)) {
      ASSERT_TRUE(io::ok(disk.flip_bit(path, at * 8)));
      flipped++;
    }
  }
  EXPECT_GT(flipped, 0u);
}

inline void ChainWorld::expect_equal(size_t a, size_t b) {
  const auto all = [&](size_t i) { return store(i).list(target(i), {}, 100'000).value(); };
  const auto left = all(a);
  const auto right = all(b);
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); i++) {
    EXPECT_EQ(left[i].id, right[i].id);
    EXPECT_EQ(left[i].state, right[i].state) << to_string(left[i].id);
    EXPECT_FALSE(left[i].state.pending);
  }
}

}  // namespace ff::chain
