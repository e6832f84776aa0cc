// MD5 beside OpenSSL's, on all code paths, of one message and of many at once.
#include "platform/simd/md5.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <string>
#include <vector>

#include "platform/base/rng.h"
#include "platform/base/text.h"
#include "platform/simd/md5_paths.h"

namespace ff::simd {
namespace {

std::string openssl_md5(ByteView data) {
  std::array<unsigned char, 16> digest = {};
  EXPECT_EQ(EVP_Digest(data.data(), data.size(), digest.data(), nullptr, EVP_md5(), nullptr), 1);
  return hex(std::as_bytes(std::span(digest)));
}

std::vector<std::byte> some_bytes(Rng& rng, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& one : bytes) one = static_cast<std::byte>(rng.next());
  return bytes;
}

TEST(Md5, KnownDigests) {  // RFC 1321, A.5
  const auto of = [](std::string_view text) {
    Md5 md5;
    md5.update(as_bytes(text));
    return hex(md5.finish());
  };
  EXPECT_EQ(of(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(of("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(of("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(Md5, AllLengthsAndPieces) {
  SeededRng rng(1);
  for (size_t length = 0; length < 200; length++) {
    const auto data = some_bytes(rng, length);
    Md5 md5;
    for (ByteView left = data; !left.empty();) {
      const size_t part = std::min<size_t>(1 + rng.below(100), left.size());
      md5.update(left.first(part));
      left = left.subspan(part);
    }
    EXPECT_EQ(hex(md5.finish()), openssl_md5(data)) << length;
    EXPECT_EQ(hex(md5.finish()), openssl_md5({})) << "it starts over";
  }
}

// More messages than lanes, of different lengths, and each in several updates.
TEST(Md5, ManyAtOnce) {
  SeededRng rng(2);
  for (int turn = 0; turn < 40; turn++) {
    std::vector<std::vector<std::byte>> messages;
    std::vector<Md5> digests(1 + rng.below(2 * kMd5LanesMax));
    for (size_t i = 0; i < digests.size(); i++) {
      messages.push_back(some_bytes(rng, rng.below(3000)));
    }
    std::vector<size_t> done(digests.size());
    for (int piece = 0; piece < 3; piece++) {
      std::vector<Md5Update> updates;
      for (size_t i = 0; i < digests.size(); i++) {
        const ByteView left = ByteView(messages[i]).subspan(done[i]);
        const size_t part = piece == 2 ? left.size() : rng.below(left.size() + 1);
        updates.push_back({&digests[i], left.first(part)});
        done[i] += part;
      }
      md5_update(updates);
    }
    for (size_t i = 0; i < digests.size(); i++) {
      EXPECT_EQ(hex(digests[i].finish()), openssl_md5(messages[i])) << turn << " " << i;
    }
  }
}

TEST(Md5, EveryPathAndNumberOfLanes) {
  SeededRng rng(3);
  constexpr size_t kBlocks = 5;
  std::vector<std::vector<std::byte>> messages;
  for (size_t i = 0; i < kMd5LanesMax; i++) messages.push_back(some_bytes(rng, 64 * kBlocks));
  for (const Md5Path& path : kMd5Paths) {
    if (!path.supported()) continue;
    for (size_t lanes = 1; lanes <= path.lanes_max; lanes++) {
      std::array<std::array<uint32_t, 4>, kMd5LanesMax> states;
      std::array<uint32_t*, kMd5LanesMax> to = {};
      std::array<const unsigned char*, kMd5LanesMax> from = {};
      for (size_t i = 0; i < lanes; i++) {
        states[i] = {uint32_t(i), 2, 3, 4};
        to[i] = states[i].data();
        from[i] = reinterpret_cast<const unsigned char*>(messages[i].data());
      }
      path.run(to.data(), from.data(), lanes, kBlocks);
      for (size_t i = 0; i < lanes; i++) {
        std::array<uint32_t, 4> plain = {uint32_t(i), 2, 3, 4};
        md5_blocks(plain.data(), from[i], kBlocks);
        EXPECT_EQ(states[i], plain) << path.name << " " << lanes << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace ff::simd
