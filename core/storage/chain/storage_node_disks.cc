// storage_node_disks.cc: the disks of a node, their identities, and the records stored on them.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/text.h"
#include "storage/chain/storage_node.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/routing_cache.h"
#include "storage/cluster/wire.h"

namespace ff::chain {

namespace {

constexpr int64_t kManagerCallNs = 2 * kSecond;  // timeout per manager
constexpr int64_t kDiskRetryNs = kSecond;
constexpr uint64_t kNodeIds = 1'000'000'000;  // range of random node ids: short enough to type

// Whether the error means only that the folder is no disk.
bool is_blank(const Error& error) { return error.code == Errc::not_found; }

// Errors that the operator must correct: a disk in use by another process, or of another node. An
// unreadable disk is a failure that the node tolerates.
bool is_operator_error(const Error& error) {
  return error.code == Errc::busy || error.code == Errc::refused ||
         error.code == Errc::newer_format;
}

}  // namespace

chunk::ChunkStoreOptions StorageNode::store_options(const std::string& dir) const {
  return {.disk = disk_,
          .loop = loop_,
          .rng = context_.rng,
          .dir = dir,
          .cluster = cluster_,
          .boot_id = options_.boot_id,
          .commit_on = options_.commit_on,
          .log_segment_bytes = options_.log_segment_bytes,
          .direct = options_.direct,
          .buffered_write_max = options_.buffered_write_max,
          .memory_disk = options_.memory_disk,
          .memory_dir = options_.memory_dir};
}

// Reads the identities of all disks: determines cluster and node id, and finds folders without a
// disk.
Result<void> StorageNode::read_identities() {
  std::string from;  // first folder with an identity
  for (const std::string& dir : options_.dirs) {
    const bool twice = std::ranges::any_of(disks_, [&](const auto& it) { return it.dir == dir; });
    if (twice) return fail(Errc::usage, "{}: the folder is given twice", dir);
    DiskState& disk = disks_.emplace_back();
    disk.dir = dir;
    const auto identity = chunk::read_identity(disk_, dir);
    if (!identity) {
      if (is_operator_error(identity.error())) return identity.error();
      if (is_blank(identity.error())) {
        blank_.push_back(disks_.size() - 1);
      } else {
        disk.error = identity.error().message;
        log_error("cannot read a disk", {{"dir", dir}, {"cause", disk.error}});
      }
      continue;
    }
    const auto id = parse_u64(identity->disk);
    if (!id) {
      return fail(Errc::refused, "{}: disk id '{}' was not assigned by a storage node", dir,
                  printable(identity->disk));
    }
    const auto same = std::ranges::find(disks_, *id, &DiskState::id);
    disk.id = *id;
    if (from.empty()) {
      from = dir;
      cluster_ = identity->cluster;
      node_ = identity->node;
    }
    if (identity->cluster != cluster_) {
      return fail(Errc::refused, "{}: the disk belongs to cluster {}, but {} to cluster {}", dir,
                  identity->cluster, from, cluster_);
    }
    if (identity->node != node_) {
      return fail(Errc::refused, "{}: the disk belongs to node {}, but {} to node {}", dir,
                  identity->node, from, node_);
    }
    if (same != disks_.end()) {
      Error error = fail(Errc::refused, "{}: has disk id {}, and so has {}", dir, *id, same->dir);
      error.hint = "One of them is a copy of the other: use the one that was used last.";
      return error;
    }
  }
  if (options_.node != 0 && node_ != 0 && options_.node != node_) {
    return fail(Errc::refused, "{}: the disk belongs to node {}, not to node {}", from, node_,
                options_.node);
  }
  const auto bad = std::ranges::find_if(disks_, [](const auto& it) { return !it.error.empty(); });
  if (node_ != 0 || bad == disks_.end()) return {};
  return fail(Errc::failed, "cannot read the node id from any disk: {}", bad->error);
}

// Fetches the complete routing from the managers. Errors: not_found while the cluster is not
// initialized.
Task<Result<cluster::Routing>> StorageNode::fetch_routing(cluster::ManagerClient& managers) {
  cluster::Routing routing;
  for (;;) {
    FF_CO_TRY(const bool complete,
              co_await cluster::fetch_routing_page(managers, routing, nullptr, 0, kManagerCallNs,
                                                   loop_.now_ns() + 5 * kManagerCallNs));
    if (complete) co_return routing;
  }
}

// Retries until a manager responds.
Task<Result<cluster::Routing>> StorageNode::wait_for_routing() {
  cluster::ManagerClient managers(context_, managers_);
  Result<cluster::Routing> answer = cluster::Routing();
  for (bool usage = false;;) {
    answer = co_await fetch_routing(managers);
    if (answer || answer.error().code == Errc::interrupted) break;
    if (!std::exchange(usage, true)) {
      log_warning("waiting for a manager to report the cluster id",
                  {{"cause", answer.error().message}, {"hint", answer.error().hint}});
    }
    const auto waited = co_await sleep_for(loop_, kDiskRetryNs);
    if (!waited) answer = waited.error();
    if (!waited) break;
  }
  co_await managers.close().shielded();
  co_return answer;
}

// Creates the disks of a new node in all its folders.
Task<Result<void>> StorageNode::create_disks() {
  FF_CO_TRY(const cluster::Routing routing, co_await wait_for_routing());
  cluster_ = routing.cluster;
  node_ = options_.node;
  const cluster::NodeInfo* const known = routing.node(node_);
  if (known != nullptr && !options_.format) {
    Error error =
        fail(Errc::refused, "{}: not a disk of node {}, which already exists in this cluster",
             disks_.front().dir, node_);
    error.hint =
        "Check that the disk is mounted. If the disks are lost for good, start once with --format.";
    co_return error;
  }
  while (node_ == 0 || (known == nullptr && routing.node(node_) != nullptr)) {
    node_ = 1 + context_.rng.below(kNodeIds);
  }
  log_info("created a new node", {{"node", node_}, {"cluster", cluster_}});
  cluster::DiskId next = 0;
  if (known != nullptr) {
    for (const cluster::DiskInfo& disk : known->disks) next = std::max(next, disk.id);
  }
  for (const size_t at : std::exchange(blank_, {})) {
    disks_[at].id = ++next;
    FF_CO_TRY(co_await create_disk(disks_[at]));
  }
  co_return Result<void>();
}

Task<Result<void>> StorageNode::create_disk(DiskState& disk) {
  FF_CO_TRY(chunk::ChunkStore::create(
      store_options(disk.dir),
      {.cluster = cluster_, .disk = fmt::to_string(disk.id), .node = node_}));
  log_info("created a disk", {{"disk", disk.id}, {"dir", disk.dir}});
  co_return co_await open_disk(disk);
}

Task<Result<void>> StorageNode::open_disk(DiskState& disk) {
  auto opened = co_await chunk::ChunkStore::open(store_options(disk.dir));
  if (opened) {
    disk.store = std::move(*opened);
    disk.opened_ns = loop_.now_ns();
    co_return load_node_record(disk);
  }
  if (is_operator_error(opened.error())) co_return std::move(opened).error();
  disk.error = opened.error().message;
  log_error("cannot open a disk", {{"dir", disk.dir}, {"cause", disk.error}});
  co_return Result<void>();
}

Task<Result<void>> StorageNode::open_disks() {
  for (DiskState& disk : disks_) {
    if (disk.id == 0 || disk.store != nullptr) continue;
    FF_CO_TRY(co_await open_disk(disk));
  }
  const bool any =
      std::ranges::any_of(disks_, [](const auto& disk) { return disk.store != nullptr; });
  if (!any) co_return fail(Errc::failed, "no disk is usable: {}", disks_.front().error);
  co_return Result<void>();
}

Result<void> StorageNode::load_node_record(const DiskState& disk) {
  if (disk.store->owner_record().empty()) return {};
  cluster::wire::NodeNote note;
  if (!note.ParseFromString(disk.store->owner_record())) {
    return fail(Errc::corrupt, "{}: the record of the storage node is malformed", disk.dir);
  }
  FF_TRY(const cluster::RoutingDelta changes, cluster::from_wire(note.routing()));
  saved_.generation = std::max(saved_.generation, note.generation());
  if (changes.to <= saved_.routing.version) return {};
  cluster::Routing routing;
  FF_TRY(routing.apply(changes));
  saved_.routing = std::move(routing);
  return {};
}

// Assigns ids: an unreadable disk keeps the id stored for its folder; an empty folder becomes a new
// disk (--format) or is an error.
Result<void> StorageNode::assign_disk_ids() {
  const cluster::NodeInfo* const before = saved_.routing.node(node_);
  cluster::DiskId last = 0;
  for (const DiskState& disk : disks_) last = std::max(last, disk.id);
  if (before != nullptr) {
    for (const cluster::DiskInfo& disk : before->disks) last = std::max(last, disk.id);
  }
  for (size_t at = 0; at < disks_.size(); at++) {
    DiskState& disk = disks_[at];
    if (disk.id != 0) continue;
    const bool blank = std::ranges::find(blank_, at) != blank_.end();
    if (blank && options_.format) {
      disk.id = ++last;
      continue;
    }
    if (before != nullptr) {
      const auto known = std::ranges::find(before->disks, disk.dir, &cluster::DiskInfo::path);
      if (known != before->disks.end()) disk.id = known->id;
    }
    if (!blank) continue;
    if (disk.id == 0) {
      Error error = fail(Errc::usage, "{}: not a disk of a storage node", disk.dir);
      error.hint =
          fmt::format("To create a disk of node {} there, start once with --format.", node_);
      return error;
    }
    disk.error = fmt::format("{}: disk {} is missing; check that it is mounted", disk.dir, disk.id);
    log_error("a disk is missing", {{"disk", disk.id}, {"dir", disk.dir}});
    std::erase(blank_, at);
  }
  if (before == nullptr) return {};
  for (const cluster::DiskInfo& known : before->disks) {
    if (std::ranges::find(disks_, known.id, &DiskState::id) != disks_.end()) continue;
    DiskState& disk = disks_.emplace_back();
    disk.id = known.id;
    disk.dir = known.path;
    disk.absent = true;
    disk.error = fmt::format("{}: disk {} is not among the folders given to serve-storage",
                             disk.dir, disk.id);
    log_warning("a known disk is not used", {{"disk", disk.id}, {"dir", disk.dir}});
  }
  return {};
}

// Saves the record on every disk, so that any of them is enough.
Task<void> StorageNode::save_node_record(bool durable) {
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
void StorageNode::forget_replaced_disks() {
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
  bool changed = false;
  for (DiskState& disk : disks_) {
    if (!disk.absent || disk.replaced || in_use.contains(disk.id)) continue;
    disk.replaced = true;
    changed = true;
    log_info("a replaced disk is no longer part of the node", {{"disk", disk.id}});
  }
  if (changed) runtime_->member.set_disks(self().disks);
}

void StorageNode::measure_disks() {
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
