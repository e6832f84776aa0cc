// chain_parts.cc: what lives in each process, and what programs do.
#include "story/chain_parts.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace ff::story::chain_parts {

namespace {

constexpr const char* kDir = "/disk";
constexpr size_t kArena = 256 * kKiB;  // of a program

}  // namespace

struct StorageProcess::Live {
  Live(ClusterStage& stage, const std::string& name, sim::SimDisk& disk,
       chain::StorageOptions options)
      : loop(stage.world, cluster_parts::skew(stage.rng)),
        transport(stage.net.transport(name)),
        client{loop, *transport, senders, stage.metrics, stage.rng, stage.identity(name)},
        node(client, disk, router, cluster_parts::manager_addresses(), std::move(options)),
        server(loop, *transport, router, stage.metrics, stage.identity(name)),
        gate(loop) {}

  sim::SimLoop loop;
  rpc::Senders senders;
  std::unique_ptr<net::Transport> transport;
  rpc::ClientContext client;
  rpc::Router router;
  chain::StorageNode node;
  rpc::Server server;
  Gate gate;
};

StorageProcess::StorageProcess(ClusterStage& stage, cluster::NodeId id, uint64_t seed)
    : stage_(stage), id_(id), name_(fmt::format("node{}", id)), disk_(seed, stage.world.clock()) {
  start();
}

StorageProcess::~StorageProcess() = default;

void StorageProcess::start() {
  if (std::exchange(machine_off_, false)) stage_.net.start_machine(name_);
  // Half of them wait for their disk with every write, where others have their turn.
  const uint64_t paged = stage_.rng.below(2) == 0 ? 0 : chunk::kPagedMax;
  live_ = std::make_unique<Live>(stage_, name_, disk_,
                                 chain::StorageOptions{.dirs = {kDir},
                                                       .node = id_,
                                                       .name = name_,
                                                       .boot = boot_,
                                                       .paged_max = paged,
                                                       .commit_on = chunk::CommitOn::loop});
  live_->gate.spawn(work(*live_));
}

void StorageProcess::stop() {
  live_.reset();
  paused_ = false;
}

void StorageProcess::kill() {
  stage_.net.stop_process(name_);
  stop();
  disk_.kill();
}

void StorageProcess::lose_power() {
  stage_.net.stop_machine(name_);
  machine_off_ = true;
  stop();
  disk_.power_loss();
  boot_ += "+";
}

void StorageProcess::pause(bool paused) {
  if (live_ != nullptr) live_->loop.set_paused(paused);
  paused_ = paused && live_ != nullptr;
}

chunk::Store* StorageProcess::store() const {
  if (live_ == nullptr || live_->node.disks().empty()) return nullptr;
  return live_->node.disks().front().store.get();
}

chain::Replica* StorageProcess::replica(cluster::TargetId target) const {
  return live_ == nullptr ? nullptr : live_->node.replica(target);
}

Task<void> StorageProcess::work(Live& live) {
  auto opening = live.node.open();
  const auto opened = co_await std::move(opening);
  if (!opened) {
    stage_.broken(fmt::format("{} cannot open its disk: {}", name_, opened.error().message));
    co_return;
  }
  FF_CHECK(live.server.listen({"", cluster_parts::kPort, ""}).ok());
  live.node.start({fmt::format("{}:{}", name_, cluster_parts::kPort)});
}

Program::Program(ClusterStage& stage, std::string name)
    : name_(std::move(name)),
      loop_(stage.world, cluster_parts::skew(stage.rng)),
      transport_(stage.net.transport(name_)),
      context_{loop_, *transport_, senders_, stage.metrics, stage.rng, stage.identity(name_)} {}

ChainProgram::ChainProgram(ClusterStage& stage, int number, History& history)
    : Program(stage, fmt::format("program{}", number)),
      arena_(name() == kSharing ? stage.net.share_memory(name(), kShared, kArena) : ByteSpan()),
      load_(
          context(), cluster_parts::manager_addresses(), history,
          [&stage](std::string what) { stage.broken(std::move(what)); }, arena_) {}

}  // namespace ff::story::chain_parts
