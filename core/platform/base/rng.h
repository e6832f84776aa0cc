// The dice seam: ids, jitter and samples come from here, so that a simulation repeats from a seed.
// Not for keys: secrets come from OpenSSL's RAND_bytes.
#pragma once

#include <cstdint>
#include <string>

namespace ff {

class Rng {
 public:
  virtual ~Rng() = default;
  virtual uint64_t next() = 0;  // 64 uniform bits

  // Uniform in [0, bound); bound > 0.
  uint64_t below(uint64_t bound);
  // Uniform in [0, 1).
  double unit();
  // 32 lower-case hex digits (128 bits): store ids, names of temporary files.
  std::string hex_id();
};

// xoshiro256** (Blackman, Vigna), seeded through splitmix64: the same seed, the same numbers.
class SeededRng final : public Rng {
 public:
  explicit SeededRng(uint64_t seed);
  uint64_t next() override;

 private:
  uint64_t state_[4];
};

// Seeded from the kernel (getrandom).
uint64_t system_seed();

}  // namespace ff
