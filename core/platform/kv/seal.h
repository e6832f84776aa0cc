// How values are stored, in every engine: with a checksum of their key and themselves, so that
// neither another record's value nor a flipped bit goes for what was written. Format 1:
//
//   value | 4 bytes 07 'f' 'v' 01 | u32 CRC32C over key, value and those 4, little-endian
//
// Before, there was nothing behind the value. SQLite stores are brought forward when they are
// opened (sqlite_engine.cc); on etcd a value without this end counts as one of before, and gets it
// with its next change. What ends almost so is damaged.
#pragma once

#include <string>
#include <string_view>

#include "platform/base/result.h"

namespace ff::kv {

constexpr size_t kSealBytes = 8;

std::string sealed(std::string_view key, std::string_view value);
// Whether nothing has changed since it was sealed.
bool seal_fits(std::string_view key, std::string_view stored);
// The value. Errc::corrupt, with the record's name.
Result<std::string> unsealed(std::string_view key, std::string stored);
// Whether it was stored before there were seals.
bool is_before_seals(std::string_view stored);

Error damaged_record(std::string_view key);

// For views that look for damage: with this as its guard, a range gives entries whose checksum does
// not fit, too, and is no error. No key begins with 0xff, but for theirs.
inline constexpr std::string_view kWithDamaged = "\xff";
inline bool is_damaged(std::string_view key) { return key.starts_with(kWithDamaged); }
// The key as it is stored.
inline std::string_view stored_key(std::string_view key) {
  return key.substr(is_damaged(key) ? kWithDamaged.size() : 0);
}

// A key as people can read it.
std::string key_text(std::string_view key);

}  // namespace ff::kv
