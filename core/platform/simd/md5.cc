// md5.cc: messages of any length over whole blocks.
#include "platform/simd/md5.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "platform/simd/md5_paths.h"
#include "platform/simd/md5_rounds.h"
#include "platform/simd/paths.h"

namespace ff::simd {

const Md5Path kMd5Paths[kMd5PathCount] = {
    {"avx512",
     [] { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"); },
     kMd5Avx512, 1, 16},
    {"avx2", [] { return __builtin_cpu_supports("avx2") != 0; }, kMd5Avx2, 2, 8},
    {"sse2", [] { return true; }, kMd5Sse2, 2, 4},
};

const Md5Path& md5_path_in_use() {
  static const Md5Path& path = first_supported(kMd5Paths);
  return path;
}

size_t md5_lanes() { return md5_path_in_use().lanes_max; }

std::string_view md5_path() { return md5_path_in_use().name; }

namespace {

struct Md5PlainOps {
  static uint32_t all(uint32_t word) { return word; }
  template <int kBits>
  static uint32_t turn(uint32_t word) {
    return std::rotl(word, kBits);
  }
  static uint32_t choose(uint32_t x, uint32_t y, uint32_t z) { return z ^ (x & (y ^ z)); }
  static uint32_t parity(uint32_t x, uint32_t y, uint32_t z) { return x ^ y ^ z; }
  static uint32_t last(uint32_t x, uint32_t y, uint32_t z) { return y ^ (x | ~z); }
};

const unsigned char* as_chars(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

// As the path has it, for any CPU.
void add_blocks(uint32_t* const* states, const unsigned char* const* data, size_t lanes,
                size_t blocks) {
  const Md5Path& path = md5_path_in_use();
  if (lanes >= path.lanes_min) return path.run(states, data, lanes, blocks);
  for (size_t i = 0; i < lanes; i++) md5_blocks(states[i], data[i], blocks);
}

}  // namespace

void md5_blocks(uint32_t* state, const unsigned char* data, size_t blocks) {
  uint32_t words[16];
  uint32_t now[4];
  std::copy_n(state, 4, now);
  for (; blocks > 0; blocks--, data += sizeof words) {
    std::memcpy(words, data, sizeof words);
    md5_block<Md5PlainOps>(now, words);
  }
  std::copy_n(now, 4, state);
}

size_t Md5::fill(ByteView data) {
  const size_t have = bytes_ % kBlockBytes;
  if (have == 0) return 0;
  const size_t part = std::min(data.size(), kBlockBytes - have);
  std::memcpy(block_.data() + have, data.data(), part);
  bytes_ += part;
  if (have + part == kBlockBytes) md5_blocks(state_.data(), as_chars(block_.data()), 1);
  return part;
}

void Md5::blocks(ByteView data) {
  uint32_t* const state = state_.data();
  const unsigned char* const from = as_chars(data.data());
  if (!data.empty()) add_blocks(&state, &from, 1, data.size() / kBlockBytes);
  bytes_ += data.size();
}

void Md5::update(ByteView data) {
  data = data.subspan(fill(data));
  const size_t whole = data.size() / kBlockBytes * kBlockBytes;
  blocks(data.first(whole));
  data = data.subspan(whole);
  if (!data.empty()) std::memcpy(block_.data(), data.data(), data.size());
  bytes_ += data.size();
}

std::array<std::byte, 16> Md5::finish() {
  const uint64_t bits = 8 * bytes_;
  std::array<std::byte, kBlockBytes> padding = {std::byte{0x80}};
  const size_t have = bytes_ % kBlockBytes;
  const size_t zeros = (have < 56 ? 56 : 120) - have;
  update(ByteView(padding).first(zeros));
  std::array<std::byte, 8> length;
  std::memcpy(length.data(), &bits, sizeof bits);
  update(length);
  std::array<std::byte, 16> digest;
  std::memcpy(digest.data(), state_.data(), sizeof digest);
  *this = Md5();
  return digest;
}

// The lanes of one md5_update().
struct Md5Lanes {
  static constexpr size_t kBlockBytes = Md5::kBlockBytes;
  struct Lane {
    Md5* of;
    ByteView data;
  };
  std::array<Lane, kMd5LanesMax> lanes;
  size_t count = 0;

  // Takes the blocks of one more message; what is no whole block is done at once or at the end.
  void add(const Md5Update& update) {
    const ByteView data = update.data.subspan(update.of->fill(update.data));
    if (data.size() < kBlockBytes) {
      update.of->update(data);
    } else {
      lanes[count++] = {update.of, data};
    }
  }
  // Until a message ends: its lane is free then.
  void run() {
    size_t blocks = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
      blocks = std::min(blocks, lanes[i].data.size() / kBlockBytes);
    }
    std::array<uint32_t*, kMd5LanesMax> states;
    std::array<const unsigned char*, kMd5LanesMax> data;
    for (size_t i = 0; i < count; i++) {
      states[i] = lanes[i].of->state_.data();
      data[i] = as_chars(lanes[i].data.data());
      lanes[i].of->bytes_ += blocks * kBlockBytes;
    }
    add_blocks(states.data(), data.data(), count, blocks);
    for (size_t i = count; i-- > 0;) {
      lanes[i].data = lanes[i].data.subspan(blocks * kBlockBytes);
      if (lanes[i].data.size() >= kBlockBytes) continue;
      lanes[i].of->update(lanes[i].data);
      lanes[i] = lanes[--count];
    }
  }
};

void md5_update(std::span<const Md5Update> updates) {
  Md5Lanes lanes;
  size_t next = 0;
  while (next < updates.size() || lanes.count > 0) {
    while (next < updates.size() && lanes.count < md5_lanes()) lanes.add(updates[next++]);
    if (lanes.count > 0) lanes.run();
  }
}

}  // namespace ff::simd
