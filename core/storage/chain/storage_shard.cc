// storage_shard.cc: the disks of a shard and their targets: start, main loop and end.
#include "storage/chain/storage_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "platform/base/log.h"
#include "storage/chunk/layout.h"
#include "storage/cluster/disk_utilization.h"
#include "storage/cluster/wire.h"

namespace ff::chain {

namespace {

constexpr int64_t kRunIntervalNs = 100 * kMillisecond;
constexpr int64_t kMeasureIntervalNs = 2 * kSecond;
constexpr int64_t kSaveIntervalNs = kSecond;  // minimum interval
constexpr int64_t kPruneIntervalNs = 10 * kSecond;
constexpr size_t kScrubChunks = 4;  // chunks per step
constexpr int64_t kScrubLeastNs = kMillisecond;
constexpr int64_t kScrubPauseNs = 60 * kSecond;  // between two passes

Result<NodeRecord> read_node_record(const chunk::ChunkStore& store) {
  NodeRecord record;
  if (store.owner_record().empty()) return record;
  cluster::wire::NodeNote note;
  if (!note.ParseFromString(store.owner_record())) {
    return fail(Errc::corrupt, "{}: the record of the storage node is malformed", store.dir());
  }
  FF_TRY(const cluster::RoutingDelta changes, cluster::from_wire(note.routing()));
  record.generation = note.generation();
  FF_TRY(record.routing.apply(changes));
  return record;
}

}  // namespace

bool is_operator_error(const Error& error) {
  return error.code == Errc::busy || error.code == Errc::refused ||
         error.code == Errc::newer_format;
}

StorageShard::Runtime::Runtime(StorageShard& shard, cluster::NodeInfo self, cluster::Routing held)
    : member(std::move(self), std::move(held)),
      nodes(shard.context_, member.routing()),
      copy_limiter(shard.loop_, shard.share_of(shard.options_.copy_rate)),
      buffers(shard.arena()),
      context{
          shard.loop_,
          member,
          nodes,
          shard.context_.rng,
          copy_limiter,
          buffers,
          shard.context_.metrics,
          shard.request_heartbeat_,
          [&shard](cluster::TargetId id, const Error& error) { shard.on_target_failed(id, error); },
          shard.context_.transport.keyring(),
          shard.number_.count},
      replicas(shard.router_, context) {}

StorageShard::StorageShard(ShardContext context, io::Disk& disk, const StorageOptions& options,
                           ShardNumber number, RequestHeartbeat request_heartbeat)
    : context_(context.client),
      loop_(context.client.loop),
      disk_(disk),
      router_(context.router),
      options_(options),
      number_(number),
      request_heartbeat_(std::move(request_heartbeat)),
      changed_(loop_),
      gate_(loop_),
      calls_(loop_) {}

StorageShard::~StorageShard() = default;

// Of a rate of the node; 0: no limit.
uint64_t StorageShard::share_of(uint64_t rate) const {
  return rate == 0 ? 0 : std::max<uint64_t>(1, rate / number_.count);
}

ByteSpan StorageShard::arena() const {
  const uint64_t size = options_.arena.size() / number_.count / chunk::kChunkMax * chunk::kChunkMax;
  return options_.arena.subspan(number_.index * size, size);
}

void StorageShard::set_identity(std::string cluster, cluster::NodeId node) {
  cluster_ = std::move(cluster);
  node_ = node;
}

chunk::MetadataLogLimits StorageShard::log_limits(const std::string& dir) const {
  if (options_.log) return *options_.log;
  const auto space = disk_.space(dir);
  return chunk::metadata_log_limits(space ? space->total : 0);
}

chunk::ChunkStoreOptions StorageShard::store_options(const std::string& dir) const {
  return {.disk = disk_,
          .loop = loop_,
          .rng = context_.rng,
          .dir = dir,
          .cluster = cluster_,
          .boot_id = options_.boot_id,
          .commit_on = options_.commit_on,
          .log = log_limits(dir),
          .direct = options_.direct,
          .buffered_write_max = options_.buffered_write_max,
          .memory_disk = options_.memory_disk,
          .memory_dir = options_.memory_dir};
}

void StorageShard::add_disk(FoundDisk found) {
  DiskState& disk = disks_.emplace_back();
  disk.id = found.id;
  disk.dir = std::move(found.dir);
  disk.error = std::move(found.error);
  disk.absent = found.absent;
}

Task<Result<OpenedDisk>> StorageShard::open_disk(FoundDisk found, bool create) {
  add_disk(found);
  if (create) {
    FF_CO_TRY(chunk::ChunkStore::create(
        store_options(found.dir),
        {.cluster = cluster_, .disk = fmt::to_string(found.id), .node = node_}));
    log_info("created a disk", {{"disk", found.id}, {"dir", found.dir}});
  }
  auto opened = co_await chunk::ChunkStore::open(store_options(found.dir));
  DiskState& disk = disks_.back();
  if (opened) {
    disk.store = std::move(*opened);
    disk.opened_ns = loop_.now_ns();
    OpenedDisk done;
    FF_CO_TRY(done.record, read_node_record(*disk.store));
    co_return done;
  }
  if (is_operator_error(opened.error())) co_return std::move(opened).error();
  disk.error = opened.error().message;
  log_error("cannot open a disk", {{"dir", disk.dir}, {"cause", disk.error}});
  OpenedDisk failed;
  failed.error = disk.error;
  co_return failed;
}

std::vector<cluster::DiskInfo> StorageShard::disk_infos() {
  measure_disks();
  std::vector<cluster::DiskInfo> infos;
  for (const DiskState& disk : disks_) {
    infos.push_back({.id = disk.id,
                     .path = disk.dir,
                     .capacity = disk.space.total,
                     .shard = number_.count > 1 ? std::optional(number_.index) : std::nullopt});
  }
  return infos;
}

Task<void> StorageShard::begin(cluster::NodeInfo self, cluster::Routing held) {
  runtime_ = std::make_unique<Runtime>(*this, std::move(self), std::move(held));
  for (DiskState& disk : disks_) {
    if (disk.store == nullptr) continue;
    for (const chunk::TargetInfo& target : disk.store->targets()) {
      runtime_->replicas.add(*disk.store, target.id, target.chain);
    }
  }
  co_await save_node_record(true);
}

void StorageShard::start(std::vector<std::string> addresses) {
  runtime_->member.set_addresses(std::move(addresses));
  gate_.spawn(run());
  gate_.spawn(prune());
  if (options_.scrub_rate > 0) gate_.spawn(scrub());
}

cluster::Heartbeat StorageShard::next_heartbeat() {
  sent_ = runtime_->member.next_heartbeat();
  cluster::Heartbeat mine = sent_;
  std::erase_if(mine.targets, [&](const auto& it) { return disk_of(it.target) == nullptr; });
  return mine;
}

void StorageShard::on_response(int64_t sent_ns, const cluster::HeartbeatResponse& answer) {
  const uint64_t before = runtime_->member.routing().version;
  const auto applied = runtime_->member.on_response(sent_, sent_ns, answer);
  if (!applied) {
    // The first shard has accepted the same changes of the same routing.
    log_error("a shard cannot apply new routing",
              {{"shard", number_.index}, {"cause", applied.error().message}});
  }
  if (runtime_->member.routing().version != before) on_routing_change();
}

void StorageShard::on_routing_change() {
  runtime_->replicas.on_routing_change();
  changed_.set();
}

Task<void> StorageShard::run() {
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
    if (runtime_->member.has_unreported_changes()) request_heartbeat_();
    const bool note_is_old = runtime_->member.routing().version != saved_version_;
    if (note_is_old && loop_.now_ns() - saved_ns_ >= kSaveIntervalNs) {
      co_await save_node_record(false);
    }
    const auto waited = co_await changed_.wait(loop_.now_ns() + kRunIntervalNs);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

Task<void> StorageShard::create_targets() {
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

Task<Result<void>> StorageShard::create_target(DiskState& disk, cluster::TargetId id,
                                               cluster::ChainId chain) {
  FF_CO_TRY(co_await disk.store->create_target(id, chain));
  FF_CO_TRY(co_await disk.store->sync());
  runtime_->replicas.add(*disk.store, id, chain);
  log_info("created a target", {{"target", id}, {"chain", chain}, {"disk", disk.id}});
  co_return Result<void>();
}

// Removes targets that were replaced: once the chain is complete without them nobody needs their
// data. A target that was set aside stays until the manager drops it.
Task<void> StorageShard::remove_replaced_targets() {
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
Task<void> StorageShard::prune() {
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
Task<void> StorageShard::scrub() {
  RateLimiter limiter(loop_, share_of(options_.scrub_rate));
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

Task<Result<void>> StorageShard::scrub_target(chunk::ChunkStore& store, cluster::TargetId id,
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

StorageShard::DiskState* StorageShard::disk_of(cluster::TargetId id) {
  const auto chain = runtime_->member.chain_of(id);
  if (!chain) return nullptr;
  const auto* const target = cluster::find_target(*runtime_->member.routing().chain(*chain), id);
  const auto found = std::ranges::find(disks_, target->disk, &DiskState::id);
  return found == disks_.end() ? nullptr : &*found;
}

// Space available for chunks: free blocks, and whole groups that the file system has space for
// (chunk/block_store.h). A disk is full when its file system has less space than one group of the
// size classes in use.
uint64_t StorageShard::available_bytes(const DiskState& disk) {
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

void StorageShard::report_targets(const DiskState& disk, cluster::DiskUsage& usage,
                                  const std::vector<chunk::TargetInfo>& targets) {
  for (const chunk::TargetInfo& target : targets) {
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
    const bool works = disk.store->health().ok() && bad == failed_.end();
    runtime_->member.set_usable(target.id, works && !draining_);
    runtime_->member.set_size(target.id, {.chunks = target.chunks - target.removed,
                                          .bytes = target.bytes,
                                          .last_inode = target.last_inode});
  }
}

void StorageShard::report_disks() {
  std::vector<cluster::DiskUsage> use;
  std::vector<DiskStatus> status;
  for (DiskState& disk : disks_) {
    const auto health = disk.store == nullptr ? Result<void>() : disk.store->health();
    if (!health && disk.error.empty()) {
      disk.error = health.error().message;
      log_error("a disk has failed", {{"disk", disk.id}, {"cause", disk.error}});
    }
    DiskStatus& shown = status.emplace_back();
    shown = {.id = disk.id,
             .dir = disk.dir,
             .shard = number_.index,
             .error = disk.error,
             .replaced = disk.replaced,
             .open = disk.store != nullptr,
             .direct = disk.store != nullptr && disk.store->direct(),
             .space = disk.space,
             .targets =
                 disk.store == nullptr ? std::vector<chunk::TargetInfo>() : disk.store->targets()};
    if (disk.replaced) continue;
    cluster::DiskUsage& usage = use.emplace_back();
    usage = {.disk = disk.id,
             .used = disk.space.total - std::min(disk.space.total, available_bytes(disk)),
             .error = disk.error};
    if (disk.store != nullptr) report_targets(disk, usage, shown.targets);
  }
  std::erase_if(use, [](const auto& it) { return it.disk == 0; });
  runtime_->member.set_disk_usage(std::move(use));
  const std::lock_guard lock(status_mutex_);
  status_ = std::move(status);
}

std::vector<DiskStatus> StorageShard::status() const {
  const std::lock_guard lock(status_mutex_);
  return status_;
}

void StorageShard::drain() {
  draining_ = true;
  changed_.set();
}

Task<void> StorageShard::close() {
  Error over = fail(Errc::interrupted, "the storage node is shutting down");
  co_await gate_.close(std::move(over));
  if (runtime_ != nullptr) {
    co_await runtime_->replicas.close();
    co_await runtime_->nodes.close();
  }
  for (DiskState& disk : disks_) {
    if (disk.store == nullptr || !disk.store->health()) continue;
    const auto closed = co_await disk.store->close();
    if (closed) continue;
    log_error("cannot close a disk properly",
              {{"disk", disk.id}, {"cause", closed.error().message}});
  }
  if (number_.index == 0) co_return;
  // The shard is destroyed in another thread: what its loop knows ends here.
  runtime_.reset();
  disks_.clear();
}

// Saves the record on every disk, so that any of them is enough.
Task<void> StorageShard::save_node_record(bool durable) {
  cluster::wire::NodeNote note;
  note.set_generation(runtime_->member.self().generation);
  const cluster::Routing& routing = runtime_->member.routing();
  const uint64_t version = routing.version;
  *note.mutable_routing() = cluster::to_wire(routing.delta_since(0, SIZE_MAX));
  const std::string text = note.SerializeAsString();
  for (DiskState& disk : disks_) {
    if (disk.store == nullptr || !disk.store->health()) continue;
    const auto set = co_await disk.store->set_owner_record(text);
    if (!set || !durable) continue;
    (void)co_await disk.store->sync();
  }
  saved_version_ = version;
  saved_ns_ = loop_.now_ns();
}

// An absent disk is reported as long as the cluster expects data on it. Its targets may still wait
// to be replaced.
void StorageShard::forget_replaced_disks() {
  if (!runtime_->member.has_lease(loop_.now_ns())) return;  // the routing may be old
  std::set<cluster::DiskId> in_use;
  for (const auto& [id, chain] : runtime_->member.routing().chains) {
    for (const cluster::Target& target : chain.targets) {
      if (target.node == node_) in_use.insert(target.disk);
    }
    for (const cluster::SetAside& aside : chain.aside) {
      if (aside.node == node_ && !aside.dropped) in_use.insert(aside.disk);
    }
  }
  for (DiskState& disk : disks_) {
    if (!disk.absent || disk.replaced || in_use.contains(disk.id)) continue;
    disk.replaced = true;
    std::vector<cluster::DiskInfo> left = runtime_->member.self().disks;
    std::erase_if(left, [&](const auto& info) { return info.id == disk.id; });
    runtime_->member.set_disks(std::move(left));
    log_info("a replaced disk is no longer part of the node", {{"disk", disk.id}});
  }
}

void StorageShard::measure_disks() {
  measured_ns_ = loop_.now_ns();
  for (DiskState& disk : disks_) {
    if (disk.store == nullptr) continue;
    if (auto space = disk_.space(disk.dir)) disk.space = *space;
    const Metrics::Labels labels = {{"disk", fmt::to_string(disk.id)}};
    Metrics& metrics = context_.metrics;
    metrics.gauge("ff_storage_disk_bytes", "Size of the file system of a disk in bytes", labels)
        .set(static_cast<int64_t>(disk.space.total));
    metrics.gauge("ff_storage_disk_free_bytes", "Free bytes of the file system", labels)
        .set(static_cast<int64_t>(disk.space.free));
    metrics.gauge("ff_storage_disk_available_bytes", "Bytes that chunks can still use", labels)
        .set(static_cast<int64_t>(available_bytes(disk)));
    for (const chunk::TargetInfo& target : disk.store->targets()) {
      if (Replica* const at = replica(target.id))
        at->metrics().chunks.set(static_cast<int64_t>(target.chunks));
    }
  }
}

}  // namespace ff::chain
