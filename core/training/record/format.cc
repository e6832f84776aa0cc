// format.cc: reads and checks the index of an FFRecord file, and encodes one.
#include "training/record/format.h"

#include <libdeflate.h>

#include <utility>

namespace ff::record {

namespace {

constexpr uint64_t kCountAt = 4;
constexpr uint64_t kChecksumsAt = 12;
constexpr uint64_t kBytesPerSample = 4 + 8;

Error not_a_record(const io::File& file, std::string_view cause) {
  return Error{Errc::corrupt, fmt::format("{}: {}", file.path(), cause),
               "Is it an FFRecord file, and was its writer closed? 'ff record pack' makes one."};
}

}  // namespace

uint32_t crc32(uint32_t before, ByteView bytes) {
  return libdeflate_crc32(before, bytes.data(), bytes.size());
}

uint64_t index_bytes(uint64_t samples) { return kChecksumsAt + kBytesPerSample * samples; }

Result<RecordIndex> read_index(io::File& file) {
  FF_TRY(const auto info, file.info());
  if (info.size < kChecksumsAt) {
    return not_a_record(file, fmt::format("{} bytes are too few for an index", info.size));
  }
  std::vector<std::byte> bytes(kChecksumsAt);
  FF_TRY(size_t got, file.read_at(bytes, 0));
  if (got < bytes.size()) return not_a_record(file, "the file became shorter");
  const auto count = load_le<uint64_t>(bytes.data() + kCountAt);
  // A negative number is a large one here.
  if (count > (info.size - kChecksumsAt) / kBytesPerSample) {
    return not_a_record(file, fmt::format("an index of {} samples is longer than the file",
                                          static_cast<int64_t>(count)));
  }
  bytes.resize(index_bytes(count));
  FF_TRY(got, file.read_at(ByteSpan(bytes).subspan(kChecksumsAt), kChecksumsAt));
  if (got + kChecksumsAt < bytes.size()) return not_a_record(file, "the file became shorter");
  RecordIndex index;
  const auto wanted = load_le<uint32_t>(bytes.data());
  index.checked = wanted != 0;
  if (index.checked && crc32(0, ByteView(bytes).subspan(kCountAt)) != wanted) {
    return not_a_record(file, "the index does not match its CRC-32");
  }
  if (count == 0 && info.size > kChecksumsAt) {
    return not_a_record(file, "the index is empty, but data follows");
  }
  index.checksums.reserve(count);
  index.offsets.reserve(count + 1);
  const std::byte* at = bytes.data() + kChecksumsAt;
  for (uint64_t i = 0; i < count; i++) index.checksums.push_back(load_le<uint32_t>(at + 4 * i));
  at += 4 * count;
  for (uint64_t i = 0; i < count; i++) index.offsets.push_back(load_le<uint64_t>(at + 8 * i));
  index.offsets.push_back(info.size);
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t least = i == 0 ? bytes.size() : index.offsets[i - 1];
    if (index.offsets[i] < least || index.offsets[i] > info.size) {
      return not_a_record(file, fmt::format("sample {} is outside of its place", i));
    }
  }
  return index;
}

std::string encode_index(const RecordIndex& index) {
  std::string bytes;
  bytes.reserve(index_bytes(index.samples()) - kCountAt);
  append_le(bytes, index.samples());
  for (const uint32_t checksum : index.checksums) append_le(bytes, checksum);
  for (uint64_t i = 0; i < index.samples(); i++) append_le(bytes, index.offsets[i]);
  std::string encoded;
  append_le(encoded, crc32(0, as_bytes(bytes)));
  return encoded + bytes;
}

}  // namespace ff::record
