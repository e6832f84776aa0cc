// chain_parts.cc: the objects of each process, and its start and stop.
#include "lab/scenario/chain_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/clock.h"
#include "platform/io/files.h"

namespace ff::scenario::chain_parts {

namespace {

constexpr std::array kDirs = {"/disk", "/disk2"};
constexpr const char* kMemoryDir = "/shm";

}  // namespace

struct StorageProcess::Live {
  // A loop, and what only this loop uses.
  struct Shard {
    Shard(ClusterSimulation& simulation, net::Transport& transport, const std::string& name,
          sim::ClockSkew skew)
        : loop(simulation.world, skew), client{loop,           transport,
                                               grants,         simulation.metrics,
                                               simulation.rng, simulation.identity(name)} {}
    sim::SimLoop loop;
    rpc::GrantScheduler grants;
    rpc::ClientContext client;
    rpc::Router router;
  };
  using Shards = std::vector<std::unique_ptr<Shard>>;

  Live(ClusterSimulation& simulation, const std::string& name, sim::SimDisk& disk,
       chain::StorageOptions options, size_t count)
      : transport(simulation.net.transport(name)),
        shards(make_shards(simulation, *transport, name, count)),
        node(contexts(), disk, cluster_parts::manager_addresses(), std::move(options)),
        gate(shards.front()->loop) {
    std::vector<rpc::Server*> all;
    for (const auto& shard : shards) {
      servers.push_back(std::make_unique<rpc::Server>(
          shard->loop, *transport, shard->router, simulation.metrics, simulation.identity(name)));
      all.push_back(servers.back().get());
    }
    if (count > 1) servers.front()->set_shards(std::move(all));
  }

  // All have the clock of their machine.
  static Shards make_shards(ClusterSimulation& simulation, net::Transport& transport,
                            const std::string& name, size_t count) {
    const sim::ClockSkew skew = cluster_parts::skew(simulation.rng);
    Shards shards;
    for (size_t index = 0; index < count; ++index) {
      shards.push_back(std::make_unique<Shard>(simulation, transport, name, skew));
    }
    return shards;
  }
  std::vector<chain::ShardContext> contexts() const {
    std::vector<chain::ShardContext> contexts;
    for (const auto& shard : shards) contexts.push_back({shard->client, shard->router});
    return contexts;
  }

  std::unique_ptr<net::Transport> transport;
  Shards shards;
  chain::StorageNode node;
  std::vector<std::unique_ptr<rpc::Server>> servers;
  Gate gate;
};

StorageProcess::StorageProcess(ClusterSimulation& simulation, cluster::NodeId id, uint64_t seed,
                               size_t disks)
    : simulation_(simulation),
      id_(id),
      name_(fmt::format("node{}", id)),
      dirs_(kDirs.begin(), kDirs.begin() + disks),
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
  const size_t shards = dirs_.size() == 1 || simulation_.rng.below(4) == 0 ? 1 : dirs_.size();
  live_ = std::make_unique<Live>(
      simulation_, name_, disk_,
      chain::StorageOptions{.dirs = dirs_,
                            .node = id_,
                            .name = name_,
                            .boot_id = boot_,
                            .buffered_write_max = paged,
                            .log = chunk::MetadataLogLimits{.segment_bytes = segment},
                            .commit_on = chunk::CommitOn::loop,
                            .memory_disk = &memory_,
                            .memory_dir = kMemoryDir},
      shards);
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
  if (live_ != nullptr) {
    const auto& shards = live_->shards;
    const bool one = paused && shards.size() > 1 && simulation_.rng.below(2) == 0;
    const size_t only = one ? simulation_.rng.below(shards.size()) : 0;
    for (size_t index = 0; index < shards.size(); ++index) {
      if (!one || index == only) shards[index]->loop.set_paused(paused);
    }
  }
  paused_ = paused && live_ != nullptr;
}

std::vector<std::shared_ptr<chunk::ChunkStore>> StorageProcess::open_stores() const {
  std::vector<std::shared_ptr<chunk::ChunkStore>> stores;
  if (live_ == nullptr) return stores;
  for (const auto& shard : live_->node.shards()) {
    for (const auto& disk : shard->disks()) {
      if (disk.store != nullptr) stores.push_back(disk.store);
    }
  }
  return stores;
}

bool StorageProcess::disks_open() const { return open_stores().size() == dirs_.size(); }

chunk::ChunkStore* StorageProcess::store(cluster::TargetId target) const {
  for (const auto& at : open_stores()) {
    const auto targets = at->targets();
    if (std::ranges::find(targets, target, &chunk::TargetInfo::id) != targets.end()) {
      return at.get();
    }
  }
  return nullptr;
}

chain::Replica* StorageProcess::replica(cluster::TargetId target) const {
  return live_ == nullptr ? nullptr : live_->node.replica(target);
}

// Counts only if its disk is open; before that the process serves nothing.
void StorageProcess::note_routing() {
  for (const auto& at : open_stores()) {
    for (const chunk::TargetInfo& target : at->targets()) {
      if (live_->node.replica(target.id) == nullptr) continue;
      routing_version_ = std::max(routing_version_, live_->node.member().routing().version);
    }
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
  simulation_.faults++;
  for (const std::string& dir : dirs_) lose_files_in(dir);
}

void StorageProcess::lose_files_in(const std::string& dir) {
  const auto entries = disk_.list(dir);
  if (!entries) return;
  for (const io::DirEntry& entry : *entries) {
    const bool blocks = entry.name.ends_with(".data") || entry.name.ends_with(".crc");
    if (!blocks || simulation_.rng.below(2) == 0) continue;
    const std::string path = fmt::format("{}/{}", dir, entry.name);
    if (simulation_.rng.below(2) == 0) {
      FF_CHECK(disk_.remove(path).ok() && disk_.sync_dir(dir).ok());
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
  if (!disks_open()) co_return;
  for (const auto& at : open_stores()) {
    for (const chunk::TargetInfo& target : at->targets()) {
      auto scrubbing = at->scrub(target.id, {}, SIZE_MAX - 1);
      const auto page = co_await std::move(scrubbing);
      if (!page) co_return;
      bad += page->damaged.size();
    }
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
  FF_CHECK(live.servers.front()->listen({"", cluster_parts::kPort, ""}).ok());
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
