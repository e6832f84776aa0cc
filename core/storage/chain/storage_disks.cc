// storage_disks.cc: which disks a node has, whose they are, and what they keep of it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/text.h"
#include "storage/chain/storage_node.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/routing_copy.h"
#include "storage/cluster/wire.h"

namespace ff::chain {

namespace {

constexpr int64_t kManagerCallNs = 2 * kSecond;  // one manager
constexpr int64_t kDiskRetryNs = kSecond;
constexpr uint64_t kNodeIds = 1'000'000'000;  // drawn; few enough digits to be typed

// Says that the folder is no disk, and nothing else.
bool is_blank(const Error& error) { return error.code == Errc::not_found; }

// A disk that another process has, or that is not this node's, is a mistake of whoever started it;
// one that cannot be read is a failure to live with.
bool is_mistake(const Error& error) {
  return error.code == Errc::busy || error.code == Errc::refused ||
         error.code == Errc::newer_format;
}

}  // namespace

chunk::StoreOptions StorageNode::store_options(const std::string& dir) const {
  return {.disk = disk_,
          .loop = loop_,
          .rng = context_.rng,
          .dir = dir,
          .cluster = cluster_,
          .boot = options_.boot,
          .commit_on = options_.commit_on,
          .direct = options_.direct,
          .paged_max = options_.paged_max};
}

// Reads the identities: cluster, node, and which folders have none.
Result<void> StorageNode::survey() {
  std::string from;  // the first disk with an identity
  for (const std::string& dir : options_.dirs) {
    const bool twice = std::ranges::any_of(disks_, [&](const auto& it) { return it.dir == dir; });
    if (twice) return fail(Errc::usage, "{}: is given twice", dir);
    DiskState& disk = disks_.emplace_back();
    disk.dir = dir;
    const auto identity = chunk::read_identity(disk_, dir);
    if (!identity) {
      if (is_mistake(identity.error())) return identity.error();
      if (is_blank(identity.error())) {
        blank_.push_back(disks_.size() - 1);
      } else {
        disk.trouble = identity.error().message;
        log_error("a disk cannot be read", {{"dir", dir}, {"cause", disk.trouble}});
      }
      continue;
    }
    const auto id = parse_u64(identity->disk);
    if (!id) {
      return fail(Errc::refused, "{}: is disk '{}', which no storage node has made", dir,
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
      return fail(Errc::refused, "{}: belongs to cluster {}, and {} to cluster {}", dir,
                  identity->cluster, from, cluster_);
    }
    if (identity->node != node_) {
      return fail(Errc::refused, "{}: belongs to node {}, and {} to node {}", dir, identity->node,
                  from, node_);
    }
    if (same != disks_.end()) {
      Error error = fail(Errc::refused, "{}: is disk {} as {} is", dir, *id, same->dir);
      error.hint = "One of the two is a copy of the other: give the one that was used last.";
      return error;
    }
  }
  if (options_.node != 0 && node_ != 0 && options_.node != node_) {
    return fail(Errc::refused, "{}: belongs to node {}, not to node {}", from, node_,
                options_.node);
  }
  const auto bad = std::ranges::find_if(disks_, [](const auto& it) { return !it.trouble.empty(); });
  if (node_ != 0 || bad == disks_.end()) return {};
  return fail(Errc::failed, "no disk can be read, and which node this is stands on them: {}",
              bad->trouble);
}

// All of it, from the managers. Errors: not_found while the cluster is not formed.
Task<Result<cluster::Routing>> StorageNode::ask_routing(cluster::ManagerClient& managers) {
  cluster::Routing routing;
  for (;;) {
    auto asking =
        cluster::next_page(managers, routing, kManagerCallNs, loop_.now_ns() + 5 * kManagerCallNs);
    FF_CO_TRY(const bool complete, co_await std::move(asking));
    if (complete) co_return routing;
  }
}

// The same, waiting until a manager knows.
Task<Result<cluster::Routing>> StorageNode::wait_for_routing() {
  cluster::ManagerClient managers(context_, managers_);
  Result<cluster::Routing> answer = cluster::Routing();
  for (bool told = false;;) {
    auto asking = ask_routing(managers);
    answer = co_await std::move(asking);
    if (answer || answer.error().code == Errc::interrupted) break;
    if (!std::exchange(told, true)) {
      log_warning("waits for the manager to say which cluster this is",
                  {{"cause", answer.error().message}, {"hint", answer.error().hint}});
    }
    const auto waited = co_await after(loop_, kDiskRetryNs);
    if (!waited) answer = waited.error();
    if (!waited) break;
  }
  auto closing = managers.close();
  co_await std::move(closing).shielded();
  co_return answer;
}

// Of a new node: all its folders.
Task<Result<void>> StorageNode::make_disks() {
  auto waiting = wait_for_routing();
  FF_CO_TRY(const cluster::Routing routing, co_await std::move(waiting));
  cluster_ = routing.cluster;
  node_ = options_.node;
  const cluster::Node* const known = routing.node(node_);
  if (known != nullptr && !options_.format) {
    Error error = fail(Errc::refused, "{}: is no disk of node {}, which this cluster has already",
                       disks_.front().dir, node_);
    error.hint = "Is it mounted? If its disks are gone for good, start once with --format.";
    co_return error;
  }
  while (node_ == 0 || (known == nullptr && routing.node(node_) != nullptr)) {
    node_ = 1 + context_.rng.below(kNodeIds);
  }
  log_info("is a new node", {{"node", node_}, {"cluster", cluster_}});
  cluster::DiskId next = 0;
  if (known != nullptr) {
    for (const cluster::Disk& disk : known->disks) next = std::max(next, disk.id);
  }
  for (const size_t at : std::exchange(blank_, {})) {
    disks_[at].id = ++next;
    auto making = make_disk(disks_[at]);
    FF_CO_TRY(co_await std::move(making));
  }
  co_return Result<void>();
}

Task<Result<void>> StorageNode::make_disk(DiskState& disk) {
  FF_CO_TRY(
      chunk::Store::create(store_options(disk.dir),
                           {.cluster = cluster_, .disk = fmt::to_string(disk.id), .node = node_}));
  log_info("has made a disk", {{"disk", disk.id}, {"dir", disk.dir}});
  auto opening = open_disk(disk);
  co_return co_await std::move(opening);
}

Task<Result<void>> StorageNode::open_disk(DiskState& disk) {
  auto opening = chunk::Store::open(store_options(disk.dir));
  auto opened = co_await std::move(opening);
  if (opened) {
    disk.store = std::move(*opened);
    co_return read_note(disk);
  }
  if (is_mistake(opened.error())) co_return std::move(opened).error();
  disk.trouble = opened.error().message;
  log_error("a disk cannot be opened", {{"dir", disk.dir}, {"cause", disk.trouble}});
  co_return Result<void>();
}

Task<Result<void>> StorageNode::open_disks() {
  for (DiskState& disk : disks_) {
    if (disk.id == 0 || disk.store != nullptr) continue;
    auto opening = open_disk(disk);
    FF_CO_TRY(co_await std::move(opening));
  }
  const bool any =
      std::ranges::any_of(disks_, [](const auto& disk) { return disk.store != nullptr; });
  if (!any) co_return fail(Errc::failed, "no disk can be used: {}", disks_.front().trouble);
  co_return Result<void>();
}

Result<void> StorageNode::read_note(const DiskState& disk) {
  if (disk.store->note().empty()) return {};
  cluster::wire::NodeNote note;
  if (!note.ParseFromString(disk.store->note())) {
    return fail(Errc::corrupt, "{}: its note is none of a storage node", disk.dir);
  }
  FF_TRY(const cluster::Changes changes, cluster::from_wire(note.routing()));
  kept_.generation = std::max(kept_.generation, note.generation());
  if (changes.to <= kept_.routing.version) return {};
  cluster::Routing routing;
  FF_TRY(routing.apply(changes));
  kept_.routing = std::move(routing);
  return {};
}

// Disks that could not be read are known by their folder; what was none is made one, or told.
Result<void> StorageNode::settle_ids() {
  const cluster::Node* const before = kept_.routing.node(node_);
  cluster::DiskId last = 0;
  for (const DiskState& disk : disks_) last = std::max(last, disk.id);
  if (before != nullptr) {
    for (const cluster::Disk& disk : before->disks) last = std::max(last, disk.id);
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
      const auto known = std::ranges::find(before->disks, disk.dir, &cluster::Disk::path);
      if (known != before->disks.end()) disk.id = known->id;
    }
    if (!blank) continue;
    if (disk.id == 0) {
      Error error = fail(Errc::usage, "{}: holds no disk of a storage node", disk.dir);
      error.hint = fmt::format("To make it one of node {}'s, start once with --format.", node_);
      return error;
    }
    disk.trouble = fmt::format("{}: disk {} is not there; is it mounted?", disk.dir, disk.id);
    log_error("a disk is missing", {{"disk", disk.id}, {"dir", disk.dir}});
    std::erase(blank_, at);
  }
  if (before == nullptr) return {};
  for (const cluster::Disk& known : before->disks) {
    if (std::ranges::find(disks_, known.id, &DiskState::id) != disks_.end()) continue;
    DiskState& disk = disks_.emplace_back();
    disk.id = known.id;
    disk.dir = known.path;
    disk.trouble = fmt::format("{}: disk {} was not given to serve-storage", disk.dir, disk.id);
    log_warning("a disk is not used", {{"disk", disk.id}, {"dir", disk.dir}});
  }
  return {};
}

// On every disk, so that any of them tells.
Task<void> StorageNode::keep_note(bool durable) {
  cluster::wire::NodeNote note;
  note.set_generation(live_->member.self().generation);
  const cluster::Routing& routing = live_->member.routing();
  const uint64_t version = routing.version;
  *note.mutable_routing() = cluster::to_wire(routing.since(0, SIZE_MAX));
  const std::string text = note.SerializeAsString();
  for (DiskState& disk : disks_) {
    if (disk.store == nullptr || !disk.store->health()) continue;
    auto setting = disk.store->set_note(text);
    const auto set = co_await std::move(setting);
    if (!set || !durable) continue;
    auto syncing = disk.store->sync();
    (void)co_await std::move(syncing);
  }
  noted_version_ = version;
  noted_ns_ = loop_.now_ns();
}

void StorageNode::measure() {
  measured_ns_ = loop_.now_ns();
  for (DiskState& disk : disks_) {
    if (disk.store == nullptr) continue;
    if (auto space = disk_.space(disk.dir)) disk.space = *space;
    const Metrics::Labels labels = {{"disk", fmt::to_string(disk.id)}};
    Metrics& metrics = context_.metrics;
    metrics.gauge("ff_storage_disk_bytes", "Size of a disk's file system", labels)
        .set(static_cast<int64_t>(disk.space.total));
    metrics.gauge("ff_storage_disk_free_bytes", "What is free of it", labels)
        .set(static_cast<int64_t>(disk.space.free));
    for (const chunk::TargetInfo& target : disk.store->targets()) {
      if (Replica* const at = replica(target.id))
        at->counters().chunks.set(static_cast<int64_t>(target.chunks));
    }
  }
}

}  // namespace ff::chain
