// The type of an option's value and the field that stores it. A binding ties one field of a
// command's options struct to a kind (how it reads, how shells complete it, how manuals name it);
// the field's initial value is the default that help prints. Fields are T, std::optional<T> (absent
// is a value) or std::vector<T> (may repeat). Sizes are uint64_t bytes, durations int64_t
// nanoseconds.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/units.h"

namespace ff::cmd {

enum class Kind : unsigned char { flag, text, file, dir, size, duration, number, choice, command };

struct Binding {
  Kind kind = Kind::text;
  std::string placeholder;           // "DIR"; help prints `--store DIR`
  bool repeatable = false;           // the option may repeat, the argument may be a list
  bool is_optional = false;          // std::optional and std::vector: may be missing
  std::vector<std::string> choices;  // of Kind::choice; beside the commands for Kind::command
  std::string default_text;          // reads back to the default; "" when there is none
  std::function<Result<void>(std::span<const std::string>)> assign;  // parses into the field
};

// Texts that parse to exactly this value: "4MiB", "90s" (format_size() of units.h rounds).
std::string exact_size(uint64_t bytes);
std::string exact_duration(int64_t ns);
Error not_a_number(std::string_view text, bool whole, bool can_be_negative);
Error not_a_choice(std::string_view text, std::span<const std::string> choices);

template <class T>
struct FieldTraits {
  using Element = T;
  static constexpr bool kMany = false, kAbsent = false;
};
template <class T>
struct FieldTraits<std::optional<T>> {
  using Element = T;
  static constexpr bool kMany = false, kAbsent = true;
};
template <class T>
struct FieldTraits<std::vector<T>> {
  using Element = T;
  static constexpr bool kMany = true, kAbsent = true;
};

// The general form: `parse` is Result<Element>(std::string_view), `show` its inverse.
template <class Field, class Parse, class Show>
Binding bind(Kind kind, Field& field, std::string placeholder, Parse parse, Show show) {
  using Shape = FieldTraits<Field>;
  Binding binding{kind, std::move(placeholder), Shape::kMany, Shape::kAbsent, {}, {}, {}};
  if constexpr (!Shape::kAbsent) binding.default_text = show(field);
  binding.assign = [&field, parse](std::span<const std::string> texts) -> Result<void> {
    if constexpr (Shape::kMany) field.clear();
    for (const std::string& text : texts) {
      FF_TRY(auto value, parse(std::string_view(text)));
      if constexpr (Shape::kMany) {
        field.push_back(std::move(value));
      } else {
        field = std::move(value);
      }
    }
    return {};
  };
  return binding;
}

inline Result<std::string> read_text(std::string_view text) { return std::string(text); }
inline std::string show_text(const std::string& text) { return text; }

template <class T>
Result<T> read_number(std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return not_a_number(text, std::integral<T>, std::is_signed_v<T>);
  }
  return value;
}

Result<bool> read_flag(std::string_view text);

// On or off; Command::flag() declares one.
Binding flag(bool& field);

// Any text: names, patterns, addresses.
template <class Field>
Binding text(Field& field, std::string placeholder) {
  return bind(Kind::text, field, std::move(placeholder), read_text, show_text);
}
// A text with its own reader, Result<Element>(std::string_view), and writer.
template <class Field, class Parse, class Show>
Binding parsed(Field& field, std::string placeholder, Parse parse, Show show) {
  return bind(Kind::text, field, std::move(placeholder), parse, show);
}
// Paths, which shells complete. The command checks that they exist.
template <class Field>
Binding file(Field& field, std::string placeholder = "FILE") {
  return bind(Kind::file, field, std::move(placeholder), read_text, show_text);
}
template <class Field>
Binding dir(Field& field, std::string placeholder = "DIR") {
  return bind(Kind::dir, field, std::move(placeholder), read_text, show_text);
}
// Bytes in a uint64_t: "4MiB".
template <class Field>
Binding size(Field& field, std::string placeholder = "SIZE") {
  static_assert(std::same_as<typename FieldTraits<Field>::Element, uint64_t>);
  return bind(Kind::size, field, std::move(placeholder), parse_size, exact_size);
}
// Nanoseconds in an int64_t: "5m".
template <class Field>
Binding duration(Field& field, std::string placeholder = "DURATION") {
  static_assert(std::same_as<typename FieldTraits<Field>::Element, int64_t>);
  return bind(Kind::duration, field, std::move(placeholder), parse_duration_ns, exact_duration);
}
// Any integer or floating type; out of the type's range is a usage error.
template <class Field>
Binding number(Field& field, std::string placeholder = "N") {
  using T = typename FieldTraits<Field>::Element;
  static_assert(std::is_arithmetic_v<T> && !std::same_as<T, bool>);
  return bind(Kind::number, field, std::move(placeholder), read_number<T>,
              [](T value) { return fmt::format("{}", value); });
}
// One of a fixed list of words, kept as text.
template <class Field>
Binding choice(Field& field, std::vector<std::string> choices) {
  auto read = [choices](std::string_view text) -> Result<std::string> {
    for (const std::string& known : choices) {
      if (known == text) return known;
    }
    return not_a_choice(text, choices);
  };
  Binding binding =
      bind(Kind::choice, field, fmt::format("{}", fmt::join(choices, "|")), read, show_text);
  binding.choices = std::move(choices);
  return binding;
}

}  // namespace ff::cmd
