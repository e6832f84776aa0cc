// Checksums of stored values, for every engine. The checksum covers key and value, so that it
// detects bit flips and values of other records. Format 1:
//
//   value | 4 bytes 07 'f' 'v' 01 | u32 CRC32C over key, value and those 4, little-endian
//
// Older versions stored the value alone. SQLite stores are migrated when they are opened
// (sqlite_engine.cc). On etcd a value without this suffix is accepted as an old one, and gets the
// suffix with its next change. A value whose suffix differs in a few bits is damaged.
#pragma once

#include <string>
#include <string_view>

#include "platform/base/result.h"

namespace ff::kv {

constexpr size_t kRecordChecksumBytes = 8;

std::string with_checksum(std::string_view key, std::string_view value);
bool checksum_matches(std::string_view key, std::string_view stored);
// Verifies the checksum and returns the value. Errc::corrupt: the message names the record.
Result<std::string> verified_value(std::string_view key, std::string stored);
// Whether an older version stored the value without a checksum.
bool lacks_checksum(std::string_view stored);

Error damaged_record(std::string_view key);

// Guard for ranges of a view() that shall include damaged records: their keys get this prefix, and
// no error is returned. No other key begins with 0xff.
inline constexpr std::string_view kIncludeDamaged = "\xff";
inline bool is_damaged(std::string_view key) { return key.starts_with(kIncludeDamaged); }
// The key without the prefix kIncludeDamaged.
inline std::string_view stored_key(std::string_view key) {
  return key.substr(is_damaged(key) ? kIncludeDamaged.size() : 0);
}

// A printable form of a key.
std::string key_text(std::string_view key);

}  // namespace ff::kv
