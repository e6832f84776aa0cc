// store.cc: the folder of a store, heartbeats, and which partitions this process owns.
#include "storage/kvstore/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/io/async.h"
#include "platform/io/files.h"
#include "storage/kvstore/claim.h"
#include "storage/kvstore/partition.h"
#include "storage/kvstore/store_settings.h"

namespace ff::kvstore {

namespace {

constexpr unsigned kQueueDepth = 256;
class StoreImpl final : public Store {
 public:
  StoreImpl(io::Disk& disk, Loop& loop, Rng& rng, Metrics& metrics, std::string folder,
            Options options, StoreSettings settings)
      : folder_(std::move(folder)),
        queue_(disk, loop, kQueueDepth),
        context_{.disk = disk,
                 .queue = queue_,
                 .loop = loop,
                 .rng = rng,
                 .options = std::move(options),
                 .secret = std::move(settings.secret),
                 .partitions = settings.partitions,
                 .metrics = StoreMetrics(metrics)},
        heartbeats_(disk, queue_, loop, members_dir(folder_), rng.hex_id(),
                    context_.options.address),
        places_(settings.partitions),
        writers_(loop),
        loops_(loop) {}

  Task<Result<void>> start();
  Task<void> close() override;

  uint32_t partitions() const override { return context_.partitions; }
  uint32_t partition_of(std::string_view key) const override {
    return partition_of_slot(redis_slot(key), context_.partitions);
  }
  uint32_t partition_of_part(std::string_view name) const override {
    return partition_of_slot(slot_of_part(name), context_.partitions);
  }
  SlotRange redis_slots(uint32_t partition) const override {
    return {.first = first_slot(partition, context_.partitions),
            .last = first_slot(partition + 1, context_.partitions) - 1};
  }
  bool owned(uint32_t partition) const override {
    const auto& own = places_[partition].own;
    return own != nullptr && own->serving().ok();
  }
  std::string owner(uint32_t partition) const override {
    return owned(partition) ? context_.options.address : places_[partition].owner;
  }

  Result<std::optional<KeyInfo>> find(std::string_view key) override {
    FF_TRY(const auto partition, of_key(key));
    return partition->find(key);
  }
  Task<Result<std::optional<Entry>>> get(std::string key) override {
    FF_CO_TRY(const auto partition, of_key(key));
    co_return co_await partition->get(std::move(key));
  }
  Result<std::optional<KeyInfo>> find_part(std::string_view name) override {
    FF_TRY(const auto partition, of_part(name));
    return partition->find_part(name);
  }
  Task<Result<std::optional<Entry>>> get_part(std::string name) override {
    FF_CO_TRY(const auto partition, of_part(name));
    co_return co_await partition->get_part(std::move(name));
  }
  Result<std::optional<KeyInfo>> find_owner(std::string_view key) override {
    FF_TRY(const auto partition, of_key(key));
    return partition->find_owner(key);
  }
  Task<Result<std::optional<Entry>>> get_owner(std::string key) override {
    FF_CO_TRY(const auto partition, of_key(key));
    co_return co_await partition->get_owner(std::move(key));
  }
  Task<std::vector<Result<std::optional<Entry>>>> get_many(std::vector<std::string> keys) override;
  Task<Result<Applied>> apply(std::vector<Change> changes,
                              std::vector<Precondition> preconditions) override;
  Task<Result<RecordReservation>> reserve(std::string key, uint64_t value_bytes,
                                          int64_t expires_ms) override {
    FF_CO_TRY(const auto partition, of_key(key));
    co_return co_await partition->reserve(std::move(key), value_bytes, expires_ms);
  }
  Task<Result<Applied>> confirm(std::string key, RecordReservation reservation) override {
    FF_CO_TRY(const auto partition, of_key(key));
    co_return co_await partition->confirm(std::move(key), reservation);
  }
  Task<Result<ScanPage>> scan(uint32_t partition, uint64_t cursor, size_t limit) override {
    FF_CO_TRY(const auto own, own_partition(partition));
    co_return co_await own->scan(cursor, limit);
  }
  Task<Result<std::vector<Leftover>>> leftovers(uint32_t partition, size_t limit) override {
    FF_CO_TRY(const auto own, own_partition(partition));
    co_return co_await own->leftovers(limit);
  }
  Counts counts(uint32_t partition) const override {
    const auto& own = places_[partition].own;
    return own == nullptr ? Counts() : own->counts();
  }
  Task<Result<void>> clear(uint32_t partition) override {
    FF_CO_TRY(const auto own, own_partition(partition));
    co_return co_await own->clear();
  }
  std::vector<std::string> damage() const override { return context_.damage; }

