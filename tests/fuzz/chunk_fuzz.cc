// Chunk files from anywhere: no crash, no hang, no byte read or written out of place; what is
// accepted has the length and CRC32C that its head promises.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/check.h"
#include "platform/simd/crc32c.h"
#include "training/checkpoint/format/chunk_file.h"

namespace {

using namespace ff;
using namespace ff::checkpoint;

std::string make_chunk(std::string_view data, bool compress, simd::DigestKind kind) {
  const auto print = simd::fingerprint(kind, as_bytes(data));
  ChunkHead head{.codec = Codec::raw,
                 .raw_length = data.size(),
                 .stored_length = data.size(),
                 .raw_crc = print.crc32c,
                 .stored_crc = print.crc32c,
                 .digest = print.digest};
  std::string stored(data);
  if (compress) {
    const size_t length = compress_chunk(
        as_bytes(data), {reinterpret_cast<std::byte*>(stored.data()), stored.size()});
    FF_CHECK(length > 0);
    stored.resize(length);
    head.codec = Codec::zstd;
    head.stored_length = length;
    head.stored_crc = simd::crc32c(as_bytes(stored));
  }
  std::string file(kHeadBytes, '\0');
  encode_head(head, reinterpret_cast<std::byte*>(file.data()));
  file += stored;
  file.resize(head.file_length(), '\0');
  return file;
}

void open_file(ByteView file) {
  static std::vector<std::byte> scratch(kChunkBytes);
  const auto head = decode_head(file);
  if (!head) return;
  const auto data = open_chunk(file, head->digest, scratch, true);
  if (!data) return;
  FF_CHECK(data->size() == head->raw_length && data->size() <= kChunkBytes);
  FF_CHECK(simd::crc32c(*data) == head->raw_crc);
}

}  // namespace

// Each input is tried as it is, and, as few inputs have right CRCs, once more with all CRCs of the
// head computed again: so the rules behind them and the decompressor are reached, too.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteView file(reinterpret_cast<const std::byte*>(data), size);
  open_file(file);
  if (size < kHeadBytes) return 0;
  std::string repaired(reinterpret_cast<const char*>(data), size);
  auto* at = reinterpret_cast<std::byte*>(repaired.data());
  ChunkHead head{.codec = static_cast<Codec>(data[12]),
                 .raw_length = load_le<uint64_t>(at + 16),
                 .stored_length = load_le<uint64_t>(at + 24),
                 .raw_crc = load_le<uint32_t>(at + 32),
                 .stored_crc = 0,
                 .digest = {}};
  head.digest.kind = static_cast<simd::DigestKind>(data[13]);
  std::memcpy(head.digest.bytes.data(), at + 40, head.digest.bytes.size());
  if (head.stored_length <= size - kHeadBytes) {
    head.stored_crc = simd::crc32c(file.subspan(kHeadBytes, head.stored_length));
  }
  if (head.codec == Codec::raw) head.raw_crc = head.stored_crc;
  encode_head(head, at);
  open_file(as_bytes(repaired));
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::string words;
  for (int i = 0; i < 400; i++) words += "some words " + std::to_string(i * i);
  return {make_chunk("x", false, simd::DigestKind::xxh128),
          make_chunk(words, false, simd::DigestKind::sha256),
          make_chunk(words, true, simd::DigestKind::xxh128),
          make_chunk(std::string(300'000, 'z'), true, simd::DigestKind::sha256)};
}
