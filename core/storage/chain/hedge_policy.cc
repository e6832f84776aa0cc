// hedge_policy.cc: a sliding window of durations and its 99th percentile.
#include "storage/chain/hedge_policy.h"

#include <algorithm>

namespace ff::chain {

namespace {

constexpr size_t kSamplesPerUpdate = 64;  // new samples before the percentile is computed again

}  // namespace

size_t HedgePolicy::bucket_of(uint64_t bytes) {
  return static_cast<size_t>(std::ranges::lower_bound(kUpTo, bytes) - kUpTo.begin());
}

void HedgePolicy::record(uint64_t bytes, int64_t ns) {
  credit_ = std::min(credit_ + 1, kMaxBurst * kReadsPerHedge);
  SizeBucket& bucket = buckets_[bucket_of(bytes)];
  if (bucket.samples_ns.size() < kWindow) {
    bucket.samples_ns.push_back(ns);
  } else {
    bucket.samples_ns[bucket.next] = ns;
    bucket.next = (bucket.next + 1) % kWindow;
  }
  if (++bucket.new_samples < kSamplesPerUpdate || bucket.samples_ns.size() < kMinSamples) return;
  bucket.new_samples = 0;
  std::vector<int64_t> all = bucket.samples_ns;
  const auto at = all.begin() + static_cast<long>(all.size() * 99 / 100);
  std::ranges::nth_element(all, at);
  bucket.delay_ns = std::max(*at, kMinDelayNs);
}

std::optional<int64_t> HedgePolicy::delay_ns(uint64_t bytes) const {
  const SizeBucket& bucket = buckets_[bucket_of(bytes)];
  return bucket.delay_ns == 0 ? std::nullopt : std::optional(bucket.delay_ns);
}

bool HedgePolicy::try_acquire() {
  if (credit_ < kReadsPerHedge) return false;
  credit_ -= kReadsPerHedge;
  return true;
}

}  // namespace ff::chain