 private:
  struct Place {
    std::shared_ptr<Partition> own = {};  // null: this process does not own it
    std::string owner = {};               // the address of another owner
    std::string owner_id = {};
    std::string last_error = {};  // of the last attempt to claim it
  };

  Result<std::shared_ptr<Partition>> own_partition(uint32_t partition) const;
  Result<std::shared_ptr<Partition>> of_key(std::string_view key) const {
    return own_partition(partition_of(key));
  }
  Result<std::shared_ptr<Partition>> of_part(std::string_view name) const {
    return own_partition(partition_of_part(name));
  }
  uint32_t of_change(const Change& change) const {
    return is_part(change.role) ? partition_of_part(change.key) : partition_of(change.key);
  }
  std::string dir_of(uint32_t partition) const { return partition_dir(folder_, partition); }
  Task<void> read_one(std::string key, Result<std::optional<Entry>>& result);
  Task<void> beat();
  Task<void> beat_loop();
  Task<void> claim_free();
  Task<void> claim_loop();
  Task<Result<void>> claim_if_free(uint32_t partition);
  Task<Result<bool>> is_free(uint32_t partition, const Claim& newest,
                             std::optional<uint64_t>& heartbeat);
  bool owns_any(const std::string& member) const;
  Task<Result<void>> outlast(const Claim& former, std::optional<uint64_t> heartbeat);
  Task<Result<void>> take(uint32_t partition, const Claim& newest,
                          std::optional<uint64_t> heartbeat);
  Task<void> maintain_loop();
  int64_t lease_end() const { return last_beat_ns_ + context_.options.lease_ns / 4 * 3; }
  void drop_lost();
  void update_gauges();

