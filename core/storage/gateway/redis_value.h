// How values of the Redis protocol lie in the store (kvstore/store.h). A string is its bytes, so
// that other programs read and write it as it is. A hash is a mark, then its fields in the order in
// which they were added: for each the sizes of field and value (32 bits, little-endian), then both.
// A string that begins as a mark does gets another mark in front.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/result.h"

namespace ff::gateway {

enum class ValueType : uint8_t { string, hash };
std::string_view value_type_name(ValueType type);

// Of a stored value. Shorter values than a mark are strings.
ValueType stored_type(std::string_view stored);
constexpr size_t kValueMarkBytes = 8;

// Whether a stored value is a string that lies there as it is.
bool is_plain_string(std::string_view stored);
std::string encode_string(std::string value);
// The string in a stored value of ValueType::string.
std::string decode_string(std::string stored);

class HashValue {
 public:
  using Field = std::pair<std::string, std::string>;

  // Errc::corrupt: not a hash.
  static Result<HashValue> decode(std::string_view stored);
  std::string encode() const;

  const std::vector<Field>& fields() const { return fields_; }
  // Null: there is no such field.
  const std::string* find(std::string_view field) const;
  // Whether the field is new.
  bool set(std::string field, std::string value);
  // Whether the field was there.
  bool remove(std::string_view field);

 private:
  std::vector<Field> fields_;
};

}  // namespace ff::gateway
