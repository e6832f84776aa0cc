// inode_ids.cc: the counter in the store.
#include "storage/meta/inode_ids.h"

#include "storage/meta/keys.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

constexpr uint64_t kBatch = 4096;
// Below are the root and what may need a number of its own one day.
constexpr InodeId kFirst = 1024;

// More than anybody has made since a backup, and 16 million restores are possible.
constexpr uint64_t kSkipped = uint64_t{1} << 32;

}  // namespace

Task<Result<void>> skip_inode_ids(kv::Txn& txn) {
  auto reading = read_record<wire::Counter>(txn, std::string(keys::kInodes));
  FF_CO_TRY(auto counter, co_await std::move(reading));
  if (!counter) co_return Result<void>();  // there were no files
  counter->set_next(counter->next() + kSkipped);
  txn.put(std::string(keys::kInodes), counter->SerializeAsString());
  co_return Result<void>();
}

Task<Result<InodeId>> InodeIds::next(int64_t deadline_ns) {
  if (next_ == end_) {
    auto taking = taking_.take(1);
    FF_CO_TRY(const auto hold, co_await std::move(taking));
    if (next_ == end_) {
      uint64_t first = 0;
      kv::Function function = [&first](kv::Txn& txn) -> Task<Result<void>> {
        auto reading = read_record<wire::Counter>(txn, std::string(keys::kInodes));
        FF_CO_TRY(const auto stored, co_await std::move(reading));
        first = stored ? stored->next() : kFirst;
        wire::Counter counter;
        counter.set_next(first + kBatch);
        txn.put(std::string(keys::kInodes), counter.SerializeAsString());
        co_return Result<void>();
      };
      auto running = engine_.run(std::move(function), deadline_ns);
      FF_CO_TRY(co_await std::move(running));
      next_ = first;
      end_ = first + kBatch;
    }
  }
  co_return next_++;
}

}  // namespace ff::meta
