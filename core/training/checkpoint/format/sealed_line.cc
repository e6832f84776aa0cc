// sealed_line.cc: lines of JSON with their own checksum.
#include "training/checkpoint/format/sealed_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "platform/base/bytes.h"
#include "platform/simd/crc32c.h"

namespace ff::checkpoint {
namespace {

constexpr std::string_view kMark = R"(,"crc":")";
constexpr size_t kTailBytes = kMark.size() + 8 + 2;  // mark, 8 hex digits, `"}`

std::array<char, kTailBytes> tail_of(std::string_view body) {
  std::array<char, kTailBytes> tail;
  fmt::format_to(tail.begin(), "{}{:08x}\"}}", kMark, simd::crc32c(as_bytes(body)));
  return tail;
}

}  // namespace

std::string seal_line(std::string open_object) {
  const auto tail = tail_of(open_object);
  open_object.append(tail.begin(), tail.end());
  open_object += '\n';
  return open_object;
}

bool line_is_sealed(std::string_view line) {
  if (line.size() <= kTailBytes) return false;
  const std::string_view body = line.substr(0, line.size() - kTailBytes);
  return std::ranges::equal(line.substr(body.size()), tail_of(body));
}

std::optional<std::string> sealed_text(std::string_view line, std::string_view key) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  const auto it = object.find(std::string(key));
  if (it == object.end() || !it->is_string()) return std::nullopt;
  return it->get<std::string>();
}

std::optional<int64_t> sealed_number(std::string_view line, std::string_view key) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  const auto it = object.find(std::string(key));
  if (it == object.end() || !it->is_number_integer()) return std::nullopt;
  // A larger number must not wrap to a small one: it may be the version of the format.
  if (it->is_number_unsigned() && it->get<uint64_t>() > INT64_MAX) return INT64_MAX;
  return it->get<int64_t>();
}

}  // namespace ff::checkpoint
