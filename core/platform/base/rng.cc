// rng.cc: xoshiro256** and helpers on top of any Rng.
#include "platform/base/rng.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <bit>

#include "platform/base/check.h"

namespace ff {

uint64_t Rng::below(uint64_t bound) {
  FF_CHECK(bound > 0);
  // Rejection sampling keeps the result uniform: draw again above the last whole multiple.
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  uint64_t draw = next();
  while (draw >= limit) draw = next();
  return draw % bound;
}

double Rng::uniform01() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

std::string Rng::hex_id() {
  const uint64_t high = next();
  return fmt::format("{:016x}{:016x}", high, next());
}

SeededRng::SeededRng(uint64_t seed) {
  for (auto& word : state_) {
    seed += 0x9e3779b97f4a7c15;
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    word = z ^ (z >> 31);
  }
}

uint64_t SeededRng::next() {
  const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

uint64_t system_seed() {
  uint64_t seed = 0;
  FF_CHECK(getrandom(&seed, sizeof seed, 0) == sizeof seed);
  return seed;
}

}  // namespace ff
