// Records, headers, footers and bases of a store of keys and values, from any bytes: no crash, and
// what is accepted lies within its bytes and gives the same bytes again.
#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/check.h"
#include "platform/simd/crc32c.h"
#include "storage/kvstore/claim.h"
#include "storage/kvstore/record.h"

using namespace ff;
using namespace ff::kvstore;

namespace {

void check_record(ByteView bytes) {
  const ParsedRecord parsed = parse_record(bytes);
  if (parsed.state == ParsedRecord::State::longer) FF_CHECK(parsed.length > bytes.size());
  if (parsed.state != ParsedRecord::State::whole) return;
  FF_CHECK(parsed.length <= bytes.size());
  std::string again;
  append_record(again, parsed.record);
  FF_CHECK(as_text(bytes.first(parsed.length)) == again.substr(0, parsed.length));
  FF_CHECK(parse_key(bytes) == parsed.record.key);
}

void check_footer(ByteView bytes) {
  if (bytes.size() < kTrailer) return;
  const uint64_t file = kSegmentHeader + bytes.size();
  const auto trailer = parse_trailer(bytes.last(kTrailer), file);
  if (!trailer || trailer->begin < kSegmentHeader) return;
  const ByteView records = bytes.subspan(trailer->begin - kSegmentHeader);
  const auto parsed = parse_footer(records.first(records.size() - kTrailer), *trailer);
  if (!parsed) return;
  for (const IndexedRecord& record : *parsed) FF_CHECK(record.end() <= trailer->begin);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  check_record(as_bytes(bytes));
  check_footer(as_bytes(bytes));
  (void)parse_header(as_bytes(bytes));
  if (const auto base = parse_base(bytes)) FF_CHECK(parse_base(encode_base(*base)).has_value());
  // Right checksums, or few inputs would get past them.
  if (size < kRecordHeader) return 0;
  const ByteSpan record = writable(bytes);
  const auto length = load_le<uint32_t>(record.data() + 4);
  const size_t key = load_le<uint16_t>(record.data() + 12);
  if (length > size || length < kRecordHeader + key) return 0;
  const uint32_t of_length = simd::crc32c(ByteView(record).subspan(4, 4));
  store_le(record.data() + 8,
           simd::crc32c(ByteView(record).subspan(12, kRecordHeader - 12 + key), of_length));
  store_le(record.data(), simd::crc32c(ByteView(record).subspan(4, length - 4)));
  check_record(record);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::string record;
  append_record(record, {.more = true, .version = 3, .key = "key", .value = "value"});
  std::string removal;
  const std::string hash = removal_key({.high = 1, .low = 2});
  append_record(removal, {.kind = RecordKind::remove, .version = 4, .key = hash});
  std::string pointer;
  const std::string range = encode_pointer({.offset = 64, .length = 40});
  append_record(pointer, {.kind = RecordKind::pointer, .version = 5, .key = "key", .value = range});
  const IndexedRecord indexed{.version = 1, .offset = 64, .length = 40, .key_bytes = 3};
  Base base;
  base.epoch = 2;
  base.segments.push_back({});
  std::string footer(indexed.end() - kSegmentHeader, 'x');
  footer += encode_footer({indexed}, indexed.end());
  return {record,           removal,
          pointer,          reserved_header(64),
          footer,           encode_header({.epoch = 1, .number = 2}),
          encode_base(base)};
}
