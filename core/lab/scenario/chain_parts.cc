// chain_parts.cc: what lives in each process, and what programs do.
#include "lab/scenario/chain_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/clock.h"

namespace ff::scenario::chain_parts {

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
  note_routing();
  scrubbed_.reset();
  live_.reset();
  paused_ = false;
}

void StorageProcess::kill() {
  stage_.net.stop_process(name_);
  disk_.crash();
  stop();
  disk_.kill();
}

void StorageProcess::lose_power() {
  stage_.net.stop_machine(name_);
  machine_off_ = true;
  disk_.crash();
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

// As far as it has opened its disk, before which it serves nothing.
void StorageProcess::note_routing() {
  const chunk::Store* const at = store();
  if (at == nullptr) return;
  for (const chunk::TargetInfo& target : at->targets()) {
    if (live_->node.replica(target.id) == nullptr) continue;
    routing_version_ = std::max(routing_version_, live_->node.member().routing().version);
  }
}

bool StorageProcess::counted_on(const cluster::Routing& routing) const {
  if (routing.version <= routing_version_) return true;
  for (const auto& [id, chain] : routing.chains) {
    for (const cluster::Target& target : chain.targets) {
      if (target.node == id_ && target.state != cluster::State::offline) return true;
    }
  }
  return false;
}

void StorageProcess::lose_files(const cluster::Routing& routing) {
  if (live_ != nullptr || counted_on(routing)) return;
  const auto entries = disk_.list(kDir);
  if (!entries) return;
  stage_.faults++;
  for (const io::DirEntry& entry : *entries) {
    const bool blocks = entry.name.ends_with(".data") || entry.name.ends_with(".crc");
    if (!blocks || stage_.rng.below(2) == 0) continue;
    const std::string path = fmt::format("{}/{}", kDir, entry.name);
    if (stage_.rng.below(2) == 0) {
      FF_CHECK(disk_.remove(path).ok() && disk_.sync_dir(kDir).ok());
      continue;
    }
    const auto file = disk_.open(path, {.access = io::Access::read_write});
    FF_CHECK(file.ok());
    const uint64_t size = (*file)->info()->size;
    // A disk whose writes fail just now keeps its file.
    if ((*file)->truncate(stage_.rng.below(size + 1))) FF_CHECK((*file)->sync().ok());
  }
}

void StorageProcess::begin_scrub() {
  scrubbed_.reset();
  if (live_ != nullptr) live_->gate.spawn(scrub(*live_));
}

Task<void> StorageProcess::scrub(Live& live) {
  uint64_t bad = 0;
  chunk::Store* const at = store();
  if (at == nullptr) co_return;
  for (const chunk::TargetInfo& target : at->targets()) {
    auto scrubbing = at->scrub(target.id, {}, SIZE_MAX - 1);
    const auto page = co_await std::move(scrubbing);
    if (!page) co_return;
    bad += page->bad.size();
  }
  if (&live == live_.get()) scrubbed_ = bad;
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

}  // namespace ff::scenario::chain_parts
