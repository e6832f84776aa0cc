// Reads the JSON files in the folder of a shim: each field is looked up by name and checked for its
// type, so that malformed text gives an error and nothing else. Strings may hold any bytes but NUL
// (as program arguments do): a string that is not UTF-8 is written as {"hex": "ff00…"}.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"

namespace ff::shim {

using Json = nlohmann::ordered_json;

constexpr uint64_t kFormat = 1;  // "ff_shim" of all these files
constexpr uint64_t kFileBytesMax = uint64_t{64}
                                   << 20;  // bytes; a kernel takes some MiB of arguments

// One JSON object of such a file.
class JsonReader {
 public:
  // Parses the top-level object. `name` appears in errors, which are all corrupt or newer_format.
  static Result<JsonReader> parse(std::string_view text, std::string name);

  bool has(const char* key) const { return json_.contains(key); }
  Result<std::string> text(const char* key) const;
  Result<std::vector<std::string>> strings(const char* key) const;
  // A number of at most `most`.
  Result<uint64_t> number(const char* key, uint64_t most = UINT64_MAX) const;
  Result<std::vector<uint64_t>> numbers(const char* key, uint64_t most) const;
  Result<bool> boolean(const char* key) const;
  Result<JsonReader> object(const char* key) const;
  Error field_error(std::string_view key, std::string_view why) const;

 private:
  JsonReader(Json json, std::string name) : json_(std::move(json)), name_(std::move(name)) {}
  // Null: there is no such field.
  const Json* find(const char* key) const;

  Json json_;
  std::string name_;
};

Json text_json(std::string_view text);
Json texts_json(const std::vector<std::string>& texts);
// `fields` with "ff_shim" in front, and a newline at the end.
std::string file_text(const Json& fields);

}  // namespace ff::shim
