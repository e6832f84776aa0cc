// log.cc: formats message and fields; spdlog adds the timestamp and writes the line.
//
// Only this source includes spdlog. A spdlog pattern makes the text or JSON frame of a line; this
// file formats its content, so that text.h escapes every value. spdlog writes each line at once and
// synchronously: there is no queue that a crash could lose.
#include "platform/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/sinks/syslog_sink.h>
#include <syslog.h>

#include <memory>

#include "platform/base/text.h"

namespace ff {
namespace {

constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%eZ %l %v";
constexpr const char* kSyslogPattern = "%l %v";
constexpr const char* kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";

struct Log {
  Log() : logger("ff", std::make_shared<spdlog::sinks::stderr_sink_mt>()) { setup({}); }

  void setup(LogOptions options) {
    json = options.json;
    const bool syslog = options.syslog;
    if (syslog != to_syslog) logger.sinks() = {sink(syslog)};
    to_syslog = syslog;
    logger.set_level(spdlog_level(options.level));
    const char* const text = syslog ? kSyslogPattern : kTextPattern;
    logger.set_formatter(std::make_unique<spdlog::pattern_formatter>(
        json ? kJsonPattern : text, spdlog::pattern_time_type::utc, syslog ? "" : "\n"));
  }

  static spdlog::sink_ptr sink(bool syslog) {
    if (!syslog) return std::make_shared<spdlog::sinks::stderr_sink_mt>();
    return std::make_shared<spdlog::sinks::syslog_sink_mt>("ff", LOG_PID, LOG_DAEMON, true);
  }

  static spdlog::level::level_enum spdlog_level(LogLevel level) {
    switch (level) {
      case LogLevel::debug: return spdlog::level::debug;
      case LogLevel::info: return spdlog::level::info;
      case LogLevel::warning: return spdlog::level::warn;
      case LogLevel::error: return spdlog::level::err;
      case LogLevel::none: return spdlog::level::off;
    }
    return spdlog::level::info;
  }

  spdlog::logger logger;
  bool json = false;
  bool to_syslog = false;
};

Log& the_log() {
  // Never destroyed: threads may still log while the process exits.
  static Log* const log = new Log;
  return *log;
}

// Quotes a value that is empty or contains a space, a quote or '=', so that a line can be split at
// spaces.
void append_text_value(std::string& line, std::string_view value) {
  const std::string safe = printable(value);
  if (!safe.empty() && safe.find_first_of(" \"=") == std::string::npos) {
    line += safe;
    return;
  }
  line += '"';
  for (const char c : safe) {
    if (c == '"') line += '\\';
    line += c;
  }
  line += '"';
}

std::string text_line(std::string_view message, LogFields fields) {
  std::string line = printable(message);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_text_value(line, field.value);
  }
  return line;
}

std::string json_line(std::string_view message, LogFields fields) {
  std::string line = "\"message\":";
  append_json_string(line, message);
  for (const LogField& field : fields) {
    line += ',';
    append_json_string(line, field.key);
    line += ':';
    if (field.is_text) {
      append_json_string(line, field.value);
    } else {
      line += field.value;
    }
  }
  return line;
}

void write(LogLevel level, std::string_view message, LogFields fields) {
  Log& log = the_log();
  const auto spdlog_level = Log::spdlog_level(level);
  if (!log.logger.should_log(spdlog_level)) return;
  const std::string line = log.json ? json_line(message, fields) : text_line(message, fields);
  log.logger.log(spdlog_level, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace

void log_setup(LogOptions options) { the_log().setup(options); }

void log_debug(std::string_view message, LogFields fields) {
  write(LogLevel::debug, message, fields);
}
void log_info(std::string_view message, LogFields fields) {
  write(LogLevel::info, message, fields);
}
void log_warning(std::string_view message, LogFields fields) {
  write(LogLevel::warning, message, fields);
}
void log_error(std::string_view message, LogFields fields) {
  write(LogLevel::error, message, fields);
}

}  // namespace ff
