// chunk_file.cc: encoding, decoding and checking of chunk files (format in the header).
#include "training/checkpoint/format/chunk_file.h"

#include <zstd.h>

#include <cstring>

#include "platform/io/disk.h"
#include "platform/simd/crc32c.h"

namespace ff::checkpoint {
namespace {

constexpr size_t kCrcAt = 8;
constexpr size_t kCodecAt = 12;
constexpr size_t kKindAt = 13;
constexpr size_t kRawLengthAt = 16;
constexpr size_t kStoredLengthAt = 24;
constexpr size_t kRawCrcAt = 32;
constexpr size_t kStoredCrcAt = 36;
constexpr size_t kDigestAt = 40;
constexpr size_t kFieldsEnd = 72;
static_assert(kDigestAt + sizeof(simd::Digest::bytes) == kFieldsEnd);
static_assert(kHeadBytes % io::kDirectAlign == 0 && kChunkBytes % io::kDirectAlign == 0);

uint32_t head_crc(ByteView block) {
  const std::byte zero[4] = {};
  uint32_t crc = simd::crc32c(block.first(kCrcAt));
  crc = simd::crc32c(zero, crc);
  return simd::crc32c(block.subspan(kCrcAt + 4, kHeadBytes - kCrcAt - 4), crc);
}

Error corrupt(std::string_view reason) { return Error{Errc::corrupt, std::string(reason), {}}; }

}  // namespace

uint64_t ChunkHead::file_length() const {
  return kHeadBytes + align_up(stored_length, io::kDirectAlign);
}

void encode_head(const ChunkHead& head, std::byte* at) {
  std::memset(at, 0, kHeadBytes);
  std::memcpy(at, kChunkMagic.data(), kChunkMagic.size());
  at[kCodecAt] = static_cast<std::byte>(head.codec);
  at[kKindAt] = static_cast<std::byte>(head.digest.kind);
  store_le(at + kRawLengthAt, head.raw_length);
  store_le(at + kStoredLengthAt, head.stored_length);
  store_le(at + kRawCrcAt, head.raw_crc);
  store_le(at + kStoredCrcAt, head.stored_crc);
  std::memcpy(at + kDigestAt, head.digest.bytes.data(), head.digest.bytes.size());
  store_le(at + kCrcAt, head_crc({at, kHeadBytes}));
}

Result<ChunkHead> decode_head(ByteView block) {
  if (block.size() < kHeadBytes) return corrupt("shorter than a chunk head");
  if (as_text(block.first(kChunkMagic.size())) != kChunkMagic) return corrupt("no chunk magic");
  const std::byte* at = block.data();
  if (load_le<uint32_t>(at + kCrcAt) != head_crc(block)) return corrupt("head CRC32C mismatch");
  const auto codec = static_cast<uint8_t>(at[kCodecAt]);
  const auto kind = static_cast<uint8_t>(at[kKindAt]);
  if (codec > 1) return corrupt("unknown codec");
  if (kind != 1 && kind != 2) return corrupt("unknown digest kind");
  ChunkHead head{.codec = static_cast<Codec>(codec),
                 .raw_length = load_le<uint64_t>(at + kRawLengthAt),
                 .stored_length = load_le<uint64_t>(at + kStoredLengthAt),
                 .raw_crc = load_le<uint32_t>(at + kRawCrcAt),
                 .stored_crc = load_le<uint32_t>(at + kStoredCrcAt),
                 .digest = {}};
  head.digest.kind = static_cast<simd::DigestKind>(kind);
  std::memcpy(head.digest.bytes.data(), at + kDigestAt, head.digest.bytes.size());
  const bool raw = head.codec == Codec::raw;
  if (head.raw_length == 0 || head.raw_length > kChunkBytes || head.stored_length == 0 ||
      head.stored_length > head.raw_length || (raw && head.stored_length != head.raw_length) ||
      (raw && head.stored_crc != head.raw_crc)) {
    return corrupt("impossible lengths in the head");
  }
  return head;
}

Result<ByteView> open_chunk(ByteView file, const simd::Digest& name, ByteSpan scratch, bool deep) {
  FF_TRY(const ChunkHead head, decode_head(file));
  if (head.digest != name) return corrupt("the digest in the head differs from the file name");
  if (file.size() != head.file_length()) return corrupt("file length does not match the head");
  const ByteView stored = file.subspan(kHeadBytes, head.stored_length);
  if (!simd::all_zero(file.subspan(kHeadBytes + head.stored_length))) {
    return corrupt("padding is not zero");
  }
  if (simd::crc32c(stored) != head.stored_crc) return corrupt("data CRC32C mismatch");
  ByteView data = stored;
  if (head.codec == Codec::zstd) {
    FF_CHECK(scratch.size() >= head.raw_length);
    const size_t got =
        ZSTD_decompress(scratch.data(), head.raw_length, stored.data(), stored.size());
    if (ZSTD_isError(got) || got != head.raw_length)
      return corrupt("zstd data cannot be decompressed");
    data = scratch.first(got);
    if (simd::crc32c(data) != head.raw_crc) return corrupt("decompressed data CRC32C mismatch");
  }
  if (deep && simd::fingerprint(name.kind, data).digest != name) {
    return corrupt("the digest of the data differs from the file name");
  }
  return data;
}

size_t compress_chunk(ByteView data, ByteSpan into) {
  const size_t limit = data.size() - data.size() / 10;
  FF_CHECK(into.size() >= limit);
  const size_t got = ZSTD_compress(into.data(), limit, data.data(), data.size(), 1);
  return ZSTD_isError(got) ? 0 : got;
}

}  // namespace ff::checkpoint
