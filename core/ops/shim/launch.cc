// launch.cc: parses and validates launch.json.
//
//   {"ff_shim": 1, "argv": ["python3", "train.py"], "env": ["PATH=/usr/bin:/bin"], "cwd":
//   "/home/u",
//    "user": {"uid": 1000, "gid": 1000, "groups": [44]}, "memory_limit": 0, "cgroup": "ff/tasks",
//    "log": {"path": "/…/0.log", "file_bytes": 2097152, "files": 4, "rate": 1048576,
//            "burst": 4194304},
//    "stop_signal": "USR1", "marker": "FF_TASK_RANK_OF=5f3a.12.1.0", "lease": "/…/lease"}
//
// "user" may be absent, "cgroup", "stop_signal", "marker" and "lease" empty.
#include "ops/shim/launch.h"

#include <csignal>
#include <cstring>

#include "ops/shim/json_reader.h"
#include "platform/base/text.h"

namespace ff::shim {
namespace {

constexpr uint64_t kFilesMax = 1000;
constexpr uint64_t kIdMax = UINT32_MAX - 1;  // setuid(2) treats -1 as unchanged

bool is_variable(std::string_view text) {
  const size_t sign = text.find('=');
  return sign != text.npos && sign > 0;
}

std::string signal_name(int number) {
  const char* const name = number > 0 ? ::sigabbrev_np(number) : nullptr;
  return name == nullptr ? "" : name;
}

Result<RankUser> parse_user(const JsonReader& fields) {
  RankUser user;
  FF_TRY(const uint64_t uid, fields.number("uid", kIdMax));
  FF_TRY(const uint64_t gid, fields.number("gid", kIdMax));
  FF_TRY(const auto groups, fields.numbers("groups", kIdMax));
  user.uid = static_cast<uint32_t>(uid);
  user.gid = static_cast<uint32_t>(gid);
  for (const uint64_t group : groups) user.groups.push_back(static_cast<uint32_t>(group));
  return user;
}

Result<LogLimits> parse_log(const JsonReader& fields) {
  LogLimits log;
  FF_TRY(log.path, fields.text("path"));
  FF_TRY(log.file_bytes, fields.number("file_bytes"));
  FF_TRY(log.files, fields.number("files", kFilesMax));
  FF_TRY(log.rate, fields.number("rate"));
  FF_TRY(log.burst, fields.number("burst"));
  if (!log.path.starts_with('/')) return fields.field_error("path", "not absolute");
  if (log.files == 0) return fields.field_error("files", "none");
  if (log.file_bytes < kLogFileBytesLeast) return fields.field_error("file_bytes", "too small");
  if (log.rate > 0 && log.burst < kLogFileBytesLeast)
    return fields.field_error("burst", "too small");
  return log;
}

}  // namespace

std::optional<int> signal_number(std::string_view name) {
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int number = 1; number < NSIG; number++) {
    const char* const known = ::sigabbrev_np(number);
    if (known != nullptr && name == known) return number;
  }
  return std::nullopt;
}

std::string to_json(const LaunchSpec& launch) {
  Json json = {{"argv", texts_json(launch.argv)},
               {"env", texts_json(launch.env)},
               {"cwd", text_json(launch.cwd)},
               {"memory_limit", launch.memory_limit},
               {"cgroup", text_json(launch.cgroup)},
               {"log",
                {{"path", text_json(launch.log.path)},
                 {"file_bytes", launch.log.file_bytes},
                 {"files", launch.log.files},
                 {"rate", launch.log.rate},
                 {"burst", launch.log.burst}}},
               {"stop_signal", signal_name(launch.stop_signal)},
               {"marker", text_json(launch.marker)},
               {"lease", text_json(launch.lease)}};
  if (launch.user) {
    json["user"] = {
        {"uid", launch.user->uid}, {"gid", launch.user->gid}, {"groups", launch.user->groups}};
  }
  return file_text(json);
}

Result<LaunchSpec> parse_launch(std::string_view text) {
  FF_TRY(const JsonReader fields, JsonReader::parse(text, "launch.json"));
  LaunchSpec launch;
  FF_TRY(launch.argv, fields.strings("argv"));
  if (launch.argv.empty() || launch.argv[0].empty())
    return fields.field_error("argv", "no program");
  FF_TRY(launch.env, fields.strings("env"));
  for (const std::string& variable : launch.env) {
    if (!is_variable(variable)) return fields.field_error("env", "not all are NAME=value");
  }
  FF_TRY(launch.cwd, fields.text("cwd"));
  if (!launch.cwd.starts_with('/')) return fields.field_error("cwd", "not absolute");
  if (fields.has("user")) {
    FF_TRY(const JsonReader user, fields.object("user"));
    FF_TRY(launch.user, parse_user(user));
  }
  FF_TRY(launch.memory_limit, fields.number("memory_limit", INT64_MAX));
  FF_TRY(launch.cgroup, fields.text("cgroup"));
  for (const std::string_view part : split(launch.cgroup, '/')) {
    if (part == "..") return fields.field_error("cgroup", "leads upwards");
  }
  FF_TRY(const JsonReader log, fields.object("log"));
  FF_TRY(launch.log, parse_log(log));
  FF_TRY(const std::string name, fields.text("stop_signal"));
  const auto number = signal_number(name);
  if (!name.empty() && !number) return fields.field_error("stop_signal", "no name of a signal");
  launch.stop_signal = number.value_or(0);
  FF_TRY(launch.marker, fields.text("marker"));
  if (!launch.marker.empty() && !is_variable(launch.marker)) {
    return fields.field_error("marker", "not NAME=value");
  }
  FF_TRY(launch.lease, fields.text("lease"));
  if (!launch.lease.empty() && !launch.lease.starts_with('/')) {
    return fields.field_error("lease", "not absolute");
  }
  return launch;
}

}  // namespace ff::shim
