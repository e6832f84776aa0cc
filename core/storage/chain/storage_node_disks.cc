// storage_node_disks.cc: finds the disks of a node and their identities, and opens them in their
// shards.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/run_on.h"
#include "platform/base/text.h"
#include "storage/chain/storage_node.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/routing_cache.h"

namespace ff::chain {

namespace {

constexpr int64_t kManagerCallNs = 2 * kSecond;  // timeout per manager
constexpr int64_t kDiskRetryNs = kSecond;
constexpr uint64_t kNodeIds = 1'000'000'000;  // range of random node ids: short enough to type

// Whether the error means only that the folder is no disk.
bool is_blank(const Error& error) { return error.code == Errc::not_found; }

}  // namespace

// Reads the identities of all disks: determines cluster and node id, and finds folders without a
// disk.
Result<void> StorageNode::read_identities() {
  std::string from;  // first folder with an identity
  for (const std::string& dir : options_.dirs) {
    const bool twice = std::ranges::any_of(disks_, [&](const auto& it) { return it.dir == dir; });
    if (twice) return fail(Errc::usage, "{}: the folder is given twice", dir);
    FoundDisk& disk = disks_.emplace_back();
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
    const auto same = std::ranges::find(disks_, *id, &FoundDisk::id);
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
  for (const auto& shard : shards_) shard->set_identity(cluster_, node_);
  for (const size_t at : std::exchange(blank_, {})) {
    disks_[at].id = ++next;
    FF_CO_TRY(co_await open_disk(disks_[at], true));
  }
  co_return Result<void>();
}

// A disk stays with its shard as long as the number of shards does; what is not there needs none.
StorageShard& StorageNode::shard_of(const FoundDisk& disk) const {
  if (disk.absent || disk.id == 0) return first();
  return *shards_[(disk.id - 1) % shards_.size()];
}

Task<Result<void>> StorageNode::open_disk(FoundDisk& disk, bool create) {
  StorageShard& shard = shard_of(disk);
  FF_CO_TRY(OpenedDisk opened,
            co_await run_on(loop_, shard.calls(), shard.open_disk(disk, create)));
  disk.error = std::move(opened.error);
  saved_.generation = std::max(saved_.generation, opened.record.generation);
  if (opened.record.routing.version > saved_.routing.version) {
    saved_.routing = std::move(opened.record.routing);
  }
  co_return Result<void>();
}

// The disks of a known node.
Task<Result<void>> StorageNode::open_disks() {
  for (const auto& shard : shards_) shard->set_identity(cluster_, node_);
  std::set<std::string> opened;
  bool any = false;
  for (FoundDisk& disk : disks_) {
    if (disk.id == 0) continue;
    FF_CO_TRY(co_await open_disk(disk, false));
    opened.insert(disk.dir);
    any |= disk.error.empty();
  }
  if (!any) co_return fail(Errc::failed, "no disk is usable: {}", disks_.front().error);
  FF_CO_TRY(assign_disk_ids());
  for (size_t at = 0; at < disks_.size(); ++at) {
    if (opened.contains(disks_[at].dir)) continue;
    if (std::ranges::find(blank_, at) != blank_.end()) {
      FF_CO_TRY(co_await open_disk(disks_[at], true));
    } else {
      shard_of(disks_[at]).add_disk(disks_[at]);
    }
  }
  co_return Result<void>();
}

// Assigns ids: an unreadable disk keeps the id stored for its folder; an empty folder becomes a new
// disk (--format) or is an error.
Result<void> StorageNode::assign_disk_ids() {
  const cluster::NodeInfo* const before = saved_.routing.node(node_);
  cluster::DiskId last = 0;
  for (const FoundDisk& disk : disks_) last = std::max(last, disk.id);
  if (before != nullptr) {
    for (const cluster::DiskInfo& disk : before->disks) last = std::max(last, disk.id);
  }
  for (size_t at = 0; at < disks_.size(); at++) {
    FoundDisk& disk = disks_[at];
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
  if (before != nullptr) add_absent_disks(*before);
  return {};
}

void StorageNode::add_absent_disks(const cluster::NodeInfo& before) {
  for (const cluster::DiskInfo& known : before.disks) {
    if (std::ranges::find(disks_, known.id, &FoundDisk::id) != disks_.end()) continue;
    FoundDisk& disk = disks_.emplace_back();
    disk.id = known.id;
    disk.dir = known.path;
    disk.absent = true;
    disk.error = fmt::format("{}: disk {} is not among the folders given to serve-storage",
                             disk.dir, disk.id);
    log_warning("a known disk is not used", {{"disk", disk.id}, {"dir", disk.dir}});
  }
}

}  // namespace ff::chain
