// redis_value.cc: marks, and the fields of hashes one behind the other.
#include "storage/gateway/redis_value.h"

#include <algorithm>
#include <iterator>

#include "platform/base/bytes.h"
#include "storage/kvstore/calls.h"

namespace ff::gateway {

namespace {

// A mark is this, then a letter for the type.
constexpr std::string_view kMark("\0ff-kv\0", kValueMarkBytes - 1);
constexpr char kHashLetter = 'h';
constexpr char kStringLetter = 's';

struct NamedType {
  ValueType type;
  char letter;
  std::string_view name;
};
constexpr NamedType kTypes[] = {{ValueType::string, kStringLetter, "string"},
                                {ValueType::hash, kHashLetter, "hash"},
                                {ValueType::stream, 'x', "stream"},
                                {ValueType::list, 'l', "list"},
                                {ValueType::set, 't', "set"}};

const NamedType& named_type(ValueType type) {
  return *std::ranges::find(kTypes, type, &NamedType::type);
}

std::string mark(char letter) { return std::string(kMark) + letter; }

// Takes a size and so many bytes from the front of `rest`; false: they are not there.
bool take_sizes(std::string_view& rest, uint32_t& field, uint32_t& value) {
  if (rest.size() < 2 * sizeof(uint32_t)) return false;
  field = load_le<uint32_t>(as_bytes(rest).data());
  value = load_le<uint32_t>(as_bytes(rest).data() + sizeof(uint32_t));
  rest.remove_prefix(2 * sizeof(uint32_t));
  return rest.size() >= field && rest.size() - field >= value;
}

}  // namespace

std::string_view value_type_name(ValueType type) { return named_type(type).name; }

ValueType stored_type(std::string_view stored) {
  if (stored.size() < kValueMarkBytes || !stored.starts_with(kMark)) return ValueType::string;
  const auto row = std::ranges::find(kTypes, stored[kValueMarkBytes - 1], &NamedType::letter);
  return row == std::end(kTypes) ? ValueType::string : row->type;
}

Error damaged_value() { return fail(Errc::corrupt, "ERR the stored value is damaged"); }

std::string PartSpace::name(uint64_t page) const {
  std::string rest;
  append_le(rest, id);
  append_le(rest, page);
  return kvstore::part_name(slot, rest);
}

std::string PartSpace::leftover_name() const {
  std::string rest;
  append_le(rest, id);
  return kvstore::part_name(slot, rest);
}

std::string PartSpace::encode_head(ValueType type) const {
  std::string out = mark(named_type(type).letter);
  append_le(out, id);
  append_le(out, next_page);
  return out;
}

Result<PartSpace> PartSpace::take(std::string_view& stored, uint32_t slot) {
  if (stored.size() < kHeadBytes) return damaged_value();
  const auto* const at = as_bytes(stored).data() + kValueMarkBytes;
  const PartSpace parts{.slot = slot,
                        .id = load_le<uint64_t>(at),
                        .next_page = load_le<uint64_t>(at + sizeof(uint64_t))};
  stored.remove_prefix(kHeadBytes);
  return parts;
}

bool is_plain_string(std::string_view stored) { return !stored.starts_with(kMark); }

std::string encode_string(std::string value) {
  if (value.starts_with(kMark)) return mark(kStringLetter) + value;
  return value;
}

std::string decode_string(std::string stored) {
  if (stored.size() >= kValueMarkBytes && stored.starts_with(kMark) &&
      stored[kValueMarkBytes - 1] == kStringLetter) {
    stored.erase(0, kValueMarkBytes);
  }
  return stored;
}

Result<HashValue> HashValue::decode(std::string_view stored) {
  HashValue hash;
  std::string_view rest = stored;
  rest.remove_prefix(std::min(rest.size(), kValueMarkBytes));
  while (!rest.empty()) {
    uint32_t field = 0, value = 0;
    if (!take_sizes(rest, field, value)) {
      return damaged_value();
    }
    hash.fields_.emplace_back(rest.substr(0, field), rest.substr(field, value));
    rest.remove_prefix(size_t{field} + value);
  }
  return hash;
}

std::string HashValue::encode() const {
  std::string out = mark(kHashLetter);
  for (const auto& [field, value] : fields_) {
    append_le(out, static_cast<uint32_t>(field.size()));
    append_le(out, static_cast<uint32_t>(value.size()));
    out += field;
    out += value;
  }
  return out;
}

const std::string* HashValue::find(std::string_view field) const {
  const auto found = std::ranges::find(fields_, field, &Field::first);
  return found == fields_.end() ? nullptr : &found->second;
}

bool HashValue::set(std::string field, std::string value) {
  const auto found = std::ranges::find(fields_, field, &Field::first);
  if (found != fields_.end()) {
    found->second = std::move(value);
    return false;
  }
  fields_.emplace_back(std::move(field), std::move(value));
  return true;
}

bool HashValue::remove(std::string_view field) {
  return std::erase_if(fields_, [&](const Field& one) { return one.first == field; }) > 0;
}

}  // namespace ff::gateway
