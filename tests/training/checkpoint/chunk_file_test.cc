// Chunk files: round trips, and the detection of flipped bits and wrong lengths.
#include "training/checkpoint/format/chunk_file.h"

#include <gtest/gtest.h>

#include "platform/simd/crc32c.h"
#include "training/checkpoint/fixture.h"

namespace ff::checkpoint {
namespace {

struct Made {
  std::string file;
  simd::Digest digest;
};

// A chunk file as a save writes it.
Made make_chunk(std::string_view data, bool compress,
                simd::DigestKind kind = simd::DigestKind::xxh128) {
  const auto print = simd::fingerprint(kind, as_bytes(data));
  ChunkHead head{.codec = Codec::raw,
                 .raw_length = data.size(),
                 .stored_length = data.size(),
                 .raw_crc = print.crc32c,
                 .stored_crc = print.crc32c,
                 .digest = print.digest};
  std::string stored(data);
  if (compress) {
    std::string packed(data.size(), '\0');
    const size_t length = compress_chunk(
        as_bytes(data), {reinterpret_cast<std::byte*>(packed.data()), packed.size()});
    EXPECT_GT(length, 0U);
    stored = packed.substr(0, length);
    head.codec = Codec::zstd;
    head.stored_length = length;
    head.stored_crc = simd::crc32c(as_bytes(stored));
  }
  std::string file(kHeadBytes, '\0');
  encode_head(head, reinterpret_cast<std::byte*>(file.data()));
  file += stored;
  file.resize(head.file_length(), '\0');
  return {file, print.digest};
}

class ChunkFile : public testing::Test {
 protected:
  Result<ByteView> open(const std::string& file, const simd::Digest& name, bool deep = false) {
    return open_chunk(as_bytes(file), name, scratch_, deep);
  }
  std::vector<std::byte> scratch_ = std::vector<std::byte>(kChunkBytes);
};

TEST_F(ChunkFile, RoundTrip) {
  for (const auto kind : {simd::DigestKind::xxh128, simd::DigestKind::sha256}) {
    for (const size_t size : {1UL, 4095UL, 4096UL, 4097UL, size_t{kChunkBytes}}) {
      SCOPED_TRACE(size);
      const std::string data = noise(size, size);
      const auto made = make_chunk(data, false, kind);
      EXPECT_EQ(made.file.size() % 4096, 0U);
      const auto got = open(made.file, made.digest, true);
      FF_ASSERT_OK(got);
      EXPECT_EQ(as_text(*got), data);
      std::string repeats;
      while (repeats.size() < size) repeats += "the same words ";
      repeats.resize(size);
      if (size < 100) continue;
      const auto packed = make_chunk(repeats, true, kind);
      EXPECT_LT(packed.file.size(), align_up(repeats.size(), 4096) + kHeadBytes + 1);
      const auto unpacked = open(packed.file, packed.digest, true);
      FF_ASSERT_OK(unpacked);
      EXPECT_EQ(as_text(*unpacked), repeats);
    }
  }
}

TEST_F(ChunkFile, EveryFlippedBitIsDetected) {
  std::string repeats;
  for (int i = 0; i < 90; i++) repeats += "words and numbers " + std::to_string(i % 10);
  for (const bool compress : {false, true}) {
    SCOPED_TRACE(compress ? "zstd" : "raw");
    auto made = make_chunk(repeats, compress);
    for (size_t bit = 0; bit < made.file.size() * 8; bit++) {
      char& byte = made.file[bit / 8];
      byte = static_cast<char>(byte ^ (1 << bit % 8));
      const auto got = open(made.file, made.digest);
      ASSERT_FALSE(got.ok()) << "bit " << bit;
      ASSERT_EQ(got.error().code, Errc::corrupt);
      byte = static_cast<char>(byte ^ (1 << bit % 8));
    }
    EXPECT_TRUE(open(made.file, made.digest).ok());
  }
}

TEST_F(ChunkFile, EveryWrongLengthIsDetected) {
  const auto made = make_chunk(noise(1, 5000), false);
  for (size_t length = 0; length < made.file.size(); length += 512) {
    EXPECT_FALSE(open(made.file.substr(0, length), made.digest).ok()) << length;
  }
  EXPECT_FALSE(open(made.file + std::string(4096, '\0'), made.digest).ok());
}

TEST_F(ChunkFile, AnotherNameIsDetected) {
  const auto made = make_chunk("content", false);
  const auto other = make_chunk("another", false);
  const auto got = open(made.file, other.digest);
  ASSERT_FALSE(got.ok());
  EXPECT_NE(got.error().message.find("differs from the file name"), std::string::npos);
}

// Not covered by CRC32C: a consistent file under the name of another digest.
TEST_F(ChunkFile, DeepCheckComputesTheDigestAgain) {
  auto made = make_chunk("content", false);
  auto head = decode_head(as_bytes(made.file)).value();
  head.digest.bytes[0] ^= std::byte{1};
  encode_head(head, reinterpret_cast<std::byte*>(made.file.data()));
  EXPECT_TRUE(open(made.file, head.digest, false).ok());
  EXPECT_FALSE(open(made.file, head.digest, true).ok());
}

TEST_F(ChunkFile, ImpossibleHeadsAreRefused) {
  const auto made = make_chunk("content", false);
  const auto good = decode_head(as_bytes(made.file)).value();
  const auto refused = [&](auto change) {
    ChunkHead head = good;
    change(head);
    std::string file = made.file;
    encode_head(head, reinterpret_cast<std::byte*>(file.data()));
    return !decode_head(as_bytes(file)).ok();
  };
  EXPECT_FALSE(refused([](ChunkHead&) {}));
  EXPECT_TRUE(refused([](ChunkHead& head) { head.raw_length = head.stored_length = 0; }));
  EXPECT_TRUE(
      refused([](ChunkHead& head) { head.raw_length = head.stored_length = kChunkBytes + 1; }));
  EXPECT_TRUE(refused([](ChunkHead& head) { head.raw_length = UINT64_MAX; }));
  EXPECT_TRUE(refused([](ChunkHead& head) { head.stored_length = UINT64_MAX; }));
  EXPECT_TRUE(refused([](ChunkHead& head) { head.stored_crc++; }));
  EXPECT_TRUE(refused([](ChunkHead& head) { head.codec = static_cast<Codec>(2); }));
  EXPECT_TRUE(
      refused([](ChunkHead& head) { head.digest.kind = static_cast<simd::DigestKind>(3); }));
}

TEST_F(ChunkFile, CompressionMustSaveATenth) {
  std::vector<std::byte> into(kMiB);
  EXPECT_EQ(compress_chunk(as_bytes(noise(3, 100'000)), into), 0U);
  const std::string zeros(100'000, 'x');
  const size_t packed = compress_chunk(as_bytes(zeros), into);
  EXPECT_GT(packed, 0U);
  EXPECT_LE(packed, 90'000U);
}

}  // namespace
}  // namespace ff::checkpoint
