// json_reader.cc: types, strings of any bytes, and error messages.
#include "ops/shim/json_reader.h"

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

// Nothing: not a string, or it contains a NUL, which would truncate it in the kernel.
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

Result<JsonReader> JsonReader::parse(std::string_view text, std::string name) {
  Json json = Json::parse(text, nullptr, false);
  JsonReader fields(Json::object(), std::move(name));
  if (!json.is_object()) return fields.field_error("it", "no JSON object");
  fields.json_ = std::move(json);
  FF_TRY(const uint64_t format, fields.number("ff_shim"));
  if (format == kFormat) return fields;
  Error error = fail(Errc::newer_format, "{}: its format is {}, and this ff supports {}",
                     fields.name_, format, kFormat);
  error.hint = "Use the ff that wrote it.";
  return error;
}

Error JsonReader::field_error(std::string_view key, std::string_view why) const {
  return fail(Errc::corrupt, "{}: not what ff writes: {}: {}", name_, key, why);
}

const Json* JsonReader::find(const char* key) const {
  const auto found = json_.find(key);
  return found == json_.end() ? nullptr : &*found;
}

Result<std::string> JsonReader::text(const char* key) const {
  const Json* const json = find(key);
  if (json == nullptr) return field_error(key, "missing");
  auto text = text_of(*json);
  if (!text) return field_error(key, "no text");
  return *std::move(text);
}

Result<std::vector<std::string>> JsonReader::strings(const char* key) const {
  const Json* const json = find(key);
  if (json == nullptr || !json->is_array()) return field_error(key, "no list");
  std::vector<std::string> all;
  for (const Json& one : *json) {
    auto text = text_of(one);
    if (!text) return field_error(key, "no list of texts");
    all.push_back(*std::move(text));
  }
  return all;
}

Result<uint64_t> JsonReader::number(const char* key, uint64_t most) const {
  const Json* const json = find(key);
  if (json == nullptr || !json->is_number_unsigned()) return field_error(key, "no number");
  const auto number = json->get<uint64_t>();
  if (number > most) return field_error(key, "too large");
  return number;
}

Result<std::vector<uint64_t>> JsonReader::numbers(const char* key, uint64_t most) const {
  const Json* const json = find(key);
  if (json == nullptr || !json->is_array()) return field_error(key, "no list");
  std::vector<uint64_t> all;
  for (const Json& one : *json) {
    if (!one.is_number_unsigned()) return field_error(key, "no list of numbers");
    all.push_back(one.get<uint64_t>());
    if (all.back() > most) return field_error(key, "too large");
  }
  return all;
}

Result<bool> JsonReader::boolean(const char* key) const {
  const Json* const json = find(key);
  if (json == nullptr || !json->is_boolean()) return field_error(key, "neither true nor false");
  return json->get<bool>();
}

Result<JsonReader> JsonReader::object(const char* key) const {
  const Json* const json = find(key);
  if (json == nullptr || !json->is_object()) return field_error(key, "no object");
  return JsonReader(*json, fmt::format("{}: {}", name_, key));
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
