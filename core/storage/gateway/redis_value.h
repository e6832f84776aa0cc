// How values of the Redis protocol lie in the store (kvstore/store.h). A string is its bytes, so
// that other programs read and write it as it is. A hash is a mark, then its fields in the order in
// which they were added: for each the sizes of field and value (32 bits, little-endian), then both.
// A string that begins as a mark does gets another mark in front.
//
// Streams, lists and sets are collections: they are not written as a whole. Their value is a head:
// a mark, the id of the collection and the number of its next page (64 bits each, little-endian),
// then what the type needs. The rest lies in pages (page_space.h), which are parts of the key
// (kvstore/calls.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/result.h"

namespace ff::gateway {

enum class ValueType : uint8_t { string, hash, stream, list, set };
std::string_view value_type_name(ValueType type);

// Of a stored value. Shorter values than a mark are strings.
ValueType stored_type(std::string_view stored);
constexpr size_t kValueMarkBytes = 8;

// The reply for a value that cannot be read.
Error damaged_value();

// Whether a stored value is a string that lies there as it is.
bool is_plain_string(std::string_view stored);
std::string encode_string(std::string value);
// The string in a stored value of ValueType::string.
std::string decode_string(std::string stored);

// The pages of a collection, as its head names them.
struct PartSpace {
  static constexpr size_t kHeadBytes = kValueMarkBytes + 2 * sizeof(uint64_t);

  uint32_t slot = 0;       // of the key, as Redis Cluster numbers them
  uint64_t id = 0;         // random
  uint64_t next_page = 0;  // larger than the numbers of all pages

  // The name of a page (kvstore::part_name()).
  std::string name(uint64_t page) const;
  // The name of the record that says that the collection is gone, and its value: a head that ends
  // here.
  std::string leftover_name() const;
  std::string encode_head(ValueType type) const;
  // From the front of a stored head, which moves behind it.
  static Result<PartSpace> take(std::string_view& stored, uint32_t slot);
};

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
