// store_reader.cc: which partitions a call needs, and how new their views must be.
#include "storage/kvstore/store_reader.h"

#include <algorithm>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/task_group.h"

namespace ff::kvstore {

namespace {

constexpr unsigned kReaderQueueDepth = 256;

}  // namespace

Result<std::unique_ptr<StoreReader>> StoreReader::open(io::Disk& disk, Loop& loop,
                                                       std::string folder, Options options) {
  FF_TRY(auto settings, read_settings(disk, folder));
  std::optional<io::Buffers> memory;
  if (options.buffers > 0) {
    FF_TRY(memory, disk.make_buffers(options.buffers, TransferBuffers::kBytes));
  }
  return std::unique_ptr<StoreReader>(new StoreReader(disk, loop, std::move(folder), options,
                                                      std::move(settings), std::move(memory)));
}

StoreReader::StoreReader(io::Disk& disk, Loop& loop, std::string folder, Options options,
                         StoreSettings settings, std::optional<io::Buffers> memory)
    : options_(options),
      settings_(std::move(settings)),
      loop_(loop),
      queue_(disk, loop, kReaderQueueDepth),
      context_{.disk = disk, .queue = queue_, .loop = loop, .secret = settings_.secret},
      members_(disk, queue_, loop, members_dir(folder), {}, kvstore::Options()),
      outdated_ns_(settings_.partitions, INT64_MIN) {
  if (memory) context_.buffers = &buffers_.emplace(loop, std::move(*memory));
  const size_t threads = std::min<size_t>(options.threads, settings_.partitions);
  for (size_t i = 0; i < threads; ++i) {
    threads_.push_back(std::make_unique<WorkerThread>());
    context_.threads.push_back(threads_.back().get());
  }
  for (uint32_t i = 0; i < settings_.partitions; ++i) {
    followers_.push_back(std::make_unique<Follower>(context_, i, partition_dir(folder, i)));
  }
}

Task<Result<void>> StoreReader::refresh() {
  TaskGroup refreshes(loop_);
  for (const auto& follower : followers_) refreshes.add(follower->refresh(INT64_MAX));
  co_return co_await refreshes.join();
}

void StoreReader::outdate(uint32_t partition) { outdated_ns_[partition] = loop_.now_ns(); }

// The partitions of the keys, with views that are new enough.
Task<Result<std::vector<uint32_t>>> StoreReader::prepare(std::span<const std::string_view> keys) {
  const int64_t oldest_ns = loop_.now_ns() - options_.max_age_ns;
  std::vector<uint32_t> partitions(keys.size());
  std::vector<bool> needed(settings_.partitions);
  for (size_t i = 0; i < keys.size(); ++i) {
    partitions[i] = partition_of(keys[i]);
    needed[partitions[i]] = true;
  }
  TaskGroup refreshes(loop_);
  for (uint32_t i = 0; i < settings_.partitions; ++i) {
    const int64_t since_ns = std::max(oldest_ns, outdated_ns_[i]);
    if (needed[i]) refreshes.add(followers_[i]->refresh(since_ns));
  }
  FF_CO_TRY(co_await refreshes.join());
  co_return partitions;
}

Task<Result<StoreReader::Infos>> StoreReader::find_many(std::span<const std::string_view> keys) {
  FF_CO_TRY(const auto partitions, co_await prepare(keys));
  Infos infos(keys.size());
  std::vector<KeyHash> hashes(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    hashes[i] = hash_key(settings_.secret, keys[i]);
    followers_[partitions[i]]->prefetch(hashes[i]);
  }
  for (size_t i = 0; i < keys.size(); ++i) infos[i] = followers_[partitions[i]]->find(hashes[i]);
  co_return infos;
}

Task<void> StoreReader::read_one(uint32_t partition, std::string_view key, ByteSpan place,
                                 Result<std::optional<KeyInfo>>& result) {
  result = co_await followers_[partition]->read(hash_key(settings_.secret, key), key, place);
}

Task<Result<StoreReader::Reads>> StoreReader::read_many(std::span<const std::string_view> keys,
                                                        std::span<const ByteSpan> places) {
  FF_CO_TRY(const auto partitions, co_await prepare(keys));
  Reads results(keys.size(), std::optional<KeyInfo>());
  Gate reads(loop_);
  for (size_t i = 0; i < keys.size(); ++i) {
    reads.spawn(read_one(partitions[i], keys[i], places[i], results[i]));
  }
  co_await reads.wait_empty();
  co_return results;
}

Task<Result<std::string>> StoreReader::owner(uint32_t partition) {
  std::string none;
  FF_CO_TRY(const Claim claim, co_await followers_[partition]->claim());
  if (claim.epoch == 0 || claim.mark == ClaimMark::released) co_return none;
  FF_CO_TRY(const auto peer, co_await members_.observe(claim.member));
  if (!peer) co_return none;
  co_return peer->address;
}

Counts StoreReader::counts() const {
  Counts all;
  for (const auto& follower : followers_) {
    const Counts one = follower->counts();
    all.keys += one.keys;
    all.file_bytes += one.file_bytes;
    all.index_bytes += one.index_bytes;
  }
  return all;
}

}  // namespace ff::kvstore
