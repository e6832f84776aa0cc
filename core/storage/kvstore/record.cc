// record.cc: encoding and parsing. Parsers accept any bytes.
#include "storage/kvstore/record.h"

#include <algorithm>
#include <cstring>

#include "platform/simd/crc32c.h"
#include "platform/simd/digest.h"

namespace ff::kvstore {

namespace {

constexpr std::string_view kSegmentMagic = "FFKVSEG1";
constexpr std::string_view kFooterMagic = "FFKVIDX1";
constexpr uint8_t kMore = 1;
constexpr uint8_t kRoleShift = 1, kRoleMask = 3;
constexpr size_t kHashBytes = 16;
constexpr size_t kCopyBlock = 32 * kKiB;  // stays in the L1 or L2 cache

// Of a header without its two CRCs, and the key.
uint32_t header_crc(ByteView bytes, size_t key_bytes) {
  const uint32_t length = simd::crc32c(bytes.subspan(4, 4));
  return simd::crc32c(bytes.subspan(12, kRecordHeader - 12 + key_bytes), length);
}

IndexedRecord parse_indexed(const std::byte* at) {
  return {.hash = {load_le<uint64_t>(at), load_le<uint64_t>(at + 8)},
          .version = load_le<uint64_t>(at + 16),
          .expires_ms = load_le<int64_t>(at + 24),
          .offset = uint64_t{load_le<uint32_t>(at + 32)} * kRecordAlign,
          .length = load_le<uint32_t>(at + 36),
          .key_bytes = load_le<uint16_t>(at + 40),
          .kind = static_cast<RecordKind>(load_le<uint8_t>(at + 42)),
          .role = static_cast<RecordRole>(load_le<uint8_t>(at + 43) & kRoleMask),
          .pointer = uint64_t{load_le<uint32_t>(at + 44)} * kRecordAlign};
}

bool is_indexed(RecordKind kind) { return kind == RecordKind::put || kind == RecordKind::remove; }

// The bytes of records of this kind, by their key; empty: any.
std::optional<uint64_t> fixed_length(RecordKind kind, size_t key_bytes) {
  if (kind == RecordKind::remove) return kRecordHeader + kHashBytes;
  if (kind == RecordKind::pointer) return record_bytes(key_bytes, kPointerBytes);
  return {};
}

bool is_plausible(RecordKind kind, uint64_t length, size_t key_bytes, uint8_t flags) {
  if (length < kRecordHeader + key_bytes || key_bytes > kMaxKeyBytes) return false;
  if (kind < RecordKind::put || kind > RecordKind::pointer) return false;
  if (flags > (kMore | kRoleMask << kRoleShift)) return false;
  if (kind == RecordKind::remove && key_bytes != kHashBytes) return false;
  if (kind == RecordKind::reserved) {
    return key_bytes == 0 && flags == 0 && length % kRecordAlign == 0;
  }
  return length == fixed_length(kind, key_bytes).value_or(length);
}

}  // namespace

KeyHash hash_key(std::string_view secret, std::string_view key) {
  static thread_local simd::Digester digester(simd::DigestKind::xxh128);
  digester.update(as_bytes(secret));
  digester.update(as_bytes(key));
  const simd::Digest digest = digester.finish();
  return {load_le<uint64_t>(digest.bytes.data()), load_le<uint64_t>(digest.bytes.data() + 8)};
}

KeyHash hash_part(std::string_view secret, std::string_view name) {
  static thread_local simd::Digester digester(simd::DigestKind::xxh128);
  digester.update(as_bytes(name));
  digester.update(as_bytes(secret));
  const simd::Digest digest = digester.finish();
  return {load_le<uint64_t>(digest.bytes.data()), load_le<uint64_t>(digest.bytes.data() + 8)};
}

std::string record_head(const RecordView& record) {
  std::string head(kRecordHeader, '\0');
  head.append(record.key);
  const uint64_t length = record_bytes(record.key.size(), record.value.size());
  const ByteSpan bytes = writable(head);
  store_le(bytes.data() + 4, static_cast<uint32_t>(length));
  store_le(bytes.data() + 12, static_cast<uint16_t>(record.key.size()));
  store_le(bytes.data() + 14, static_cast<uint8_t>(record.kind));
  const auto role = static_cast<uint8_t>(static_cast<uint8_t>(record.role) << kRoleShift);
  store_le(bytes.data() + 15, static_cast<uint8_t>(role | (record.more ? kMore : 0)));
  store_le(bytes.data() + 16, record.version);
  store_le(bytes.data() + 24, record.expires_ms);
  store_le(bytes.data() + 8, header_crc(bytes, record.key.size()));
  const uint32_t crc = simd::crc32c(ByteView(bytes).subspan(4));
  store_le(bytes.data(), simd::crc32c(as_bytes(record.value), crc));
  return head;
}

std::string reserved_header(uint64_t length) {
  std::string header(kRecordHeader, '\0');
  const ByteSpan bytes = writable(header);
  store_le(bytes.data() + 4, static_cast<uint32_t>(length));
  store_le(bytes.data() + 14, static_cast<uint8_t>(RecordKind::reserved));
  store_le(bytes.data() + 8, header_crc(bytes, 0));
  return header;
}

void append_record(std::string& to, const RecordView& record) {
  to += record_head(record);
  to += record.value;
  const uint64_t length = record_bytes(record.key.size(), record.value.size());
  to.append(padded(length) - length, '\0');
}

std::string encode_pointer(RecordRange range) {
  std::string bytes;
  append_le(bytes, range.offset);
  append_le(bytes, range.length);
  return bytes;
}

std::optional<RecordRange> parse_pointer(const RecordView& pointer, uint64_t at) {
  if (pointer.kind != RecordKind::pointer || pointer.value.size() != kPointerBytes) return {};
  const std::byte* const bytes = as_bytes(pointer.value).data();
  const RecordRange range{load_le<uint64_t>(bytes), load_le<uint64_t>(bytes + 8)};
  const bool aligned = range.offset % kRecordAlign == 0 && range.offset >= kSegmentHeader;
  if (!aligned || range.offset > at || range.length > at - range.offset) return {};
  if (range.length < record_bytes(pointer.key.size(), 0)) return {};
  return range;
}

std::string removal_key(KeyHash hash) {
  std::string key;
  append_le(key, hash.high);
  append_le(key, hash.low);
  return key;
}

KeyHash removed_hash(std::string_view key) {
  const ByteView bytes = as_bytes(key);
  return {load_le<uint64_t>(bytes.data()), load_le<uint64_t>(bytes.data() + 8)};
}

ParsedRecord parse_record(ByteView bytes) {
  if (bytes.size() < kRecordHeader)
    return {.state = ParsedRecord::State::longer, .length = kRecordHeader};
  const auto length = load_le<uint32_t>(bytes.data() + 4);
  const auto key_bytes = load_le<uint16_t>(bytes.data() + 12);
  const auto kind = static_cast<RecordKind>(load_le<uint8_t>(bytes.data() + 14));
  const auto flags = load_le<uint8_t>(bytes.data() + 15);
  if (!is_plausible(kind, length, key_bytes, flags)) return {};
  // The header first: a damaged length must not make the reader ask for gigabytes.
  if (bytes.size() < kRecordHeader + key_bytes) {
    return {.state = ParsedRecord::State::longer,
            .length = static_cast<uint32_t>(kRecordHeader + key_bytes)};
  }
  if (load_le<uint32_t>(bytes.data() + 8) != header_crc(bytes, key_bytes)) return {};
  if (kind == RecordKind::reserved) {
    return {.state = ParsedRecord::State::reserved, .length = length};
  }
  if (bytes.size() < length) return {.state = ParsedRecord::State::longer, .length = length};
  ParsedRecord parsed{.state = ParsedRecord::State::whole,
                      .length = length,
                      .record = {.kind = kind,
                                 .more = (flags & kMore) != 0,
                                 .role = static_cast<RecordRole>(flags >> kRoleShift),
                                 .version = load_le<uint64_t>(bytes.data() + 16),
                                 .expires_ms = load_le<int64_t>(bytes.data() + 24),
                                 .key = as_text(bytes.subspan(kRecordHeader, key_bytes))}};
  if (load_le<uint32_t>(bytes.data()) != simd::crc32c(bytes.subspan(4, length - 4))) {
    parsed.state = ParsedRecord::State::damaged;
    return parsed;
  }
  parsed.record.value = as_text(bytes.first(length).subspan(kRecordHeader + key_bytes));
  return parsed;
}

std::optional<RecordView> join_record(ByteView head, ByteView value, ByteSpan copy) {
  const auto key = parse_key(head);
  if (!key || head.size() != record_bytes(key->size(), 0)) return {};
  if (load_le<uint32_t>(head.data() + 4) != head.size() + value.size()) return {};
  uint32_t crc = simd::crc32c(head.subspan(4));
  for (size_t at = 0; at < value.size(); at += kCopyBlock) {
    const ByteView block = value.subspan(at, std::min(kCopyBlock, value.size() - at));
    crc = simd::crc32c(block, crc);
    if (!copy.empty()) std::memcpy(copy.data() + at, block.data(), block.size());
  }
  if (load_le<uint32_t>(head.data()) != crc) return {};
  const auto flags = load_le<uint8_t>(head.data() + 15);
  return RecordView{.kind = static_cast<RecordKind>(load_le<uint8_t>(head.data() + 14)),
                    .more = (flags & kMore) != 0,
                    .role = static_cast<RecordRole>((flags >> kRoleShift) & kRoleMask),
                    .version = load_le<uint64_t>(head.data() + 16),
                    .expires_ms = load_le<int64_t>(head.data() + 24),
                    .key = *key,
                    .value = as_text(value)};
}

std::optional<std::string_view> parse_key(ByteView bytes) {
  if (bytes.size() < kRecordHeader) return {};
  const auto key_bytes = load_le<uint16_t>(bytes.data() + 12);
  if (bytes.size() < kRecordHeader + key_bytes) return {};
  if (load_le<uint32_t>(bytes.data() + 8) != header_crc(bytes, key_bytes)) return {};
  return as_text(bytes.subspan(kRecordHeader, key_bytes));
}

std::string encode_header(const SegmentHead& header) {
  std::string bytes(kSegmentMagic);
  for (const uint64_t field : {header.epoch, header.number, header.previous, header.previous_end}) {
    append_le(bytes, field);
  }
  bytes.resize(kSegmentHeader - 4);
  append_le(bytes, simd::crc32c(as_bytes(bytes)));
  return bytes;
}

std::optional<SegmentHead> parse_header(ByteView bytes) {
  constexpr size_t kChecked = kSegmentHeader - 4;
  if (bytes.size() < kSegmentHeader || !as_text(bytes).starts_with(kSegmentMagic)) return {};
  const uint32_t crc = simd::crc32c(bytes.first(kChecked));
  if (load_le<uint32_t>(bytes.data() + kChecked) != crc) return {};
  return SegmentHead{.epoch = load_le<uint64_t>(bytes.data() + 8),
                     .number = load_le<uint64_t>(bytes.data() + 16),
                     .previous = load_le<uint64_t>(bytes.data() + 24),
                     .previous_end = load_le<uint64_t>(bytes.data() + 32)};
}

std::string encode_footer(const std::vector<IndexedRecord>& records, uint64_t end) {
  std::string bytes;
  bytes.reserve(records.size() * kIndexedRecord + kTrailer);
  for (const IndexedRecord& record : records) {
    append_le(bytes, record.hash.high);
    append_le(bytes, record.hash.low);
    append_le(bytes, record.version);
    append_le(bytes, record.expires_ms);
    append_le(bytes, static_cast<uint32_t>(record.offset / kRecordAlign));
    append_le(bytes, record.length);
    append_le(bytes, record.key_bytes);
    append_le(bytes, static_cast<uint8_t>(record.kind));
    append_le(bytes, static_cast<uint8_t>(record.role));
    append_le(bytes, static_cast<uint32_t>(record.pointer / kRecordAlign));
  }
  const uint32_t crc = simd::crc32c(as_bytes(bytes));
  std::string trailer(kFooterMagic);
  append_le(trailer, end);
  append_le(trailer, static_cast<uint64_t>(records.size()));
  append_le(trailer, crc);
  append_le(trailer, simd::crc32c(as_bytes(trailer)));
  return bytes + trailer;
}

std::optional<FooterTrailer> parse_trailer(ByteView bytes, uint64_t file_bytes) {
  constexpr size_t kChecked = kTrailer - 4;
  if (bytes.size() != kTrailer || !as_text(bytes).starts_with(kFooterMagic)) return {};
  if (load_le<uint32_t>(bytes.data() + kChecked) != simd::crc32c(bytes.first(kChecked))) return {};
  const FooterTrailer trailer{.begin = load_le<uint64_t>(bytes.data() + 8),
                              .count = load_le<uint64_t>(bytes.data() + 16),
                              .crc = load_le<uint32_t>(bytes.data() + 24)};
  if (trailer.begin < kSegmentHeader || trailer.begin > file_bytes) return {};
  const uint64_t room = file_bytes - trailer.begin;
  if (trailer.count > room / kIndexedRecord) return {};
  if (trailer.count * kIndexedRecord + kTrailer != room) return {};
  return trailer;
}

std::optional<std::vector<IndexedRecord>> parse_footer(ByteView bytes,
                                                       const FooterTrailer& trailer) {
  if (bytes.size() != trailer.count * kIndexedRecord) return {};
  if (simd::crc32c(bytes) != trailer.crc) return {};
  std::vector<IndexedRecord> records;
  records.reserve(trailer.count);
  for (size_t at = 0; at < bytes.size(); at += kIndexedRecord) {
    const IndexedRecord record = parse_indexed(bytes.data() + at);
    if (!is_indexed(record.kind) || record.length < kRecordHeader + record.key_bytes) return {};
    if (record.offset < kSegmentHeader || record.end() > trailer.begin) return {};
    if (record.pointer != 0 && record.offset + padded(record.length) > record.pointer) return {};
    if (record.key_bytes > kMaxKeyBytes || record.version == 0) return {};
    records.push_back(record);
  }
  return records;
}

}  // namespace ff::kvstore
