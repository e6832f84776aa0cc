// digest.cc: content digests over xxHash (three instruction sets) and OpenSSL, and the one-pass
// fingerprint.
//
// A fingerprint alternates CRC and digest over blocks that the CRC has just brought into the L1
// cache, so memory is read once. For SHA-256 OpenSSL dispatches itself (SHA-NI if available).
#include "platform/simd/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/text.h"
#include "platform/simd/crc32c.h"
#include "platform/simd/paths.h"
#include "platform/simd/xxh128_paths.h"

namespace ff::simd {

const Xxh128Path kXxh128Paths[kXxh128PathCount] = {
    {"avx512", [] { return __builtin_cpu_supports("avx512f") != 0; }, kXxh128Avx512},
    {"avx2", [] { return __builtin_cpu_supports("avx2") != 0; }, kXxh128Avx2},
    {"sse2", [] { return true; }, kXxh128Sse2},
};

const Xxh128Path& xxh128_path() {
  static const Xxh128Path& path = first_supported(kXxh128Paths);
  return path;
}

std::string_view digest_kind_name(DigestKind kind) {
  return kind == DigestKind::xxh128 ? "xxh128" : "sha256";
}

Result<DigestKind> parse_digest_kind(std::string_view name) {
  for (const DigestKind kind : {DigestKind::xxh128, DigestKind::sha256}) {
    if (name == digest_kind_name(kind)) return kind;
  }
  return Error{Errc::usage, fmt::format("'{}' is not a digest", name), "Use xxh128 or sha256."};
}

std::string Digest::hex() const { return ff::hex(ByteView(bytes).first(size())); }

namespace {

// 0 to 15, or -1.
int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Result<Digest> parse_digest(DigestKind kind, std::string_view hex) {
  Digest digest;
  digest.kind = kind;
  bool good = hex.size() == 2 * digest.size();
  for (size_t i = 0; good && i < digest.size(); ++i) {
    const int high = hex_digit(hex[2 * i]);
    const int low = hex_digit(hex[2 * i + 1]);
    good = high >= 0 && low >= 0;
    digest.bytes[i] = static_cast<std::byte>(high << 4 | low);
  }
  if (!good) {
    return fail(Errc::corrupt, "'{}' is not a {} digest", hex.substr(0, 80),
                digest_kind_name(kind));
  }
  return digest;
}

// The state of the xxh128 or the sha256 digest.
struct Digester::State {
  explicit State(DigestKind k) : kind(k) {
    if (kind == DigestKind::sha256) {
      sha256 = EVP_MD_CTX_new();
      FF_CHECK(sha256 != nullptr);
    }
    reset();
  }
  ~State() { EVP_MD_CTX_free(sha256); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void reset() {
    if (kind == DigestKind::xxh128) {
      xxh128_path().run.reset(&xxh128);
    } else {
      FF_CHECK(EVP_DigestInit_ex(sha256, EVP_sha256(), nullptr) == 1);
    }
  }

  const DigestKind kind;
  Xxh128State xxh128;
  EVP_MD_CTX* sha256 = nullptr;
};

Digester::Digester(DigestKind kind) : state_(std::make_unique<State>(kind)) {}
Digester::~Digester() = default;
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;

void Digester::update(ByteView data) {
  if (state_->kind == DigestKind::xxh128) {
    xxh128_path().run.update(&state_->xxh128, data.data(), data.size());
  } else {
    FF_CHECK(EVP_DigestUpdate(state_->sha256, data.data(), data.size()) == 1);
  }
}

Digest Digester::finish() {
  Digest digest;
  digest.kind = state_->kind;
  auto* bytes = reinterpret_cast<unsigned char*>(digest.bytes.data());
  if (state_->kind == DigestKind::xxh128) {
    xxh128_path().run.digest(&state_->xxh128, bytes);
  } else {
    FF_CHECK(EVP_DigestFinal_ex(state_->sha256, bytes, nullptr) == 1);
  }
  state_->reset();
  return digest;
}

namespace {

// Fits into an L1 data cache, and is a multiple of a round of the three-stripe CRC (3 * 4 KiB).
constexpr size_t kBlock = 24 * kKiB;

}  // namespace

void Fingerprinter::update(ByteView data) {
  while (!data.empty()) {
    const ByteView block = data.first(std::min(kBlock, data.size()));
    crc32c_ = crc32c(block, crc32c_);
    digester_.update(block);
    data = data.subspan(block.size());
  }
}

Fingerprint Fingerprinter::finish() {
  return {.digest = digester_.finish(), .crc32c = std::exchange(crc32c_, 0)};
}

Fingerprint fingerprint(DigestKind kind, ByteView data) {
  if (kind == DigestKind::xxh128 && data.size() <= kBlock) {
    Fingerprint print;
    print.crc32c = crc32c(data);
    xxh128_path().run.one_shot(data.data(), data.size(),
                               reinterpret_cast<unsigned char*>(print.digest.bytes.data()));
    return print;
  }
  Fingerprinter pieces(kind);
  pieces.update(data);
  return pieces.finish();
}

bool all_zero(ByteView data) {
  // Eight words per step run at memory speed; random data ends the loop at the first step.
  constexpr size_t kStep = 8 * sizeof(uint64_t);
  for (; data.size() >= kStep; data = data.subspan(kStep)) {
    uint64_t words[8];
    std::memcpy(words, data.data(), kStep);
    if ((words[0] | words[1] | words[2] | words[3] | words[4] | words[5] | words[6] | words[7]) !=
        0) {
      return false;
    }
  }
  return std::all_of(data.begin(), data.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace ff::simd
