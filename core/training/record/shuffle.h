// A random order of samples that needs no memory: a Feistel network over the numbers, so that any
// position can be computed by itself, on each rank, and after a restart.
#pragma once

#include <array>
#include <cstdint>

namespace ff::record {

class Shuffle {
 public:
  // The order of `samples` numbers in an epoch; equal arguments give the same order on every
  // machine and in every version.
  Shuffle(uint64_t samples, uint64_t seed, uint64_t epoch);

  // The sample at `position` < samples. Each sample is at one position.
  uint64_t at(uint64_t position) const;

 private:
  static constexpr size_t kRounds = 6;
  uint64_t permuted(uint64_t number) const;

  uint64_t samples_;
  unsigned half_bits_;  // the network permutes the numbers below 2^(2 * half_bits_)
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace ff::record