  const std::string folder_;
  io::AsyncQueue queue_;
  StoreContext context_;
  StoreHeartbeats heartbeats_;
  std::vector<Place> places_;
  int64_t last_beat_ns_ = 0;  // when the last heartbeat that succeeded began
  Gate writers_;              // Partition::run()
  Gate loops_;
};

Result<std::shared_ptr<Partition>> StoreImpl::own_partition(uint32_t partition) const {
  if (partition >= places_.size()) {
    return fail(Errc::usage, "partition {}: the store has {}", partition, places_.size());
  }
  const Place& place = places_[partition];
  if (place.own != nullptr) return place.own;
  return Error{.code = Errc::stale,
               .message = fmt::format(
                   "partition {} is owned by {}", partition,
                   place.owner.empty() ? std::string("no process") : printable(place.owner)),
               .hint = "Ask the process that owns the partition."};
}

Task<void> StoreImpl::read_one(std::string key, Result<std::optional<Entry>>& result) {
  result = co_await get(std::move(key));
}

Task<std::vector<Result<std::optional<Entry>>>> StoreImpl::get_many(std::vector<std::string> keys) {
  std::vector<Result<std::optional<Entry>>> results(keys.size(), std::optional<Entry>());
  Gate reads(context_.loop);
  for (size_t i = 0; i < keys.size(); ++i) {
    reads.spawn(read_one(std::move(keys[i]), results[i]));
  }
  co_await reads.wait_empty();
  co_return results;
}

Task<Result<Applied>> StoreImpl::apply(std::vector<Change> changes,
                                       std::vector<Precondition> preconditions) {
  std::optional<uint32_t> partition;
  bool one = true;
  const auto belongs = [&](uint32_t to) {
    one = one && partition.value_or(to) == to;
    partition = to;
  };
  for (const Change& change : changes) belongs(of_change(change));
  for (const Precondition& precondition : preconditions) belongs(partition_of(precondition.key));
  if (!one) co_return fail(Errc::usage, "keys of several partitions in one change");
  if (!partition) co_return Applied{.done = true};
  FF_CO_TRY(const auto own, own_partition(*partition));
  co_return co_await own->apply(std::move(changes), std::move(preconditions));
}

Task<Result<void>> StoreImpl::start() {
  FF_CO_TRY(io::make_dirs(context_.disk, members_dir(folder_), 0700));
  for (uint32_t i = 0; i < context_.partitions; ++i) {
    FF_CO_TRY(io::make_dirs(context_.disk, dir_of(i), 0700));
  }
  const int64_t began_ns = context_.loop.now_ns();
  FF_CO_TRY(co_await heartbeats_.beat());
  last_beat_ns_ = began_ns;
  loops_.spawn(beat_loop());
  if (context_.options.claim) co_await claim_free();
  if (context_.options.claim) loops_.spawn(claim_loop());
  loops_.spawn(maintain_loop());
  update_gauges();
  co_return {};
}

Task<void> StoreImpl::close() {
  const Error closing = fail(Errc::interrupted, "the store is being closed");
  co_await loops_.close(closing);
  for (Place& place : places_) {
    if (place.own == nullptr) continue;
    co_await place.own->stop();
    if (!place.own->lost()) co_await place.own->seal_all();
    const auto released = co_await place.own->claims().release();
    if (!released) log_warning("not released", {{"error", released.error().message}});
  }
  co_await writers_.close(closing);
  (void)heartbeats_.remove_own();
}

// The marks are read after the heartbeat is written: whoever takes this process for dead has either
// not set them, and then sees the heartbeat before it serves, or has, and they are seen here.
Task<void> StoreImpl::beat() {
  const int64_t began_ns = context_.loop.now_ns();
  const auto written = co_await heartbeats_.beat();
  if (!written) {
    log_warning("no heartbeat", {{"error", written.error().message}});
    co_return;
  }
  last_beat_ns_ = began_ns;
  const int64_t until_ns = lease_end();
  for (uint32_t i = 0; i < context_.partitions; ++i) {
    const auto own = places_[i].own;
    if (own == nullptr) continue;
    const auto checked = co_await own->claims().check();
    if (checked) own->set_lease(until_ns);
    if (checked) continue;
    const auto newest = co_await own->claims().newest();
    const bool others = newest && newest->epoch != own->claims().epoch();
    if (others || checked.error().code == Errc::stale) own->lose();
  }
  drop_lost();
  update_gauges();
}

void StoreImpl::drop_lost() {
  for (Place& place : places_) {
    if (place.own != nullptr && place.own->lost()) place.own = nullptr;
  }
}

Task<void> StoreImpl::beat_loop() {
  for (;;) {
    const auto slept = co_await sleep_for(context_.loop, context_.options.heartbeat_ns);
    if (!slept) co_return;
    co_await beat();
  }
}

Task<void> StoreImpl::claim_loop() {
  for (;;) {
    const auto slept = co_await sleep_for(context_.loop, context_.options.heartbeat_ns);
    if (!slept) co_return;
    co_await claim_free();
  }
}

Task<void> StoreImpl::maintain_loop() {
  for (;;) {
    const auto slept = co_await sleep_for(context_.loop, context_.options.heartbeat_ns);
    if (!slept) co_return;
    for (uint32_t i = 0; i < context_.partitions; ++i) {
      const auto own = places_[i].own;
      if (own != nullptr) co_await own->maintain();
    }
  }
}

Task<void> StoreImpl::claim_free() {
  for (uint32_t i = 0; i < context_.partitions; ++i) {
    if (places_[i].own != nullptr) continue;
    const auto claimed = co_await claim_if_free(i);
    if (!claimed && claimed.error().code == Errc::interrupted) co_return;
    const std::string error = claimed ? std::string() : claimed.error().message;
    // Each error once: this is tried with each heartbeat.
    if (!error.empty() && error != places_[i].last_error) {
      log_warning("partition not claimed", {{"partition", i}, {"error", error}});
    }
    places_[i].last_error = error;
  }
}

// Whether nobody owns the partition: its owner has released it, has ended, or its heartbeat has not
// changed for the time of a lease.
Task<Result<bool>> StoreImpl::is_free(uint32_t partition, const Claim& newest,
                                      std::optional<uint64_t>& heartbeat) {
  Place& place = places_[partition];
  place.owner.clear();
  place.owner_id = newest.member;
  if (newest.epoch == 0 || newest.mark == ClaimMark::released) co_return true;
  if (newest.member == heartbeats_.id()) co_return true;  // an attempt that has failed
  FF_CO_TRY(const auto peer, co_await heartbeats_.observe(newest.member));
  if (!peer) co_return true;
  heartbeat = peer->counter;
  if (context_.loop.now_ns() - peer->changed_ns >= context_.options.lease_ns) co_return true;
  place.owner = peer->address;
  co_return false;
}

Task<Result<void>> StoreImpl::claim_if_free(uint32_t partition) {
  ClaimFolder claims(context_.disk, queue_, dir_of(partition));
  FF_CO_TRY(const Claim newest, co_await claims.newest());
  std::optional<uint64_t> heartbeat;
  FF_CO_TRY(const bool free, co_await is_free(partition, newest, heartbeat));
  if (!free) co_return {};
  FF_CO_TRY(co_await take(partition, newest, heartbeat));
  if (heartbeat && !owns_any(newest.member)) heartbeats_.forget(newest.member);
  co_return {};
}

bool StoreImpl::owns_any(const std::string& member) const {
  return std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
    return place.own == nullptr && place.owner_id == member;
  });
}

