// txn.cc: the part of transactions common to all engines: own writes, merged reads and limits.
#include <algorithm>

#include "platform/base/check.h"
#include "platform/kv/engine.h"
#include "platform/kv/record_checksum.h"

namespace ff::kv {

std::string end_of_prefix(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  FF_CHECK(!prefix.empty());
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

Result<void> Txn::count_read() {
  if (++reads_ <= reads_max_) return {};
  return fail(Errc::failed, "a transaction reads more than {} keys and ranges", reads_max_);
}

Task<Result<std::optional<std::string>>> Txn::get(std::string key) {
  return read(std::move(key), true);
}

Task<Result<std::optional<std::string>>> Txn::snapshot_get(std::string key) {
  return read(std::move(key), false);
}

Task<Result<std::optional<std::string>>> Txn::read(std::string key, bool watched) {
  const auto own = writes_.find(key);
  if (own != writes_.end()) co_return own->second;
  const auto known = prefetched_.find(key);
  if (known != prefetched_.end()) co_return known->second;
  FF_CO_TRY(count_read());
  FF_CO_TRY(auto stored, co_await fetch(key, watched));
  if (!stored) co_return std::optional<std::string>();
  FF_CO_TRY(auto value, verified_value(key, std::move(*stored)));
  co_return std::optional(std::move(value));
}

Task<Result<Txn::Values>> Txn::get_all(std::vector<std::string> keys) {
  Values values;
  std::vector<std::string> missing;  // in writes_
  for (std::string& key : keys) {
    const auto own = writes_.find(key);
    values.push_back(own != writes_.end() ? own->second : std::nullopt);
    if (own == writes_.end()) missing.push_back(key);
  }
  for (size_t i = 0; i < missing.size(); i++) FF_CO_TRY(count_read());
  if (missing.empty()) co_return values;
  FF_CO_TRY(Values stored, co_await fetch_all(std::move(missing)));
  size_t next = 0;
  for (size_t i = 0; i < keys.size(); i++) {
    if (writes_.contains(keys[i])) continue;
    auto& value = stored.at(next++);
    if (!value) continue;
    FF_CO_TRY(values[i], verified_value(keys[i], std::move(*value)));
  }
  co_return values;
}

Task<Result<Txn::Values>> Txn::fetch_all(std::vector<std::string> keys) {
  Values values;
  for (std::string& key : keys) {
    FF_CO_TRY(auto value, co_await fetch(std::move(key), true));
    values.push_back(std::move(value));
  }
  co_return values;
}

Task<Result<void>> Txn::prefetch(std::vector<std::string> keys) {
  if (!reads_take_round_trips()) co_return Result<void>();
  std::ranges::sort(keys);
  const auto repeated = std::ranges::unique(keys);
  keys.erase(repeated.begin(), repeated.end());
  std::erase_if(keys, [&](const std::string& key) {
    return writes_.contains(key) || prefetched_.contains(key);
  });
  FF_CO_TRY(Values values, co_await get_all(keys));
  for (size_t i = 0; i < keys.size(); i++) {
    prefetched_.emplace(std::move(keys[i]), std::move(values[i]));
  }
  co_return Result<void>();
}

Task<Result<void>> Txn::prefetch_ranges(std::vector<GuardedRange> ranges) {
  if (!reads_take_round_trips() || ranges.empty()) co_return Result<void>();
  for (const GuardedRange& one : ranges) {
    FF_CHECK(one.range.limit > 0 && one.range.begin < one.range.end);
    FF_CHECK(!one.guard.empty() || reads_max_ == kNoLimit);
    FF_CO_TRY(count_read());
  }
  FF_CO_TRY(auto found, co_await fetch_ranges(ranges));
  for (size_t i = 0; i < ranges.size(); i++) {
    std::string begin = ranges[i].range.begin;
    PrefetchedRange prefetched{std::move(ranges[i].range), std::move(found.at(i))};
    prefetched_ranges_.insert_or_assign(std::move(begin), std::move(prefetched));
  }
  co_return Result<void>();
}

Task<Result<std::vector<std::vector<Entry>>>> Txn::fetch_ranges(std::vector<GuardedRange> ranges) {
  std::vector<std::vector<Entry>> found;
  for (GuardedRange& one : ranges) {
    FF_CO_TRY(auto entries, co_await fetch_range(std::move(one.range), std::move(one.guard)));
    found.push_back(std::move(entries));
  }
  co_return found;
}

// The stored entries, prefetched or fetched now.
Task<Result<std::vector<Entry>>> Txn::read_range(Range range, std::string guard) {
  const auto known = prefetched_ranges_.find(range.begin);
  if (known != prefetched_ranges_.end()) {
    const Range& has = known->second.range;
    const std::vector<Entry>& entries = known->second.entries;
    if (has.end == range.end && (has.limit >= range.limit || entries.size() < has.limit)) {
      const auto count = static_cast<ptrdiff_t>(std::min(range.limit, entries.size()));
      co_return std::vector<Entry>(entries.begin(), entries.begin() + count);
    }
  }
  FF_CO_TRY(count_read());
  co_return co_await fetch_range(std::move(range), std::move(guard));
}

Task<Result<std::vector<Entry>>> Txn::range(Range range, std::string guard) {
  FF_CHECK(range.limit > 0);
  FF_CHECK(!guard.empty() || reads_max_ == kNoLimit);
  const size_t limit = range.limit;
  const bool with_damaged = guard == kIncludeDamaged;
  const auto first = writes_.lower_bound(range.begin);
  const auto last = range.begin < range.end ? writes_.lower_bound(range.end) : first;
  // Each own erasure may hide one entry.
  range.limit += static_cast<size_t>(
      std::count_if(first, last, [](const auto& write) { return !write.second.has_value(); }));
  FF_CO_TRY(auto stored, co_await read_range(std::move(range), std::move(guard)));
  for (Entry& entry : stored) {
    auto value = verified_value(entry.key, std::move(entry.value));
    if (!value && !with_damaged) co_return std::move(value).error();
    if (!value) entry.key = std::string(kIncludeDamaged) + entry.key;
    entry.value = value ? std::move(*value) : std::string();
  }
  if (first == last) co_return stored;
  std::map<std::string, std::string> merged;
  for (Entry& entry : stored) merged.emplace(std::move(entry.key), std::move(entry.value));
  for (auto write = first; write != last; ++write) {
    merged.erase(write->first);
    if (write->second) merged.emplace(write->first, *write->second);
  }
  std::vector<Entry> entries;
  for (auto& [key, value] : merged) {
    if (entries.size() == limit) break;
    entries.push_back({key, std::move(value)});
  }
  co_return entries;
}

void Txn::put(std::string key, std::string value) {
  written_ += key.size() + value.size();
  writes_[std::move(key)] = std::move(value);
}

void Txn::erase(std::string key) {
  written_ += key.size();
  writes_[std::move(key)] = std::nullopt;
}

Result<void> Txn::check() const {
  if (writes_.size() > kWritesMax) {
    return fail(Errc::failed, "a transaction writes {} keys (the limit is {})", writes_.size(),
                kWritesMax);
  }
  if (written_ > kBytesMax) {
    return fail(Errc::failed, "a transaction writes {} bytes (the limit is {})", written_,
                kBytesMax);
  }
  return {};
}

// The default for engines whose commits are always durable.
Task<Result<void>> Engine::sync(int64_t) { co_return Result<void>(); }

}  // namespace ff::kv
