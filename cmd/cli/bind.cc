// Texts of bindings: exact forms of sizes and durations, and the errors for values that do not
// parse.
#include "cmd/cli/bind.h"

#include <array>
#include <utility>

#include "platform/base/clock.h"
#include "platform/base/text.h"

namespace ff::cmd {
namespace {

struct Unit {
  uint64_t of;
  std::string_view name;
};

// The number in the largest unit that divides it. Units are largest first, the last is 1.
std::string exact(uint64_t value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (value != 0 && value % unit.of == 0) return fmt::format("{}{}", value / unit.of, unit.name);
  }
  return fmt::format("0{}", units.back().name);
}

}  // namespace

std::string exact_size(uint64_t bytes) {
  constexpr std::array<Unit, 5> kUnits{{{uint64_t{1} << 40, "TiB"},
                                        {uint64_t{1} << 30, "GiB"},
                                        {uint64_t{1} << 20, "MiB"},
                                        {uint64_t{1} << 10, "KiB"},
                                        {1, ""}}};
  return exact(bytes, kUnits);
}

std::string exact_duration(int64_t ns) {
  constexpr std::array<Unit, 5> kUnits{{{86'400 * kSecond, "d"},
                                        {3'600 * kSecond, "h"},
                                        {60 * kSecond, "m"},
                                        {kSecond, "s"},
                                        {kMillisecond, "ms"}}};
  const auto value = static_cast<uint64_t>(ns);
  // Below a millisecond no unit is exact: durations have none smaller (units.h).
  FF_CHECK(ns >= 0 && value % kMillisecond == 0);
  return value == 0 ? "0s" : exact(value, kUnits);
}

Error not_a_number(std::string_view text, bool whole, bool can_be_negative) {
  return fail(Errc::usage, "'{}' is not a {}number{}", text, whole ? "whole " : "",
              can_be_negative ? " in range" : " of at least 0 and in range");
}

Result<bool> read_flag(std::string_view text) {
  for (const std::string_view yes : {"true", "1", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"false", "0", "no", "off"}) {
    if (text == no) return false;
  }
  return fail(Errc::usage, "'{}' is not true or false", text);
}

Binding flag(bool& field) {
  auto show = [](bool value) { return std::string(value ? "true" : "false"); };
  return bind(Kind::flag, field, "", read_flag, show);
}

Error not_a_choice(std::string_view text, std::span<const std::string> choices) {
  Error error = fail(Errc::usage, "'{}' is not one of {}", text, fmt::join(choices, ", "));
  if (const std::string near = nearest(text, choices); !near.empty()) {
    error.hint = fmt::format("Did you mean {}?", near);
  }
  return error;
}

}  // namespace ff::cmd
