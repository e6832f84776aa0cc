// chain_parts.cc: the objects of each process, and its start and stop.
#include "lab/scenario/chain_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/clock.h"
#include "platform/io/files.h"

namespace ff::scenario::chain_parts {

namespace {

constexpr const char* kDir = "/disk";
constexpr const char* kMemoryDir = "/shm";

}  // namespace

struct StorageProcess::Live {
  Live(ClusterSimulation& simulation, const std::string& name, sim::SimDisk& disk,
       chain::StorageOptions options)
      : loop(simulation.world, cluster_parts::skew(simulation.rng)),
        transport(simulation.net.transport(name)),
        client{loop,           *transport,
               grants,         simulation.metrics,
               simulation.rng, simulation.identity(name)},
        node({chain::ShardContext{client, router}}, disk, cluster_parts::manager_addresses(),
             std::move(options)),
        server(loop, *transport, router, simulation.metrics, simulation.identity(name)),
        gate(loop) {}

  const auto& disks() const { return node.shards().front()->disks(); }

  sim::SimLoop loop;
  rpc::GrantScheduler grants;
  std::unique_ptr<net::Transport> transport;
  rpc::ClientContext client;
  rpc::Router router;
  chain::StorageNode node;
  rpc::Server server;
  Gate gate;
};

StorageProcess::StorageProcess(ClusterSimulation& simulation, cluster::NodeId id, uint64_t seed)
    : simulation_(simulation),
      id_(id),
      name_(fmt::format("node{}", id)),
      disk_(seed, simulation.world.clock()),
      memory_(seed, simulation.world.clock()) {
  start();
}

StorageProcess::~StorageProcess() = default;

void StorageProcess::start() {
  if (std::exchange(machine_off_, false)) simulation_.net.start_machine(name_);
  FF_CHECK(io::make_dirs(memory_, kMemoryDir).ok());
  // Half of the processes use direct writes only, the others buffered writes too.
  const uint64_t paged = simulation_.rng.below(2) == 0 ? 0 : chunk::kBufferedWriteMax;
  // Small segments: their checkpoints move data out of the log.
  const uint64_t segment = (uint64_t{16} << id_ % 3) * kKiB;
  live_ = std::make_unique<Live>(simulation_, name_, disk_,
                                 chain::StorageOptions{.dirs = {kDir},
                                                       .node = id_,
                                                       .name = name_,
                                                       .boot_id = boot_,
                                                       .buffered_write_max = paged,
                                                       .log_segment_bytes = segment,
                                                       .commit_on = chunk::CommitOn::loop,
                                                       .memory_disk = &memory_,
                                                       .memory_dir = kMemoryDir});
  live_->gate.spawn(work(*live_));
}

void StorageProcess::stop() {
  note_routing();
  scrubbed_.reset();
  live_.reset();
  paused_ = false;
}

// Before the objects of the process are destroyed: their destructors may write.
void StorageProcess::crash_disks() {
  disk_.crash();
  memory_.crash();
}

void StorageProcess::kill() {
  simulation_.net.stop_process(name_);
  crash_disks();
  stop();
  disk_.kill();
  memory_.kill();
}

void StorageProcess::device_loss() {
  simulation_.net.stop_process(name_);
  crash_disks();
  stop();
  disk_.power_loss();
  disk_losses_++;
  memory_.kill();
}

void StorageProcess::power_loss() {
  simulation_.net.stop_machine(name_);
  machine_off_ = true;
  crash_disks();
  stop();
  disk_.power_loss();
  disk_losses_++;
  memory_.power_loss();
  boot_ += "+";
}

void StorageProcess::pause(bool paused) {
  if (live_ != nullptr) live_->loop.set_paused(paused);
  paused_ = paused && live_ != nullptr;
}

chunk::ChunkStore* StorageProcess::store() const {
  if (live_ == nullptr || live_->disks().empty()) return nullptr;
  return live_->disks().front().store.get();
}

chain::Replica* StorageProcess::replica(cluster::TargetId target) const {
  return live_ == nullptr ? nullptr : live_->node.replica(target);
}

// Counts only if the disk is open; before that the process serves nothing.
void StorageProcess::note_routing() {
  const chunk::ChunkStore* const at = store();
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
      if (target.node == id_ && target.state != cluster::TargetState::offline) return true;
    }
  }
  return false;
}

void StorageProcess::lose_files(const cluster::Routing& routing) {
  if (live_ != nullptr || counted_on(routing)) return;
  const auto entries = disk_.list(kDir);
  if (!entries) return;
  simulation_.faults++;
  for (const io::DirEntry& entry : *entries) {
    const bool blocks = entry.name.ends_with(".data") || entry.name.ends_with(".crc");
    if (!blocks || simulation_.rng.below(2) == 0) continue;
    const std::string path = fmt::format("{}/{}", kDir, entry.name);
    if (simulation_.rng.below(2) == 0) {
      FF_CHECK(disk_.remove(path).ok() && disk_.sync_dir(kDir).ok());
      continue;
    }
    const auto file = disk_.open(path, {.access = io::AccessMode::read_write});
    FF_CHECK(file.ok());
    const uint64_t size = (*file)->info()->size;
    // The truncation may fail because of an injected fault; then the file stays as it is.
    if ((*file)->truncate(simulation_.rng.below(size + 1))) FF_CHECK((*file)->sync().ok());
  }
}

void StorageProcess::begin_scrub() {
  scrubbed_.reset();
  if (live_ != nullptr) live_->gate.spawn(scrub(*live_));
}

Task<void> StorageProcess::scrub(Live& live) {
  uint64_t bad = 0;
  const auto at = store() == nullptr ? nullptr : live.disks().front().store;
  if (at == nullptr) co_return;
  for (const chunk::TargetInfo& target : at->targets()) {
    auto scrubbing = at->scrub(target.id, {}, SIZE_MAX - 1);
    const auto page = co_await std::move(scrubbing);
    if (!page) co_return;
    bad += page->damaged.size();
  }
  if (&live == live_.get()) scrubbed_ = bad;
}

Task<void> StorageProcess::work(Live& live) {
  const auto opened = co_await live.node.open();
  if (!opened) {
    simulation_.report_violation(
        fmt::format("{} cannot open its disk: {}", name_, opened.error().message));
    co_return;
  }
  FF_CHECK(live.server.listen({"", cluster_parts::kPort, ""}).ok());
  std::vector<std::string> addresses = {fmt::format("{}:{}", name_, cluster_parts::kPort)};
  co_await live.node.start(std::move(addresses));
}

std::string program_name(int number) { return fmt::format("program{}", number); }

Program::Program(ClusterSimulation& simulation, std::string name)
    : name_(std::move(name)),
      loop_(simulation.world, cluster_parts::skew(simulation.rng)),
      transport_(simulation.net.transport(name_)),
      context_{loop_,          *transport_,
               grants_,        simulation.metrics,
               simulation.rng, simulation.identity(name_)} {}

}  // namespace ff::scenario::chain_parts
