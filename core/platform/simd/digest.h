// Content digests, which name the chunks of checkpoints. `xxh128` (XXH3, 128 bits, seed 0,
// canonical big-endian bytes) runs at memory speed and detects accidental corruption; `sha256` also
// resists crafted collisions, at the speed of SHA-NI.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::simd {

enum class DigestKind : uint8_t { xxh128 = 1, sha256 = 2 };  // values are on disk (chunk heads)

std::string_view digest_kind_name(DigestKind kind);
Result<DigestKind> parse_digest_kind(std::string_view name);

// 16 bytes (xxh128) or 32 (sha256); the rest is zero.
struct Digest {
  std::array<std::byte, 32> bytes{};
  DigestKind kind = DigestKind::xxh128;

  size_t size() const { return kind == DigestKind::xxh128 ? 16 : 32; }
  std::string hex() const;  // 32 or 64 lower-case digits
  friend bool operator==(const Digest&, const Digest&) = default;
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

// Parses the output of Digest::hex(); Errc::corrupt if it is not 32 (xxh128) or 64 (sha256)
// lower-case hex digits.
Result<Digest> parse_digest(DigestKind kind, std::string_view hex);

// Computes a digest incrementally.
class Digester {
 public:
  explicit Digester(DigestKind kind);
  ~Digester();
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;
  void update(ByteView data);
  Digest finish();  // and starts over

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The digest and the CRC32C of the same bytes, computed in one pass over memory (in blocks that
// stay in the L1 cache).
struct Fingerprint {
  Digest digest;
  uint32_t crc32c = 0;
};
Fingerprint fingerprint(DigestKind kind, ByteView data);

// Computes a fingerprint incrementally.
class Fingerprinter {
 public:
  explicit Fingerprinter(DigestKind kind) : digester_(kind) {}
  void update(ByteView data);
  Fingerprint finish();  // and starts over

 private:
  Digester digester_;
  uint32_t crc32c_ = 0;
};

// Whether every byte is zero.
bool all_zero(ByteView data);

}  // namespace ff::simd
