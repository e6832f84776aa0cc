// inode_id_allocator.cc: reserves batches of the counter in the store.
#include "storage/meta/inode_id_allocator.h"

#include <algorithm>

#include "storage/meta/keys.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

constexpr uint64_t kBatch = 4096;
// Numbers below are reserved: the root, and future special inodes.
constexpr InodeId kFirst = 1024;

// More inodes than are created between two backups; allows 2^32 restores.
constexpr uint64_t kSkipped = uint64_t{1} << 32;

}  // namespace

Task<Result<void>> skip_inode_ids(kv::Txn& txn) {
  FF_CO_TRY(auto counter, co_await read_record<wire::Counter>(txn, std::string(keys::kNextInode)));
  if (!counter) co_return Result<void>();  // no file was ever created
  counter->set_next(counter->next() + kSkipped);
  txn.put(std::string(keys::kNextInode), counter->SerializeAsString());
  co_return Result<void>();
}

Task<Result<InodeId>> InodeIdAllocator::next(int64_t deadline_ns, uint64_t count) {
  while (end_ - next_ < count) {
    FF_CO_TRY(const auto hold, co_await taking_.acquire(1));
    if (end_ - next_ < count) {
      const uint64_t reserved = std::max(kBatch, count);
      uint64_t first = 0;
      kv::TxnFunction function = [&first, reserved](kv::Txn& txn) -> Task<Result<void>> {
        FF_CO_TRY(const auto stored,
                  co_await read_record<wire::Counter>(txn, std::string(keys::kNextInode)));
        first = stored ? stored->next() : kFirst;
        wire::Counter counter;
        counter.set_next(first + reserved);
        txn.put(std::string(keys::kNextInode), counter.SerializeAsString());
        co_return Result<void>();
      };
      FF_CO_TRY(co_await engine_.run(std::move(function), deadline_ns));
      next_ = first;
      end_ = first + reserved;
    }
  }
  next_ += count;
  co_return next_ - count;
}

}  // namespace ff::meta
