// storage_node.cc: start, main loop and shutdown of a storage node.
#include "storage/chain/storage_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "platform/base/log.h"
#include "storage/chunk/layout.h"
#include "storage/cluster/disk_utilization.h"

namespace ff::chain {

namespace {

constexpr int64_t kPollNs = 100 * kMillisecond;
constexpr int64_t kMeasureIntervalNs = 2 * kSecond;
constexpr int64_t kSaveIntervalNs = kSecond;  // minimum interval
constexpr int64_t kPruneIntervalNs = 10 * kSecond;
constexpr size_t kScrubChunks = 4;  // chunks per step
constexpr int64_t kScrubLeastNs = kMillisecond;
constexpr int64_t kScrubPauseNs = 60 * kSecond;   // between two passes
constexpr int64_t kDrainTimeoutNs = 4 * kSecond;  // time for the manager to react

// Whether the chain relies on the target.
bool in_use(cluster::TargetState state) {
  return state == cluster::TargetState::serving || state == cluster::TargetState::syncing;
}

}  // namespace

StorageNode::Runtime::Runtime(StorageNode& node, cluster::NodeInfo self, cluster::Routing held)
    : member(std::move(self), std::move(held)),
      heartbeats(node.context_, node.managers_, member,
                 [&node] {
                   node.runtime_->replicas.on_routing_change();
                   node.changed_.set();
                 }),
      nodes(node.context_, member.routing()),
      copy_limiter(node.loop_, node.options_.copy_rate),
      buffers(node.options_.arena),
      context{
          node.loop_,
          member,
          nodes,
          node.context_.rng,
          copy_limiter,
          buffers,
          node.context_.metrics,
          [this] { heartbeats.request_heartbeat(); },
          [&node](cluster::TargetId id, const Error& error) { node.on_target_failed(id, error); },
          node.context_.transport.keyring()},
      replicas(node.router_, context) {
  heartbeats.report_held_back([this] { return replicas.held_back(); });
}

StorageNode::StorageNode(rpc::ClientContext& context, io::Disk& disk, rpc::Router& router,
                         const std::vector<net::Address>& managers, StorageOptions options)
    : context_(context),
      loop_(context.loop),
      disk_(disk),
      router_(router),
      managers_(managers),
      options_(std::move(options)),
      changed_(context.loop),
      gate_(context.loop) {}

StorageNode::~StorageNode() = default;

Task<Result<void>> StorageNode::open() {
  FF_CO_TRY(read_identities());
  if (node_ == 0) {
    FF_CO_TRY(co_await create_disks());
  } else {
    FF_CO_TRY(co_await open_disks());
    FF_CO_TRY(assign_disk_ids());
    for (const size_t at : std::exchange(blank_, {})) {
      FF_CO_TRY(co_await create_disk(disks_[at]));
    }
  }
  measure_disks();
  runtime_ = std::make_unique<Runtime>(*this, self(), saved_.routing);
  for (DiskState& disk : disks_) {
    if (disk.store == nullptr) continue;
    for (const chunk::TargetInfo& target : disk.store->targets()) {
      runtime_->replicas.add(*disk.store, target.id, target.chain);
    }
  }
  co_await save_node_record(true);
  co_return Result<void>();
}

cluster::NodeInfo StorageNode::self() const {
  // The wall clock may go backwards, and the saved generation may be on a missing disk; their
  // maximum grows.
  const auto now_ms = static_cast<uint64_t>(loop_.clock().wall_ns() / kMillisecond);
  cluster::NodeInfo node{.id = node_,
                         .name = options_.name,
                         .generation = std::max(saved_.generation + 1, now_ms),
                         .addresses = addresses_,
                         .domain = options_.domain};
  for (const DiskState& disk : disks_) {
    if (disk.id == 0 || disk.replaced) continue;
    node.disks.push_back({disk.id, disk.dir, disk.space.total});
  }
  return node;
}

void StorageNode::start(std::vector<std::string> addresses) {
  runtime_->member.set_addresses(std::move(addresses));
  gate_.spawn(runtime_->heartbeats.run());
  gate_.spawn(run());
  gate_.spawn(prune());
  if (options_.scrub_rate > 0) gate_.spawn(scrub());
}

Task<void> StorageNode::run() {
  for (;;) {
    changed_.reset();
    if (loop_.now_ns() - measured_ns_ > kMeasureIntervalNs) measure_disks();
    co_await create_targets();
    co_await remove_replaced_targets();
    retry_failed_targets();
    reopen_failed_disks();
    forget_replaced_disks();
    report_disks();
    runtime_->replicas.on_routing_change();
    if (runtime_->member.has_unreported_changes()) runtime_->heartbeats.request_heartbeat();
    const bool note_is_old = runtime_->member.routing().version != saved_version_;
    if (note_is_old && loop_.now_ns() - saved_ns_ >= kSaveIntervalNs) {
      co_await save_node_record(false);
    }
    const auto waited = co_await changed_.wait(loop_.now_ns() + kPollNs);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

Task<void> StorageNode::create_targets() {
  for (const cluster::TargetId id : runtime_->member.targets_to_create()) {
    if (runtime_->replicas.find(id) != nullptr || failed_.contains(id)) continue;
    DiskState* const disk = disk_of(id);
    if (disk == nullptr || disk->store == nullptr || !disk->store->health()) continue;
    const cluster::ChainId chain = *runtime_->member.chain_of(id);
    const auto made = co_await create_target(*disk, id, chain);
    if (made) continue;
    on_target_failed(id, made.error());
  }
}

Task<Result<void>> StorageNode::create_target(DiskState& disk, cluster::TargetId id,
                                              cluster::ChainId chain) {
  FF_CO_TRY(co_await disk.store->create_target(id, chain));
  FF_CO_TRY(co_await disk.store->sync());
  runtime_->replicas.add(*disk.store, id, chain);
  log_info("created a target", {{"target", id}, {"chain", chain}, {"disk", disk.id}});
  co_return Result<void>();
}

// Removes targets that were replaced: once the chain is complete without them nobody needs their
// data. A target that was set aside stays until the manager drops it.
Task<void> StorageNode::remove_replaced_targets() {
  for (DiskState& disk : disks_) {
    if (disk.store == nullptr || !disk.store->health()) continue;
    for (const chunk::TargetInfo& target : disk.store->targets()) {
      const cluster::Chain* const chain = runtime_->member.routing().chain(target.chain);
      if (chain == nullptr || cluster::find_target(*chain, target.id) != nullptr) continue;
      const cluster::SetAside* const aside = cluster::find_set_aside(*chain, target.id);
      const bool whole = std::ranges::all_of(
          chain->targets, [](const auto& it) { return it.state == cluster::TargetState::serving; });
      if (aside == nullptr ? !whole : !aside->dropped) continue;
      if (!runtime_->member.has_lease(loop_.now_ns())) continue;
      co_await runtime_->replicas.remove(target.id);
      const auto dropped = co_await disk.store->remove_target(target.id);
      if (dropped) log_info("removed a replaced target", {{"target", target.id}});
    }
  }
}

// Prunes channel results and tombstones. The wall clock may jump: an entry is expired only if it is
// so by every clock reading since its creation, and this process has been reading for the whole
// retention time.
Task<void> StorageNode::prune() {
  std::deque<std::pair<int64_t, int64_t>> readings;  // steady, wall
  for (;;) {
    readings.emplace_back(loop_.now_ns(), loop_.clock().wall_ns());
    const auto waited = co_await sleep_for(loop_, kPruneIntervalNs);
    if (!waited) co_return;
    const int64_t from_ns = loop_.now_ns() - chunk::kRetentionNs;
    while (readings.size() > 1 && readings[1].first <= from_ns) readings.pop_front();
    if (readings.front().first > from_ns) continue;
    int64_t now_ns = loop_.clock().wall_ns();
    for (const auto& [steady, wall] : readings)
      now_ns = std::min(now_ns, wall + chunk::kRetentionNs);
    for (const DiskState& disk : disks_) {
      const auto store = disk.store;
      if (store == nullptr || !store->health()) continue;
      for (bool more = true; more;) {
        const auto pruned = co_await store->prune_results(now_ns);
        more = pruned && *pruned;
      }
      for (const chunk::TargetInfo& target : store->targets()) {
        if (Replica* const at = replica(target.id)) at->start_prune(now_ns);
      }
    }
  }
}

// Scrubs all chunks repeatedly: verifies checksums, then compares with the successor.
Task<void> StorageNode::scrub() {
  RateLimiter limiter(loop_, options_.scrub_rate);
  for (;;) {
    for (const DiskState& disk : disks_) {
      const auto store = disk.store;
      if (store == nullptr) continue;
      for (const chunk::TargetInfo& target : store->targets()) {
        if (!store->health()) break;  // reopen() waits for this
        const auto scrubbed = co_await scrub_target(*store, target.id, limiter);
        if (!scrubbed && scrubbed.error().code == Errc::interrupted) co_return;
        if (Replica* const at = replica(target.id)) at->start_compare();
      }
    }
    const auto waited = co_await sleep_for(loop_, kScrubPauseNs);
    if (!waited) co_return;
  }
}

Task<Result<void>> StorageNode::scrub_target(chunk::ChunkStore& store, cluster::TargetId id,
                                             RateLimiter& limiter) {
  std::optional<chunk::ChunkId> from = chunk::ChunkId();
  while (from) {
    FF_CO_TRY(store.health());
    FF_CO_TRY(const chunk::ScrubPage page, co_await store.scrub(id, *from, kScrubChunks));
    Replica* const found = replica(id);
    for (const chunk::ChunkId& bad : page.damaged) {
      if (found != nullptr) found->report_damaged(bad);
    }
    from = page.next;
    FF_CO_TRY(co_await limiter.acquire(page.bytes));
    auto waiting = sleep_for(loop_, kScrubLeastNs);
    FF_CO_TRY(co_await waiting);
  }
  co_return Result<void>();
}

StorageNode::DiskState* StorageNode::disk_of(cluster::TargetId id) {
  const auto chain = runtime_->member.chain_of(id);
  if (!chain) return nullptr;
  const auto* const target = cluster::find_target(*runtime_->member.routing().chain(*chain), id);
  const auto found = std::ranges::find(disks_, target->disk, &DiskState::id);
  return found == disks_.end() ? nullptr : &*found;
}

// Space available for chunks: free blocks, and whole groups that the file system has space for
// (chunk/block_store.h). A disk is full when its file system has less space than one group of the
// size classes in use.
uint64_t StorageNode::available_bytes(const DiskState& disk) {
  const uint64_t kept = disk.space.total / 100 * (100 - cluster::kFullPercent);
  const uint64_t left = disk.space.free - std::min(disk.space.free, kept);
  if (disk.store == nullptr) return left;
  uint64_t room = 0;
  uint64_t group = 0;
  for (const chunk::SizeClassUsage& usage : disk.store->usage()) {
    if (usage.reserved_bytes == 0) continue;
    const uint64_t block = chunk::block_bytes(usage.size_class);
    room += usage.reserved_bytes - usage.used_blocks * block;
    group = std::max(group, chunk::group_bytes(usage.size_class));
  }
  return left < group ? room : room + left;
}

void StorageNode::report_disks() {
  std::vector<cluster::DiskUsage> use;
  for (DiskState& disk : disks_) {
    if (disk.replaced) continue;
    const auto health = disk.store == nullptr ? Result<void>() : disk.store->health();
    if (!health && disk.error.empty()) {
      disk.error = health.error().message;
      log_error("a disk has failed", {{"disk", disk.id}, {"cause", disk.error}});
    }
    cluster::DiskUsage& usage = use.emplace_back();
    usage = {.disk = disk.id,
             .used = disk.space.total - std::min(disk.space.total, available_bytes(disk)),
             .error = disk.error};
    if (disk.store == nullptr) continue;
    for (const chunk::TargetInfo& target : disk.store->targets()) {
      if (runtime_->replicas.find(target.id) == nullptr) continue;
      const auto bad = failed_.find(target.id);
      if (bad != failed_.end() && usage.error.empty()) {
        usage.error = fmt::format("target {}: {}", target.id, bad->second.reason);
      }
      if (target.damaged > 0 && usage.error.empty()) {
        usage.error = fmt::format(
            "target {}: {} of its {} chunks are damaged or missing, and do not count as replicas "
            "until other targets have restored them",
            target.id, target.damaged, target.chunks);
      }
      runtime_->member.set_usable(target.id, health.ok() && bad == failed_.end() && !draining_);
      runtime_->member.set_size(target.id, {.chunks = target.chunks - target.removed,
                                            .bytes = target.bytes,
                                            .last_inode = target.last_inode});
    }
  }
  std::erase_if(use, [](const auto& it) { return it.disk == 0; });
  runtime_->member.set_disk_usage(std::move(use));
}

Task<void> StorageNode::drain() {
  if (runtime_ == nullptr) co_return;
  draining_ = true;
  changed_.set();
  const int64_t until_ns = loop_.now_ns() + kDrainTimeoutNs;
  for (;;) {
    bool counted_on = false;
    for (const auto& [id, chain] : runtime_->member.routing().chains) {
      for (const cluster::Target& target : chain.targets) {
        counted_on |= target.node == node_ && in_use(target.state);
      }
    }
    if (!counted_on) co_return;
    if (loop_.now_ns() >= until_ns || runtime_->heartbeats.last_error()) break;
    const auto waited = co_await sleep_for(loop_, kPollNs / 10);
    if (!waited) co_return;
  }
  log_warning("shutting down before the manager has confirmed that its chains continue");
}

Task<void> StorageNode::close() {
  Error over = fail(Errc::interrupted, "the storage node is shutting down");
  co_await gate_.close(std::move(over));
  if (runtime_ != nullptr) {
    co_await runtime_->replicas.close();
    co_await runtime_->heartbeats.close();
    co_await runtime_->nodes.close();
  }
  for (DiskState& disk : disks_) {
    if (disk.store == nullptr || !disk.store->health()) continue;
    const auto closed = co_await disk.store->close();
    if (closed) continue;
    log_error("cannot close a disk properly",
              {{"disk", disk.id}, {"cause", closed.error().message}});
  }
}

}  // namespace ff::chain
