// The Store on its folder. store.cc has the calls, store_owners.cc what makes this process the
// owner of partitions, and others in its place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "platform/io/async.h"
#include "storage/kvstore/claim.h"
#include "storage/kvstore/partition.h"
#include "storage/kvstore/store.h"
#include "storage/kvstore/store_settings.h"

namespace ff::kvstore {

constexpr unsigned kStoreQueueDepth = 256;

class StoreImpl final : public Store {
 public:
  StoreImpl(io::Disk& disk, Loop& loop, Rng& rng, Metrics& metrics, std::string folder,
            Options options, StoreSettings settings)
      : folder_(std::move(folder)),
        queue_(disk, loop, kStoreQueueDepth),
        context_{.disk = disk,
                 .queue = queue_,
                 .loop = loop,
                 .rng = rng,
                 .options = std::move(options),
                 .secret = std::move(settings.secret),
                 .partitions = settings.partitions,
                 .metrics = StoreMetrics(metrics)},
        heartbeats_(disk, queue_, loop, members_dir(folder_), rng.hex_id(), context_.options),
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
  bool is_shared() const override { return is_shared_; }
  uint64_t losses() const override { return losses_; }

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
    std::shared_ptr<Partition> own = {};   // null: this process does not own it
    std::string owner = {};                // the address of another owner that lives
    std::string owner_id = {};             // its id, also if it is dead
    std::string target = {};               // the id of the process that is to own it
    std::string last_error = {};           // of the last attempt to claim it
    std::optional<int64_t> free_ns = {};   // since when it has had no owner that lives
    std::optional<int64_t> given_ns = {};  // when this process last gave it to another one
    int64_t retry_ns = 0;                  // this process cannot open it: not again before
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
  Task<void> claim_loop();
  Task<void> give_loop();
  Task<void> update_shares();
  Task<void> look_at_others();
  bool is_due(uint32_t partition) const;
  Task<Result<void>> look_at(uint32_t partition);
  void plan();
  std::vector<std::string> members_to_share(const std::vector<std::string>& owners);
  bool may_claim(uint32_t partition) const;
  Task<void> claim_free();
  Task<Result<void>> claim_if_free(uint32_t partition);
  bool is_free(const Claim& newest, const StoreHeartbeats::Peer* peer) const;
  Task<Result<void>> outlast(const Claim& former, std::optional<uint64_t> heartbeat);
  Task<Result<void>> take(uint32_t partition, const Claim& newest,
                          std::optional<uint64_t> heartbeat);
  Task<void> leave_to_others(uint32_t partition, ClaimFolder& claims, const Claim& former,
                             std::optional<uint64_t> heartbeat);
  void note_claim(uint32_t partition);
  Task<void> give_excess();
  Task<void> give(uint32_t partition);
  void forget_dead();
  int64_t pause_ns() const;
  Task<void> maintain_loop();
  int64_t lease_end() const { return last_beat_ns_ + context_.options.lease_ns / 4 * 3; }
  void drop_lost();
  void update_gauges();

  const std::string folder_;
  io::AsyncQueue queue_;
  StoreContext context_;
  StoreHeartbeats heartbeats_;
  std::vector<Place> places_;
  bool is_shared_ = false;
  bool stands_by_ = false;  // its clients are not those of the processes that share
  uint64_t losses_ = 0;
  uint64_t looks_ = 0;         // calls of look_at_others() so far
  int64_t give_after_ns_ = 0;  // no partition is given to another process before
  std::string observe_error_ = {};
  int64_t last_beat_ns_ = 0;  // when the last heartbeat that succeeded began
  Gate writers_;              // Partition::run()
  Gate loops_;
};

}  // namespace ff::kvstore
