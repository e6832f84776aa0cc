// uri.cc: percent-encoding as RFC 3986 and Signature Version 4 have it.
#include "storage/s3/uri.h"

#include <algorithm>

#include "platform/base/text.h"

namespace ff::s3 {

namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

Error bad_target() { return fail(Errc::corrupt, "the URL of the request is not valid"); }

}  // namespace

std::optional<std::string> percent_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    decoded += static_cast<char>(16 * high + low);
    i += 2;
  }
  return decoded;
}

std::string percent_encode(std::string_view text, bool slashes_stay) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    if (is_unreserved(c) || (c == '/' && slashes_stay)) {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kDigits[static_cast<unsigned char>(c) >> 4];
      encoded += kDigits[static_cast<unsigned char>(c) & 15];
    }
  }
  return encoded;
}

const std::string* RequestTarget::find(std::string_view name) const {
  const auto found = std::ranges::find(query, name, &Query::value_type::first);
  return found == query.end() ? nullptr : &found->second;
}

Result<RequestTarget> parse_target(std::string_view target) {
  if (!target.starts_with('/')) return bad_target();
  const size_t mark = std::min(target.find('?'), target.size());
  auto path = percent_decode(target.substr(0, mark));
  if (!path) return bad_target();
  RequestTarget parsed;
  parsed.path = std::move(*path);
  if (mark == target.size()) return parsed;
  for (const std::string_view one : split(target.substr(mark + 1), '&')) {
    if (one.empty()) continue;
    const size_t equals = std::min(one.find('='), one.size());
    auto name = percent_decode(one.substr(0, equals));
    auto value = percent_decode(one.substr(std::min(equals + 1, one.size())));
    if (!name || !value) return bad_target();
    parsed.query.emplace_back(std::move(*name), std::move(*value));
  }
  return parsed;
}

}  // namespace ff::s3
