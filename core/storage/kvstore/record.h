// The records of segments and the index at the end of a sealed segment (its footer).
//
//   segment:  header (64 bytes), records, zeros or footer
//   record:   0 CRC32C of the rest  4 bytes of the record  8 CRC32C of the rest of this header and
//             of the key  12 bytes of the key (16 bits)  14 kind  15 flags and role (bits 1 and 2)
//             16 version  24 expiry
//             32 key, value; then zeros up to a multiple of 8
//   reserved: a header without key, the CRC32C of the rest is 0; behind it, up to the length, lies
//             what programs write there: records as above, each with padding
//   pointer:  a record whose value is offset and bytes (64 bits each) of a record in a reserved
//             range before it, in the same segment, with the same key, version, expiry and role
//   footer:   one IndexedRecord of 48 bytes for each record; trailer (32 bytes) at the file's end
//
// All integers are little-endian. The records of one apply() are adjacent; all but the last have
// the flag kMore, and a reader drops a group whose end is missing.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/bytes.h"
#include "storage/kvstore/calls.h"

namespace ff::kvstore {

constexpr size_t kSegmentHeader = 64;
constexpr size_t kRecordHeader = 32;
constexpr size_t kRecordAlign = 8;
constexpr size_t kIndexedRecord = 48;
constexpr size_t kTrailer = 32;
constexpr size_t kPointerBytes = 16;  // of the value of a pointer

// What stands for a key in the index and in records of removal. Two keys of one store with the same
// hash do not happen by accident (XXH3, 128 bits); a read compares the key.
struct KeyHash {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const KeyHash&, const KeyHash&) = default;
};
// `secret` is of the store, so that nobody can choose keys that collide.
KeyHash hash_key(std::string_view secret, std::string_view key);
// Likewise, of the name of a part: no key has the hash of a name.
KeyHash hash_part(std::string_view secret, std::string_view name);

enum class RecordKind : uint8_t {
  put = 1,
  remove = 2,    // the key is a KeyHash
  reserved = 3,  // a range that a scan skips
  pointer = 4,   // a put, of which the record lies in a reserved range
};

struct RecordView {
  RecordKind kind = RecordKind::put;
  bool more = false;                    // the next record belongs to the same change
  RecordRole role = RecordRole::plain;  // of a put
  uint64_t version = 0;
  int64_t expires_ms = 0;
  std::string_view key = {};
  std::string_view value = {};
};

// Bytes of a record in a segment, and with its padding.
constexpr uint64_t record_bytes(size_t key, size_t value) { return kRecordHeader + key + value; }
inline ByteSpan writable(std::string& bytes) { return std::as_writable_bytes(std::span(bytes)); }
constexpr uint64_t padded(uint64_t bytes) { return align_up(bytes, kRecordAlign); }

void append_record(std::string& to, const RecordView& record);
// Header and key of a record: its value and the padding follow them.
std::string record_head(const RecordView& record);
// The header of a reserved range; `length`: of the range with the header, a multiple of 8.
std::string reserved_header(uint64_t length);
std::string removal_key(KeyHash hash);
KeyHash removed_hash(std::string_view key);  // the inverse; `key` has 16 bytes

// The record at the start of `bytes`, which may go on behind it.
struct ParsedRecord {
  enum class State : uint8_t {
    whole,     // `record` is valid
    damaged,   // the header and the key are valid, the value is not: `record` has no value
    longer,    // the header is plausible; `length` bytes are needed to tell
    reserved,  // a range of `length` bytes, whatever lies in it
    none,      // no record
  };
  State state = State::none;
  uint32_t length = 0;  // without padding
  RecordView record = {};
};
ParsedRecord parse_record(ByteView bytes);
// Where the record of a pointer lies.
struct RecordRange {
  uint64_t offset = 0;
  uint64_t length = 0;  // without padding
};
std::string encode_pointer(RecordRange range);
// nullopt: `pointer`, whose own record begins at `at`, is none, or points to no range before it.
std::optional<RecordRange> parse_pointer(const RecordView& pointer, uint64_t at);
// Whether `head`, the header and the key of a record, and `value` belong together: the same checks,
// for a value that lies elsewhere. Copies the value to `copy` on the way, which may be empty.
// nullopt: they do not.
std::optional<RecordView> join_record(ByteView head, ByteView value, ByteSpan copy);
// The key of a record of which `bytes` has only header and key; nullopt: not valid.
std::optional<std::string_view> parse_key(ByteView bytes);

// The header of a segment. `previous`: the number of the owner's segment before this one and how
// many of its bytes are valid; what a failed append has left behind them is not.
struct SegmentHead {
  uint64_t epoch = 0;
  uint64_t number = 0;
  uint64_t previous = 0;  // 0: none
  uint64_t previous_end = 0;
};
std::string encode_header(const SegmentHead& header);
std::optional<SegmentHead> parse_header(ByteView bytes);

// One record, as the footer has it and as the index is built from.
struct IndexedRecord {
  KeyHash hash = {};
  uint64_t version = 0;
  int64_t expires_ms = 0;
  uint64_t offset = 0;  // a multiple of 8 below 32 GiB
  uint32_t length = 0;
  uint16_t key_bytes = 0;
  RecordKind kind = RecordKind::put;
  RecordRole role = RecordRole::plain;
  uint64_t pointer = 0;  // where the pointer to it lies; 0: it has none

  // Behind all that it needs.
  uint64_t end() const {
    const uint64_t own = offset + padded(length);
    return pointer == 0 ? own : pointer + padded(record_bytes(key_bytes, kPointerBytes));
  }
};

// The footer of records that end at `end`, its trailer included.
std::string encode_footer(const std::vector<IndexedRecord>& records, uint64_t end);
struct FooterTrailer {
  uint64_t begin = 0;  // where the footer begins and the records end
  uint64_t count = 0;
  uint32_t crc = 0;  // of the indexed records
};
// Of a file of `file_bytes`, from its last kTrailer bytes.
std::optional<FooterTrailer> parse_trailer(ByteView bytes, uint64_t file_bytes);
// nullopt: damaged.
std::optional<std::vector<IndexedRecord>> parse_footer(ByteView bytes,
                                                       const FooterTrailer& trailer);

}  // namespace ff::kvstore
