// Structured log lines of daemons: a fixed message and key=value fields, one line per event, to
// standard error or to syslog.
//
//   log_info("chain promoted", {{"chain", 12}, {"target", 3}});
//
// text: 2026-11-21T01:33:00.123Z info chain promoted chain=12 target=3
// JSON: {"time":"2026-11-21T01:33:00.123Z","level":"info","message":"chain promoted","chain":12}
//
// Values may hold untrusted text: both formats escape control bytes. Hot paths do not log. Commands
// do not log either: they print their results and warnings.
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
  bool syslog = false;  // to syslog(3), which adds its own timestamps, instead of standard error
};

// Call it before other threads start; without it the defaults of LogOptions apply.
void log_setup(LogOptions options);

// One `key=value`. Keys are string literals of lower-case letters, digits and '_'.
struct LogField {
  LogField(std::string_view k, std::string_view v) : key(k), value(v), is_text(true) {}
  LogField(std::string_view k, const char* v) : LogField(k, std::string_view(v)) {}
  LogField(std::string_view k, const std::string& v) : LogField(k, std::string_view(v)) {}
  LogField(std::string_view k, bool v) : key(k), value(v ? "true" : "false"), is_text(false) {}
  template <class T>
  requires std::integral<T> LogField(std::string_view k, T v)
      : key(k), value(fmt::to_string(v)), is_text(false) {}
  template <class T>
  requires std::floating_point<T> LogField(std::string_view k, T v)
      : key(k), value(fmt::to_string(v)), is_text(!std::isfinite(v)) {}

  std::string_view key;
  std::string value;
  bool is_text;  // quoted in JSON
};

using LogFields = std::initializer_list<LogField>;

void log_debug(std::string_view message, LogFields fields = {});
void log_info(std::string_view message, LogFields fields = {});
void log_warning(std::string_view message, LogFields fields = {});
void log_error(std::string_view message, LogFields fields = {});

}  // namespace ff
