// store.cc: the calls of a store, by their partitions.
#include "storage/kvstore/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "storage/kvstore/store_impl.h"

namespace ff::kvstore {

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
