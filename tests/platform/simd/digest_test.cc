// Digests: published vectors, every XXH3 path against the scalar library, streaming, hex, and the
// one-pass fingerprint.
#include "platform/simd/digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "platform/base/rng.h"
#include "platform/simd/crc32c.h"
#include "platform/simd/xxh128_paths.h"

// The library's own scalar code: shares no vector code with the paths under test.
#define XXH_INLINE_ALL
#define XXH_VECTOR 0
#include <xxhash.h>

namespace ff::simd {
namespace {

constexpr DigestKind kKinds[] = {DigestKind::xxh128, DigestKind::sha256};

std::vector<std::byte> random_view(size_t size, Rng& rng) {
  std::vector<std::byte> data(size);
  for (std::byte& byte : data) byte = static_cast<std::byte>(rng.next());
  return data;
}

Digest digest_of(DigestKind kind, ByteView data) {
  Digester digester(kind);
  digester.update(data);
  return digester.finish();
}

std::string reference_xxh128(ByteView data) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(data.data(), data.size()));
  std::string text;
  for (const unsigned char byte : canonical.digest) text += fmt::format("{:02x}", byte);
  return text;
}

std::string hex_of(const unsigned char* digest) {
  Digest wrapped;
  std::memcpy(wrapped.bytes.data(), digest, kXxh128Bytes);
  return wrapped.hex();
}

