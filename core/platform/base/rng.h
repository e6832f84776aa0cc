// The seam for randomness: ids, jitter and samples use it, so that a simulation can be repeated
// from a seed. Not for keys: secrets use OpenSSL's RAND_bytes (auth/key.h).
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
  double uniform01();
  // 32 lower-case hex digits (128 bits): store ids, names of temporary files.
  std::string hex_id();
};

// xoshiro256** (Blackman and Vigna), seeded with splitmix64: equal seeds give equal sequences.
class SeededRng final : public Rng {
 public:
  explicit SeededRng(uint64_t seed);
  uint64_t next() override;

 private:
  uint64_t state_[4];
};

// A random seed from the kernel (getrandom(2)).
uint64_t system_seed();

}  // namespace ff
