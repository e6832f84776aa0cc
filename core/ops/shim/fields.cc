// fields.cc: kinds, texts of any bytes, and what is said of those that are wrong.
#include "ops/shim/fields.h"

#include <utility>

#include "platform/base/bytes.h"
#include "platform/base/text.h"

namespace ff::shim {
namespace {

std::optional<int> nibble(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return std::nullopt;
}

std::optional<std::string> from_hex(std::string_view digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    const auto high = nibble(digits[i]);
    const auto low = nibble(digits[i + 1]);
    if (!high || !low) return std::nullopt;
    bytes += static_cast<char>(*high * 16 + *low);
  }
  return bytes;
}

// Nothing: it is no text, or has a NUL in it, which would end it for the kernel.
std::optional<std::string> text_of(const Json& json) {
  std::optional<std::string> text;
  if (json.is_string()) text = json.get<std::string>();
  if (json.is_object() && json.size() == 1 && json.contains("hex") && json["hex"].is_string()) {
    text = from_hex(json["hex"].get_ref<const std::string&>());
  }
  if (text && text->find('\0') != text->npos) return std::nullopt;
  return text;
}

}  // namespace

Result<Fields> Fields::parse(std::string_view text, std::string name) {
  Json json = Json::parse(text, nullptr, false);
  Fields fields(Json::object(), std::move(name));
  if (!json.is_object()) return fields.wrong("it", "no JSON object");
  fields.json_ = std::move(json);
  FF_TRY(const uint64_t format, fields.number("ff_shim"));
  if (format == kFormat) return fields;
  Error error = fail(Errc::newer_format, "{}: format {}, and this ff knows {}", fields.name_,
                     format, kFormat);
  error.hint = "Use the ff that wrote it.";
  return error;
}

Error Fields::wrong(std::string_view key, std::string_view why) const {
  return fail(Errc::corrupt, "{}: not what ff writes: {}: {}", name_, key, why);
}

const Json* Fields::find(const char* key) const {
  const auto found = json_.find(key);
  return found == json_.end() ? nullptr : &*found;
}

Result<std::string> Fields::text(const char* key) const {
  const Json* const json = find(key);
  if (json == nullptr) return wrong(key, "missing");
  auto text = text_of(*json);
  if (!text) return wrong(key, "no text");
  return *std::move(text);
}

Result<std::vector<std::string>> Fields::texts(const char* key) const {
  const Json* const json = find(key);
  if (json == nullptr || !json->is_array()) return wrong(key, "no list");
  std::vector<std::string> all;
  for (const Json& one : *json) {
    auto text = text_of(one);
    if (!text) return wrong(key, "no list of texts");
    all.push_back(*std::move(text));
  }
  return all;
}

Result<uint64_t> Fields::number(const char* key, uint64_t most) const {
  const Json* const json = find(key);
  if (json == nullptr || !json->is_number_unsigned()) return wrong(key, "no number");
  const auto number = json->get<uint64_t>();
  if (number > most) return wrong(key, "too large");
  return number;
}

Result<std::vector<uint64_t>> Fields::numbers(const char* key, uint64_t most) const {
  const Json* const json = find(key);
  if (json == nullptr || !json->is_array()) return wrong(key, "no list");
  std::vector<uint64_t> all;
  for (const Json& one : *json) {
    if (!one.is_number_unsigned()) return wrong(key, "no list of numbers");
    all.push_back(one.get<uint64_t>());
    if (all.back() > most) return wrong(key, "too large");
  }
  return all;
}

Result<bool> Fields::truth(const char* key) const {
  const Json* const json = find(key);
  if (json == nullptr || !json->is_boolean()) return wrong(key, "neither true nor false");
  return json->get<bool>();
}

Result<Fields> Fields::object(const char* key) const {
  const Json* const json = find(key);
  if (json == nullptr || !json->is_object()) return wrong(key, "no object");
  return Fields(*json, fmt::format("{}: {}", name_, key));
}

Json text_json(std::string_view text) {
  if (valid_utf8(text)) return std::string(text);
  return {{"hex", hex(as_bytes(text))}};
}

Json texts_json(const std::vector<std::string>& texts) {
  Json all = Json::array();
  for (const std::string& text : texts) all.push_back(text_json(text));
  return all;
}

std::string file_text(const Json& fields) {
  Json all = {{"ff_shim", kFormat}};
  all.update(fields);
  return all.dump(2) + "\n";
}

}  // namespace ff::shim