TEST(Digest, Sha256VectorsOfNist) {
  const auto sha = [](std::string_view text) {
    return digest_of(DigestKind::sha256, as_bytes(text)).hex();
  };
  EXPECT_EQ(sha(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Digest, Xxh128IsXxh3OfTheLibrary) {
  // From the xxHash specification. Checkpoint stores depend on these values: never change them.
  EXPECT_EQ(digest_of(DigestKind::xxh128, {}).hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(digest_of(DigestKind::xxh128, as_bytes("abc")).hex(),
            "06b05ab6733a618578af5f94892f3950");
}

class Xxh128EachPath : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (!path().supported()) GTEST_SKIP() << "this CPU does not have " << path().name;
  }
  const Xxh128Path& path() const { return kXxh128Paths[GetParam()]; }

  std::string one_shot(ByteView data) const {
    unsigned char digest[kXxh128Bytes];
    path().run.one_shot(data.data(), data.size(), digest);
    return hex_of(digest);
  }
};

TEST_P(Xxh128EachPath, EveryLengthUpTo1100) {
  SeededRng rng(1);
  const auto data = random_view(1100 + 64, rng);
  for (size_t length = 0; length <= 1100; ++length) {
    const ByteView view = ByteView(data).subspan(length % 64, length);
    ASSERT_EQ(one_shot(view), reference_xxh128(view)) << length;
  }
  for (size_t offset = 0; offset < 64; ++offset) {
    for (const size_t length : {17u, 129u, 241u, 1024u, 1100u}) {
      const ByteView view = ByteView(data).subspan(offset, length);
      ASSERT_EQ(one_shot(view), reference_xxh128(view)) << offset << " " << length;
    }
  }
}

TEST_P(Xxh128EachPath, LongBuffersInRandomPieces) {
  SeededRng rng(2);
  Xxh128State state;
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    const auto data = random_view(rng.below(300'000), rng);
    const std::string expected = reference_xxh128(data);
    EXPECT_EQ(one_shot(data), expected);
    path().run.reset(&state);
    const size_t longest = 1 + rng.below(40'000);
    for (ByteView rest = data; !rest.empty();) {
      const size_t piece = std::min(rest.size(), static_cast<size_t>(rng.below(longest + 1)));
      path().run.update(&state, rest.data(), piece);
      rest = rest.subspan(piece);
    }
    unsigned char digest[kXxh128Bytes];
    path().run.digest(&state, digest);
    EXPECT_EQ(hex_of(digest), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, Xxh128EachPath, testing::Range<size_t>(0, kXxh128PathCount),
                         [](const auto& each) { return kXxh128Paths[each.param].name; });

TEST(Digest, TakesTheFastestPathThisCpuHas) {
  const auto* first = std::find_if(std::begin(kXxh128Paths), std::end(kXxh128Paths),
                                   [](const Xxh128Path& path) { return path.supported(); });
  EXPECT_EQ(&xxh128_path(), first);
}

TEST(Digest, StreamingGivesTheSameForAnySplit) {
  SeededRng rng(3);
  const auto data = random_view(3000, rng);
  for (const DigestKind kind : kKinds) {
    const Digest whole = digest_of(kind, data);
    Digester digester(kind);
    for (size_t split = 0; split <= data.size(); split += split < 600 ? 1 : 61) {
      digester.update(ByteView(data).first(split));
      digester.update(ByteView(data).subspan(split));
      ASSERT_EQ(digester.finish(), whole) << split;  // and the digester starts over
    }
  }
}

TEST(Digest, DigestersMove) {
  Digester first(DigestKind::xxh128);
  first.update(as_bytes("ab"));
  Digester second(std::move(first));
  second.update(as_bytes("c"));
  Digester third(DigestKind::sha256);
  third = std::move(second);
  EXPECT_EQ(third.finish(), digest_of(DigestKind::xxh128, as_bytes("abc")));
}

TEST(Digest, HexReadsBack) {
  for (const DigestKind kind : kKinds) {
    const Digest digest = digest_of(kind, as_bytes("x"));
    EXPECT_EQ(digest.kind, kind);
    EXPECT_EQ(digest.hex().size(), 2 * digest.size());
    const auto back = parse_digest(kind, digest.hex());
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(*back, digest);
  }
}

TEST(Digest, RefusesOtherHex) {
  const std::string good = digest_of(DigestKind::xxh128, {}).hex();
  std::string upper = good;
  std::transform(upper.begin(), upper.end(), upper.begin(), ::toupper);
  for (const std::string& bad :
       {std::string(), good.substr(1), good + "0", good + good, upper, "g" + good.substr(1),
        good.substr(1) + "/", good.substr(1) + ":", good.substr(1) + "`", "0x" + good.substr(2)}) {
    const auto parsed = parse_digest(DigestKind::xxh128, bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.error().code, Errc::corrupt);
  }
  EXPECT_TRUE(parse_digest(DigestKind::sha256, good + good).ok());
}

TEST(Digest, KindNamesReadBack) {
  for (const DigestKind kind : kKinds) EXPECT_EQ(*parse_digest_kind(digest_kind_name(kind)), kind);
  ASSERT_FALSE(parse_digest_kind("md5").ok());
  EXPECT_EQ(parse_digest_kind("md5").error().code, Errc::usage);
}

TEST(Digest, UnusedBytesAreZeroAndKindsDiffer) {
  const Digest digest = digest_of(DigestKind::xxh128, as_bytes("abc"));
  for (size_t i = 16; i < 32; ++i) EXPECT_EQ(digest.bytes[i], std::byte{0});
  Digest other = digest;
  other.kind = DigestKind::sha256;
  EXPECT_NE(digest, other);
}

TEST(Fingerprint, IsDigestAndCrcOfTheSameBytes) {
  SeededRng rng(4);
  const auto data = random_view(200'000, rng);
  for (const DigestKind kind : kKinds) {
    for (const size_t length : {size_t{0}, size_t{1}, size_t{24575}, size_t{24576}, size_t{24577},
                                size_t{49152}, size_t{100'001}, data.size()}) {
      const ByteView view = ByteView(data).first(length);
      const Fingerprint print = fingerprint(kind, view);
      EXPECT_EQ(print.digest, digest_of(kind, view)) << length;
      EXPECT_EQ(print.crc32c, crc32c(view)) << length;
    }
  }
}

TEST(Fingerprint, IsTheSameOverPieces) {
  SeededRng rng(5);
  const auto data = random_view(100'000, rng);
  for (const DigestKind kind : kKinds) {
    Fingerprinter pieces(kind);
    for (int i = 0; i < 30; ++i) {  // one object: finish() starts over
      const ByteView all = ByteView(data).first(rng.below(data.size() + 1));
      for (ByteView rest = all; !rest.empty();) {
        const size_t piece = std::min(rest.size(), static_cast<size_t>(rng.below(40'000)));
        pieces.update(rest.first(piece));
        rest = rest.subspan(piece);
      }
      const Fingerprint print = pieces.finish();
      EXPECT_EQ(print.digest, fingerprint(kind, all).digest) << all.size();
      EXPECT_EQ(print.crc32c, crc32c(all)) << all.size();
    }
  }
}

TEST(AllZero, FindsTheOneByteAnywhere) {
  for (size_t length = 0; length <= 300; ++length) {
    std::vector<std::byte> data(length + 17, std::byte{0xff});
    const ByteSpan view = ByteSpan(data).subspan(length % 16, length);
    std::fill(view.begin(), view.end(), std::byte{0});
    ASSERT_TRUE(all_zero(view)) << length;
    for (size_t at = 0; at < length; ++at) {
      view[at] = std::byte{1};
      ASSERT_FALSE(all_zero(view)) << length << " " << at;
      view[at] = std::byte{0};
    }
  }
  EXPECT_TRUE(all_zero(std::vector<std::byte>(1 << 20)));
}

}  // namespace
}  // namespace ff::simd
