// Hedged reads (Dean and Barroso, "The Tail at Scale"): decides when a slow read is also sent to a
// second target. That is after the 99th percentile of recent reads of similar size, and rarely
// enough not to worsen an overload.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"

namespace ff::chain {

class HedgePolicy {
 public:
  // Samples required before a delay is known, and samples kept.
  static constexpr size_t kMinSamples = 128;
  static constexpr size_t kWindow = 512;
  // Minimum delay: an earlier second read costs more than it gains.
  static constexpr int64_t kMinDelayNs = kMillisecond;
  // Budget: one hedged read per kReadsPerHedge reads, with bursts of at most kMaxBurst.
  static constexpr uint64_t kReadsPerHedge = 20;
  static constexpr uint64_t kMaxBurst = 16;

  // Records the duration of a read of `bytes`.
  void record(uint64_t bytes, int64_t ns);
  // Delay before a read of this size is hedged; nothing: too few samples.
  std::optional<int64_t> delay_ns(uint64_t bytes) const;
  // Takes one hedged read from the budget; false: none left.
  bool try_acquire();

 private:
  // Reads of similar size.
  struct SizeBucket {
    std::vector<int64_t> samples_ns;
    size_t next = 0;  // index of the oldest sample
    size_t new_samples = 0;
    int64_t delay_ns = 0;  // 0: unknown
  };
  static constexpr std::array<uint64_t, 3> kUpTo{16 * kKiB, 256 * kKiB, 1 * kMiB};

  static size_t bucket_of(uint64_t bytes);

  std::array<SizeBucket, kUpTo.size() + 1> buckets_;
  uint64_t credit_ = kMaxBurst * kReadsPerHedge;  // in reads
};

}  // namespace ff::chain
