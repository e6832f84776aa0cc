// storage_node.cc: how a node comes, lives and goes.
#include "storage/chain/storage_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "platform/base/log.h"
#include "storage/chunk/layout.h"
#include "storage/cluster/fill.h"

namespace ff::chain {

namespace {

constexpr int64_t kLookNs = 100 * kMillisecond;
constexpr int64_t kMeasureNs = 5 * kSecond;
constexpr int64_t kFullAgainNs = 15 * kSecond;  // a copy that finds no room has cost others time
constexpr int64_t kNoteNs = kSecond;            // between two notes at least
constexpr int64_t kPruneNs = 10 * kSecond;
constexpr size_t kScrubChunks = 4;  // between two pauses
constexpr int64_t kScrubLeastNs = kMillisecond;
constexpr int64_t kScrubPauseNs = 60 * kSecond;  // between two walks over everything
constexpr int64_t kDrainNs = 4 * kSecond;  // for the manager to hear of it, and the node of that

// Clients count on it.
bool counts(cluster::State state) {
  return state == cluster::State::serving || state == cluster::State::syncing;
}

}  // namespace

StorageNode::Live::Live(StorageNode& node, cluster::Node self, cluster::Routing held)
    : member(std::move(self), std::move(held)),
      heartbeats(node.context_, node.managers_, member,
                 [&node] {
                   node.live_->replicas.look();
                   node.looked_.set();
                 }),
      nodes(node.context_, member.routing()),
      pace(node.loop_, node.options_.copy_rate),
      memory(node.options_.arena),
      context{node.loop_,
              member,
              nodes,
              node.context_.rng,
              pace,
              memory,
              node.context_.metrics,
              [this] { heartbeats.poke(); },
              [&node](cluster::TargetId id, const Error& error) { node.failed(id, error); },
              node.context_.self.key},
      replicas(node.router_, context) {}

StorageNode::StorageNode(rpc::ClientContext& context, io::Disk& disk, rpc::Router& router,
                         const std::vector<net::Address>& managers, StorageOptions options)
    : context_(context),
      loop_(context.loop),
      disk_(disk),
      router_(router),
      managers_(managers),
      options_(std::move(options)),
      looked_(context.loop),
      gate_(context.loop) {}

StorageNode::~StorageNode() = default;

Task<Result<void>> StorageNode::open() {
  FF_CO_TRY(survey());
  if (node_ == 0) {
    auto making = make_disks();
    FF_CO_TRY(co_await std::move(making));
  } else {
    auto opening = open_disks();
    FF_CO_TRY(co_await std::move(opening));
    FF_CO_TRY(settle_ids());
    for (const size_t at : std::exchange(blank_, {})) {
      auto making = make_disk(disks_[at]);
      FF_CO_TRY(co_await std::move(making));
    }
  }
  measure();
  live_ = std::make_unique<Live>(*this, self(), kept_.routing);
  for (DiskState& disk : disks_) {
    if (disk.store == nullptr) continue;
    for (const chunk::TargetInfo& target : disk.store->targets()) {
      live_->replicas.add(*disk.store, target.id, target.chain);
    }
  }
  auto noting = keep_note(true);
  co_await std::move(noting);
  co_return Result<void>();
}

cluster::Node StorageNode::self() const {
  // The clock alone would do, did it never go back; what is kept, were every disk always there.
  const auto now_ms = static_cast<uint64_t>(loop_.clock().wall_ns() / kMillisecond);
  cluster::Node node{.id = node_,
                     .name = options_.name,
                     .generation = std::max(kept_.generation + 1, now_ms),
                     .addresses = addresses_,
                     .domain = options_.domain};
  for (const DiskState& disk : disks_) {
    if (disk.id != 0) node.disks.push_back({disk.id, disk.dir, disk.space.total});
  }
  return node;
}

void StorageNode::start(std::vector<std::string> addresses) {
  live_->member.set_addresses(std::move(addresses));
  gate_.spawn(live_->heartbeats.run());
  gate_.spawn(work());
  gate_.spawn(prune());
  if (options_.scrub_rate > 0) gate_.spawn(scrub());
}

Task<void> StorageNode::work() {
  for (;;) {
    looked_.reset();
    if (loop_.now_ns() - measured_ns_ > kMeasureNs) measure();
    auto making = make_targets();
    co_await std::move(making);
    auto dropping = drop_replaced();
    co_await std::move(dropping);
    try_again();
    look_at_disks();
    live_->replicas.look();
    if (live_->member.has_news()) live_->heartbeats.poke();
    const bool note_is_old = live_->member.routing().version != noted_version_;
    if (note_is_old && loop_.now_ns() - noted_ns_ >= kNoteNs) {
      auto noting = keep_note(false);
      co_await std::move(noting);
    }
    const auto waited = co_await looked_.wait(loop_.now_ns() + kLookNs);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

Task<void> StorageNode::make_targets() {
  for (const cluster::TargetId id : live_->member.to_make()) {
    if (live_->replicas.find(id) != nullptr || failed_.contains(id)) continue;
    DiskState* const disk = disk_of(id);
    if (disk == nullptr || disk->store == nullptr || !disk->store->health()) continue;
    const cluster::ChainId chain = *live_->member.chain_of(id);
    auto making = make_target(*disk, id, chain);
    const auto made = co_await std::move(making);
    if (made) continue;
    failed(id, made.error());
  }
}

Task<Result<void>> StorageNode::make_target(DiskState& disk, cluster::TargetId id,
                                            cluster::ChainId chain) {
  auto making = disk.store->create_target(id, chain);
  FF_CO_TRY(co_await std::move(making));
  auto syncing = disk.store->sync();
  FF_CO_TRY(co_await std::move(syncing));
  live_->replicas.add(*disk.store, id, chain);
  log_info("has made a target", {{"target", id}, {"chain", chain}, {"disk", disk.id}});
  co_return Result<void>();
}

// Targets that another has taken the place of: once their chain is whole without them nobody can
// want their data any more, but for those that were set aside, whose end the manager tells.
Task<void> StorageNode::drop_replaced() {
  for (DiskState& disk : disks_) {
    if (disk.store == nullptr || !disk.store->health()) continue;
    for (const chunk::TargetInfo& target : disk.store->targets()) {
      const cluster::Chain* const chain = live_->member.routing().chain(target.chain);
      if (chain == nullptr || cluster::find_target(*chain, target.id) != nullptr) continue;
      const cluster::SetAside* const aside = cluster::find_aside(*chain, target.id);
      const bool whole = std::ranges::all_of(
          chain->targets, [](const auto& it) { return it.state == cluster::State::serving; });
      if (aside == nullptr ? !whole : !aside->dropped) continue;
      if (!live_->member.has_lease(loop_.now_ns())) continue;
      auto removing = live_->replicas.remove(target.id);
      co_await std::move(removing);
      auto dropping = disk.store->remove_target(target.id);
      const auto dropped = co_await std::move(dropping);
      if (dropped) log_info("has removed a target that was replaced", {{"target", target.id}});
    }
  }
}

// What is kept for a while only. Clocks of the wall jump: what they have dated is old when it is so
// by each of their readings since, and this process has read them for as long as it is kept.
Task<void> StorageNode::prune() {
  std::deque<std::pair<int64_t, int64_t>> readings;  // steady, wall
  for (;;) {
    readings.emplace_back(loop_.now_ns(), loop_.clock().wall_ns());
    const auto waited = co_await after(loop_, kPruneNs);
    if (!waited) co_return;
    const int64_t from_ns = loop_.now_ns() - chunk::kKeptNs;
    while (readings.size() > 1 && readings[1].first <= from_ns) readings.pop_front();
    if (readings.front().first > from_ns) continue;
    int64_t now_ns = loop_.clock().wall_ns();
    for (const auto& [steady, wall] : readings) now_ns = std::min(now_ns, wall + chunk::kKeptNs);
    for (const DiskState& disk : disks_) {
      if (disk.store == nullptr || !disk.store->health()) continue;
      for (bool more = true; more;) {
        auto pruning = disk.store->prune_results(now_ns);
        const auto pruned = co_await std::move(pruning);
        more = pruned && *pruned;
      }
      for (const chunk::TargetInfo& target : disk.store->targets()) {
        if (Replica* const at = replica(target.id)) at->prune_at(now_ns);
      }
    }
  }
}

// All chunks, over and over: each with its checksums, then with the next target's.
Task<void> StorageNode::scrub() {
  Pace pace(loop_, options_.scrub_rate);
  for (;;) {
    for (const DiskState& disk : disks_) {
      if (disk.store == nullptr) continue;
      for (const chunk::TargetInfo& target : disk.store->targets()) {
        auto scrubbing = scrub_target(*disk.store, target.id, pace);
        const auto scrubbed = co_await std::move(scrubbing);
        if (!scrubbed && scrubbed.error().code == Errc::interrupted) co_return;
        if (Replica* const at = replica(target.id)) at->compare_soon();
      }
    }
    const auto waited = co_await after(loop_, kScrubPauseNs);
    if (!waited) co_return;
  }
}

Task<Result<void>> StorageNode::scrub_target(chunk::Store& store, cluster::TargetId id,
                                             Pace& pace) {
  std::optional<chunk::ChunkId> from = chunk::ChunkId();
  while (from) {
    auto scrubbing = store.scrub(id, *from, kScrubChunks);
    FF_CO_TRY(const chunk::ScrubPage page, co_await std::move(scrubbing));
    Replica* const found = replica(id);
    for (const chunk::ChunkId& bad : page.bad) {
      if (found != nullptr) found->damaged(bad);
    }
    from = page.next;
    auto pacing = pace.take(page.bytes);
    FF_CO_TRY(co_await std::move(pacing));
    auto waiting = after(loop_, kScrubLeastNs);
    FF_CO_TRY(co_await waiting);
  }
  co_return Result<void>();
}

StorageNode::DiskState* StorageNode::disk_of(cluster::TargetId id) {
  const auto chain = live_->member.chain_of(id);
  if (!chain) return nullptr;
  const auto* const target = cluster::find_target(*live_->member.routing().chain(*chain), id);
  const auto found = std::ranges::find(disks_, target->disk, &DiskState::id);
  return found == disks_.end() ? nullptr : &*found;
}

void StorageNode::failed(cluster::TargetId id, const Error& error) {
  const bool passes = error.code == Errc::disk_full;
  const int64_t again_ns = passes ? loop_.now_ns() + kFullAgainNs : INT64_MAX;
  if (failed_.emplace(id, Failure{.why = error.message, .again_ns = again_ns}).second) {
    log_error("a target cannot be used any more", {{"target", id}, {"cause", error.message}});
  }
  live_->member.set_usable(id, false);
  looked_.set();
  live_->heartbeats.poke();
}

// A target that had no room for what is copied to it: by now it may have. Returning is also how it
// learns of chunks that have been removed meanwhile.
void StorageNode::try_again() {
  std::erase_if(failed_,
                [&](const auto& failure) { return failure.second.again_ns <= loop_.now_ns(); });
}

// What chunks may still take of a disk: free blocks, and whole groups of those that the file system
// has room for (chunk/blocks.h). A disk whose file system has less left than a group of the blocks
// that are in use there is full.
uint64_t StorageNode::room_of(const DiskState& disk) {
  const uint64_t kept = disk.space.total / 100 * (100 - cluster::kFullPercent);
  const uint64_t left = disk.space.free - std::min(disk.space.free, kept);
  if (disk.store == nullptr) return left;
  uint64_t room = 0;
  uint64_t group = 0;
  for (const chunk::ClassUsage& usage : disk.store->usage()) {
    if (usage.reserved_bytes == 0) continue;
    const uint64_t block = chunk::block_bytes(usage.of);
    room += usage.reserved_bytes - usage.used_blocks * block;
    group = std::max(group, chunk::group_bytes(usage.of));
  }
  return left < group ? room : room + left;
}

void StorageNode::look_at_disks() {
  std::vector<cluster::DiskUse> use;
  for (DiskState& disk : disks_) {
    const auto health = disk.store == nullptr ? Result<void>() : disk.store->health();
    if (!health && disk.trouble.empty()) {
      disk.trouble = health.error().message;
      log_error("a disk has failed", {{"disk", disk.id}, {"cause", disk.trouble}});
    }
    cluster::DiskUse& told = use.emplace_back();
    told = {.disk = disk.id,
            .used = disk.space.total - std::min(disk.space.total, room_of(disk)),
            .trouble = disk.trouble};
    if (disk.store == nullptr) continue;
    for (const chunk::TargetInfo& target : disk.store->targets()) {
      if (live_->replicas.find(target.id) == nullptr) continue;
      const auto bad = failed_.find(target.id);
      if (bad != failed_.end() && told.trouble.empty()) {
        told.trouble = fmt::format("target {}: {}", target.id, bad->second.why);
      }
      if (target.damaged > 0 && told.trouble.empty()) {
        told.trouble = fmt::format(
            "target {}: {} of its {} chunks are damaged or missing, and are not a copy until they "
            "have been written anew from other targets",
            target.id, target.damaged, target.chunks);
      }
      live_->member.set_usable(target.id, health.ok() && bad == failed_.end() && !draining_);
      live_->member.set_size(target.id, {.chunks = target.chunks - target.removed,
                                         .bytes = target.bytes,
                                         .last_inode = target.last_inode});
    }
  }
  std::erase_if(use, [](const auto& it) { return it.disk == 0; });
  live_->member.set_use(std::move(use));
}

Task<void> StorageNode::drain() {
  if (live_ == nullptr) co_return;
  draining_ = true;
  looked_.set();
  const int64_t until_ns = loop_.now_ns() + kDrainNs;
  for (;;) {
    bool counted_on = false;
    for (const auto& [id, chain] : live_->member.routing().chains) {
      for (const cluster::Target& target : chain.targets) {
        counted_on |= target.node == node_ && counts(target.state);
      }
    }
    if (!counted_on) co_return;
    if (loop_.now_ns() >= until_ns || live_->heartbeats.trouble()) break;
    const auto waited = co_await after(loop_, kLookNs / 10);
    if (!waited) co_return;
  }
  log_warning("goes without the manager's word that its chains go on");
}

Task<void> StorageNode::close() {
  Error over = fail(Errc::interrupted, "the storage node goes down");
  co_await gate_.close(std::move(over));
  if (live_ != nullptr) {
    auto closing_replicas = live_->replicas.close();
    co_await std::move(closing_replicas);
    auto closing_managers = live_->heartbeats.close();
    co_await std::move(closing_managers);
    auto closing_nodes = live_->nodes.close();
    co_await std::move(closing_nodes);
  }
  for (DiskState& disk : disks_) {
    if (disk.store == nullptr || !disk.store->health()) continue;
    auto closing = disk.store->close();
    const auto closed = co_await std::move(closing);
    if (closed) continue;
    log_error("a disk is not closed well", {{"disk", disk.id}, {"cause", closed.error().message}});
  }
}

}  // namespace ff::chain
