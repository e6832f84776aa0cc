// value_cache.cc: a list in the order of use, and a table of its keys.
#include "storage/gateway/value_cache.h"

namespace ff::gateway {

namespace {

constexpr size_t kEntryOverhead = 160;  // of list, table and allocator
constexpr size_t kLargestShare = 16;

}  // namespace

size_t ValueCache::bytes_of(std::string_view key, std::string_view value) {
  return key.size() + value.size() + kEntryOverhead;
}

const std::string* ValueCache::find(std::string_view key, uint64_t version) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || found->second->version != version) return nullptr;
  values_.splice(values_.begin(), values_, found->second);
  return &found->second->value;
}

void ValueCache::put(std::string_view key, uint64_t version, std::string_view value) {
  const auto former = by_key_.find(key);
  if (former != by_key_.end()) erase(former->second);
  const size_t bytes = bytes_of(key, value);
  if (bytes > bytes_max_ / kLargestShare) return;
  while (bytes_ + bytes > bytes_max_) erase(std::prev(values_.end()));
  values_.emplace_front(CachedValue{std::string(key), std::string(value), version});
  by_key_.emplace(values_.front().key, values_.begin());
  bytes_ += bytes;
}

void ValueCache::erase(Values::iterator at) {
  bytes_ -= bytes_of(at->key, at->value);
  by_key_.erase(at->key);
  values_.erase(at);
}

void ValueCache::clear() {
  by_key_.clear();
  values_.clear();
  bytes_ = 0;
}

}  // namespace ff::gateway
