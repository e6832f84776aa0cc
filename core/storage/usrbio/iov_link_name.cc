// iov_link_name.cc: suffixes separated by dots, each starts with its letter.
#include "storage/usrbio/iov_link_name.h"

#include <charconv>
#include <system_error>

namespace ff::usrbio {

namespace {

template <class T>
bool parse(std::string_view text, T& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

std::optional<IovId> parse_id(std::string_view text) {
  IovId id = {};
  size_t digits = 0;
  for (const char c : text) {
    if (c == '-') continue;
    uint8_t digit = 0;
    if (digits == 2 * id.size() || !parse(std::string_view(&c, 1), digit, 16)) return std::nullopt;
    id[digits / 2] = static_cast<uint8_t>(id[digits / 2] << 4 | digit);
    digits++;
  }
  if (digits != 2 * id.size()) return std::nullopt;
  return id;
}

bool parse_suffix(std::string_view suffix, IovLinkName& name) {
  if (suffix == "ph" || suffix == "pl") {
    name.priority = suffix == "ph" ? -1 : 1;
    return true;
  }
  if (suffix.size() < 2) return false;
  const std::string_view rest = suffix.substr(1);
  switch (suffix[0]) {
    case 'b': return parse(rest, name.block) && name.block > 0;
    case 't': return parse(rest, name.timeout_ms) && name.timeout_ms >= 0;
    case 'f': return parse(rest, name.flags, 2);
    case 'r':
    case 'w':
      if (name.ring) return false;
      name.ring = true;
      name.read = suffix[0] == 'r';
      return parse(rest, name.depth) && name.depth > INT32_MIN;
    default: return false;
  }
}

}  // namespace

std::string text_of(const IovId& id) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : id) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string text_of(const IovLinkName& name) {
  std::string text = text_of(name.id);
  if (name.block > 0) text += ".b" + std::to_string(name.block);
  if (!name.ring) return text;
  text += (name.read ? ".r" : ".w") + std::to_string(name.depth);
  if (name.priority != 0) text += name.priority < 0 ? ".ph" : ".pl";
  text += ".t" + std::to_string(name.timeout_ms);
  if (name.flags == 0) return text;
  std::array<char, 64> bits;
  const auto end = std::to_chars(bits.data(), bits.data() + bits.size(), name.flags, 2).ptr;
  return text + ".f" + std::string(bits.data(), end);
}

std::optional<IovLinkName> parse_iov_link_name(std::string_view text) {
  IovLinkName name;
  const auto id = parse_id(text.substr(0, text.find('.')));
  if (!id) return std::nullopt;
  name.id = *id;
  text.remove_prefix(std::min(text.find('.'), text.size()));
  while (!text.empty()) {
    text.remove_prefix(1);
    const size_t end = std::min(text.find('.'), text.size());
    if (!parse_suffix(text.substr(0, end), name)) return std::nullopt;
    text.remove_prefix(end);
  }
  const bool only_rings = name.priority != 0 || name.timeout_ms != 0 || name.flags != 0;
  if (!name.ring && only_rings) return std::nullopt;
  return name;
}

}  // namespace ff::usrbio
