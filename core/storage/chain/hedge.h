// When a read that takes long is asked of another target too: later than 99 of 100 reads of its
// size took of late, and seldom, so that it never makes an overload worse.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"

namespace ff::chain {

class Hedge {
 public:
  // Reads that are known before one can be late, and that are remembered.
  static constexpr size_t kKnown = 128;
  static constexpr size_t kRemembered = 512;
  // Never earlier: what a second read costs is not won back.
  static constexpr int64_t kLeastNs = kMillisecond;
  // Of all reads, at most one in so many is asked twice, with so many in a row.
  static constexpr uint64_t kOneIn = 20;
  static constexpr uint64_t kInARow = 16;

  // A read of `bytes` in all has taken so long.
  void took(uint64_t bytes, int64_t ns);
  // How long one may take before it is late. Nothing: not enough is known.
  std::optional<int64_t> late_ns(uint64_t bytes) const;
  // Whether one may be asked twice now.
  bool take();

 private:
  // Reads of about one size.
  struct Sizes {
    std::vector<int64_t> took_ns;
    size_t next = 0;  // to be written over
    size_t fresh = 0;
    int64_t late_ns = 0;  // 0: unknown
  };
  static constexpr std::array<uint64_t, 3> kUpTo{16 * kKiB, 256 * kKiB, 1 * kMiB};

  static size_t size_of(uint64_t bytes);

  std::array<Sizes, kUpTo.size() + 1> sizes_;
  uint64_t saved_ = kInARow * kOneIn;  // in reads
};

}  // namespace ff::chain
