// command.cc: what handlers and rows have in common.
#include "storage/gateway/command.h"

#include <algorithm>

#include "platform/base/text.h"

namespace ff::gateway {

namespace {

// Options may have words of their own that look like STREAMS. Behind that word are keys, then as
// many ids; where they are not as many, the handler refuses the request.
std::vector<std::string> stream_keys_of(const RespRequest& words) {
  for (size_t i = 1; i < words.size(); i++) {
    const std::string option = upper_case(words[i]);
    if (option == "GROUP") {
      i += 2;
    } else if (option == "COUNT" || option == "BLOCK") {
      i++;
    } else if (option == "STREAMS") {
      const auto first = words.begin() + static_cast<ptrdiff_t>(i) + 1;
      return {first, first + (words.end() - first) / 2};
    }
  }
  return {};
}

// Where there are fewer keys than their number says, the handler refuses the request.
std::vector<std::string> counted_keys_of(const CommandRow& row, const RespRequest& words) {
  const size_t at = row.has(kWaits) ? 2 : 1;
  const auto count = parse_u64(words[at]);
  if (!count || *count > words.size() - at - 1) return {};
  const auto first = words.begin() + static_cast<ptrdiff_t>(at) + 1;
  return {first, first + static_cast<ptrdiff_t>(*count)};
}

}  // namespace

bool CommandCall::is_option(size_t i, std::string_view name) const {
  return std::ranges::equal(words[i], name, {}, [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
}

std::vector<std::string> keys_of(const CommandRow& row, const RespRequest& words) {
  if (row.has(kStreamKeys)) return stream_keys_of(words);
  if (row.has(kCountedKeys)) return counted_keys_of(row, words);
  std::vector<std::string> keys;
  if (row.first_key == 0) return keys;
  const auto count = static_cast<int>(words.size());
  const int last = row.last_key < 0 ? count + row.last_key : row.last_key;
  for (int i = row.first_key; i <= last; i += row.key_step) {
    keys.push_back(words[static_cast<size_t>(i)]);
  }
  return keys;
}

Result<void> check_one_slot(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (kvstore::redis_slot(key) == kvstore::redis_slot(keys.front())) continue;
    return fail(Errc::usage, "CROSSSLOT Keys in request don't hash to the same slot");
  }
  return {};
}

Error syntax_error() { return fail(Errc::usage, "ERR syntax error"); }

Error not_an_integer() { return fail(Errc::usage, "ERR value is not an integer or out of range"); }

Error wrong_arity(const CommandRow& row) {
  return fail(Errc::usage, "ERR wrong number of arguments for '{}' command", row.name);
}

std::string upper_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace ff::gateway
