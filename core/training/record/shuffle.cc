// shuffle.cc: the network, and walking in it until a number is one of the samples.
#include "training/record/shuffle.h"

#include <bit>

#include "platform/base/check.h"

namespace ff::record {

namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

Shuffle::Shuffle(uint64_t samples, uint64_t seed, uint64_t epoch) : samples_(samples) {
  const auto bits = static_cast<unsigned>(std::bit_width(samples > 1 ? samples - 1 : 1));
  half_bits_ = (bits + 1) / 2;
  uint64_t state = mixed(mixed(seed) ^ epoch);
  for (uint64_t& key : keys_) key = state = mixed(state);
}

uint64_t Shuffle::permuted(uint64_t number) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = number >> half_bits_;
  uint64_t right = number & mask;
  for (const uint64_t key : keys_) {
    const uint64_t next = left ^ (mixed(right ^ key) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

uint64_t Shuffle::at(uint64_t position) const {
  FF_CHECK(position < samples_);
  // The numbers that are no samples lie on the same cycles: the walk ends at a sample, and starts
  // at different positions end at different ones.
  do {
    position = permuted(position);
  } while (position >= samples_);
  return position;
}

}  // namespace ff::record