// A former owner serves reads until it sees the mark or its lease ends. If its heartbeat stood
// still until after the mark was set, its lease has ended; otherwise wait for that.
Task<Result<void>> StoreImpl::outlast(const Claim& former, std::optional<uint64_t> heartbeat) {
  if (former.epoch == 0 || former.mark == ClaimMark::released) co_return {};
  FF_CO_TRY(const auto peer, co_await heartbeats_.observe(former.member));
  if (heartbeat && peer && peer->counter == *heartbeat) co_return {};
  co_return co_await sleep_for(context_.loop, context_.options.lease_ns);
}

Task<Result<void>> StoreImpl::take(uint32_t partition, const Claim& newest,
                                   std::optional<uint64_t> heartbeat) {
  Place& place = places_[partition];
  auto claims = std::make_unique<ClaimFolder>(context_.disk, queue_, dir_of(partition));
  FF_CO_TRY(co_await claims->claim(newest, heartbeats_.id(), context_.rng.hex_id()));
  FF_CO_TRY(auto own, co_await Partition::open(context_, partition, std::move(claims)));
  FF_CO_TRY(co_await outlast(newest, heartbeat));
  const int64_t until_ns = lease_end();
  FF_CO_TRY(co_await own->claims().check());
  own->set_lease(until_ns);
  writers_.spawn(Partition::run(own));
  place.own = std::move(own);
  context_.metrics.claims.add();
  log_info("partition claimed", {{"partition", partition},
                                 {"epoch", place.own->claims().epoch()},
                                 {"keys", place.own->counts().keys}});
  co_return {};
}

void StoreImpl::update_gauges() {
  const Counts all = Store::counts();
  StoreMetrics& metrics = context_.metrics;
  metrics.partitions.set(std::count_if(places_.begin(), places_.end(),
                                       [](const Place& place) { return place.own != nullptr; }));
  metrics.keys.set(static_cast<int64_t>(all.keys));
  metrics.live_bytes.set(static_cast<int64_t>(all.live_bytes));
  metrics.file_bytes.set(static_cast<int64_t>(all.file_bytes));
  metrics.index_bytes.set(static_cast<int64_t>(all.index_bytes));
}

}  // namespace

Counts Store::counts() const {
  Counts all;
  for (uint32_t i = 0; i < partitions(); ++i) {
    const Counts one = counts(i);
    all.keys += one.keys;
    all.live_bytes += one.live_bytes;
    all.file_bytes += one.file_bytes;
    all.index_bytes += one.index_bytes;
  }
  return all;
}

Task<Result<std::unique_ptr<Store>>> Store::open(io::Disk& disk, Loop& loop, Rng& rng,
                                                 Metrics& metrics, std::string folder,
                                                 Options options) {
  // Limits of the format: 32 GiB in a segment, 32 bits for a record.
  options.segment_bytes = std::min(options.segment_bytes, 16 * kGiB);
  options.max_value_bytes = std::min(options.max_value_bytes, kGiB);
  FF_CO_TRY(io::make_dirs(disk, folder, 0700));
  FF_CO_TRY(auto settings, make_settings(disk, rng, folder, options.partitions));
  auto store = std::make_unique<StoreImpl>(disk, loop, rng, metrics, std::move(folder),
                                           std::move(options), std::move(settings));
  auto started = co_await store->start();
  if (!started) {
    co_await store->close();
    co_return started.error();
  }
  co_return std::unique_ptr<Store>(std::move(store));
}

}  // namespace ff::kvstore
