// Reading the JSON files of a shim's folder: every field is looked for by its name and checked for
// its kind, so that no text, whoever wrote it, does more than give an error. Texts may hold any
// bytes but NUL (arguments of programs do): one that is not UTF-8 is written {"hex": "ff00…"}.
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

constexpr uint64_t kFormat = 1;                    // "ff_shim" of all these files
constexpr uint64_t kFileMax = uint64_t{64} << 20;  // bytes; a kernel takes some MiB of arguments

// One object of such a file.
class Fields {
 public:
  // The outermost one. `name` stands in errors, which are all corrupt or newer_format.
  static Result<Fields> parse(std::string_view text, std::string name);

  bool has(const char* key) const { return json_.contains(key); }
  Result<std::string> text(const char* key) const;
  Result<std::vector<std::string>> texts(const char* key) const;
  // At most `most`.
  Result<uint64_t> number(const char* key, uint64_t most = UINT64_MAX) const;
  Result<std::vector<uint64_t>> numbers(const char* key, uint64_t most) const;
  Result<bool> truth(const char* key) const;
  Result<Fields> object(const char* key) const;
  Error wrong(std::string_view key, std::string_view why) const;

 private:
  Fields(Json json, std::string name) : json_(std::move(json)), name_(std::move(name)) {}
  // Null: it is not there.
  const Json* find(const char* key) const;

  Json json_;
  std::string name_;
};

Json text_json(std::string_view text);
Json texts_json(const std::vector<std::string>& texts);
// With "ff_shim" in front of `fields`, and a newline behind.
std::string file_text(const Json& fields);

}  // namespace ff::shim
