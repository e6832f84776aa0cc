// Log lines of daemons: a fixed sentence and facts with keys, once per event, to standard error or
// to syslog.
//
//   log_info("chain promoted", {{"chain", 12}, {"target", 3}});
//
// text: 2026-11-21T01:33:00.123Z info chain promoted chain=12 target=3
// JSON: {"time":"2026-11-21T01:33:00.123Z","level":"info","message":"chain promoted","chain":12}
//
// Text from outside may stand in values: control bytes are escaped in both forms. Hot paths do not
// log. Commands do not use this: they print their results and warnings (cli.md).
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace ff {

enum class LogLevel : uint8_t { debug, info, warning, error, none };

struct LogOptions {
  LogLevel level = LogLevel::info;  // lines below it are dropped
  bool json = false;
  bool syslog = false;  // to syslog(3), which has times of its own, instead of standard error
};

// Before the threads start; without it the defaults hold.
void log_setup(LogOptions options);

// One `key=value`. Keys are literals of the program: lower case, digits and '_'.
struct Fact {
  Fact(std::string_view k, std::string_view v) : key(k), value(v), is_text(true) {}
  Fact(std::string_view k, const char* v) : Fact(k, std::string_view(v)) {}
  Fact(std::string_view k, const std::string& v) : Fact(k, std::string_view(v)) {}
  Fact(std::string_view k, bool v) : key(k), value(v ? "true" : "false"), is_text(false) {}
  template <class T>
  requires std::integral<T> Fact(std::string_view k, T v)
      : key(k), value(fmt::to_string(v)), is_text(false) {}
  template <class T>
  requires std::floating_point<T> Fact(std::string_view k, T v)
      : key(k), value(fmt::to_string(v)), is_text(!std::isfinite(v)) {}

  std::string_view key;
  std::string value;
  bool is_text;  // quoted in JSON
};

using Facts = std::initializer_list<Fact>;

void log_debug(std::string_view message, Facts facts = {});
void log_info(std::string_view message, Facts facts = {});
void log_warning(std::string_view message, Facts facts = {});
void log_error(std::string_view message, Facts facts = {});

}  // namespace ff
