// storage_shard_reopen.cc: disks and targets that have failed return without a restart of the node.
// The shard closes the chunk store of a failed disk and opens it again, less and less often while
// that fails. A target that has left its chain returns like one of a restarted node: it is syncing
// until its predecessor has copied what it missed.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/text.h"
#include "storage/chain/storage_shard.h"

namespace ff::chain {

namespace {

// Retry interval of a failed disk or target: each attempt costs I/O, and each return a copy.
constexpr int64_t kReopenFirstNs = 15 * kSecond;
constexpr int64_t kReopenLastNs = 600 * kSecond;
// A disk that has worked for this long starts again with the first interval.
constexpr int64_t kReliableNs = 600 * kSecond;
constexpr int64_t kUserPollNs = 5 * kMillisecond;

int64_t next_delay_ns(int64_t last_ns) {
  return last_ns == 0 ? kReopenFirstNs : std::min(2 * last_ns, kReopenLastNs);
}

}  // namespace

void StorageShard::reopen_failed_disks() {
  const int64_t now_ns = loop_.now_ns();
  for (DiskState& disk : disks_) {
    const bool failed = disk.store == nullptr ? !disk.error.empty() : !disk.store->health().ok();
    if (!failed || disk.id == 0 || disk.absent || disk.reopening || draining_) continue;
    if (disk.reopen_ns == 0) {  // it has just failed
      const bool reliable = disk.opened_ns != 0 && now_ns - disk.opened_ns >= kReliableNs;
      disk.reopen_delay_ns = next_delay_ns(reliable ? 0 : disk.reopen_delay_ns);
      disk.reopen_ns = now_ns + disk.reopen_delay_ns;
    }
    if (now_ns < disk.reopen_ns) continue;
    disk.reopening = true;
    gate_.spawn(reopen(disk));
  }
}

Task<void> StorageShard::reopen(DiskState& disk) {
  const bool failed = disk.store != nullptr;
  auto opened = co_await close_failed(disk);
  if (opened) opened = co_await open_again(disk, failed);
  disk.reopening = false;
  disk.reopen_ns = 0;
  if (!opened) {
    // Without its identity file the disk is still not mounted, as `error` says.
    if (opened.error().code != Errc::not_found) disk.error = opened.error().message;
    co_return;
  }
  log_info("a disk works again", {{"disk", disk.id}, {"dir", disk.dir}, {"cause", disk.error}});
  disk.error.clear();
  for (const chunk::TargetInfo& target : disk.store->targets()) {
    failed_.erase(target.id);
    runtime_->replicas.add(*disk.store, target.id, target.chain);
  }
  changed_.set();
}

// Ends everything that uses the store of the disk, then the store.
Task<Result<void>> StorageShard::close_failed(DiskState& disk) {
  const auto store = std::exchange(disk.store, nullptr);
  if (store == nullptr) co_return Result<void>();
  for (const chunk::TargetInfo& target : store->targets()) {
    runtime_->member.set_usable(target.id, false);
    co_await runtime_->replicas.remove(target.id);
  }
  // scrub() and prune() may be in the middle of an operation.
  while (store.use_count() > 1) {
    auto waiting = sleep_for(loop_, kUserPollNs);
    FF_CO_TRY(co_await waiting);
  }
  co_await store->abandon();
  co_return Result<void>();
}

// `failed`: the store has reported an I/O error since it was opened.
Task<Result<void>> StorageShard::open_again(DiskState& disk, bool failed) {
  FF_CO_TRY(const auto identity, chunk::read_identity(disk_, disk.dir));
  if (identity.node != node_ || parse_u64(identity.disk) != disk.id) {
    co_return fail(Errc::refused, "{}: this is disk {} of node {}, not disk {} of node {}",
                   disk.dir, printable(identity.disk), identity.node, disk.id, node_);
  }
  chunk::ChunkStoreOptions options = store_options(disk.dir);
  options.after_failure = failed;
  FF_CO_TRY(auto store, co_await chunk::ChunkStore::open(std::move(options)));
  disk.store = std::move(store);
  disk.opened_ns = loop_.now_ns();
  co_return Result<void>();
}

void StorageShard::on_target_failed(cluster::TargetId id, const Error& error) {
  if (!failed_.contains(id)) {
    int64_t& delay_ns = retry_delays_ns_[id];
    // A full disk may have space again at any time.
    delay_ns = error.code == Errc::disk_full ? kReopenFirstNs : next_delay_ns(delay_ns);
    failed_[id] = {.reason = error.message, .retry_ns = loop_.now_ns() + delay_ns};
    log_error("a target has failed", {{"target", id}, {"cause", error.message}});
  }
  runtime_->member.set_usable(id, false);
  changed_.set();
  request_heartbeat_();
}

// A target that failed for lack of space, or because its data differs, is copied again. Those of a
// failed disk wait for the disk.
void StorageShard::retry_failed_targets() {
  std::erase_if(failed_,
                [&](const auto& failure) { return failure.second.retry_ns <= loop_.now_ns(); });
}

}  // namespace ff::chain
