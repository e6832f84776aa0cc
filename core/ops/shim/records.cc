// records.cc: the files `running` and `exit`.
//
//   {"ff_shim": 1, "shim": {"pid": 71, "start": 9034}, "rank": {"pid": 72, "start": 9036},
//    "boot": "0c3b…", "cgroup_kind": "v2", "cgroup": "/sys/fs/cgroup/ff/tasks/rank-71-9034",
//    "no_cgroup": "", "marker": "FF_TASK_RANK_OF=5f3a.12.1.0", "began_ns": 1795442619000000000}
//
//   {"ff_shim": 1, "ending": "ended", "status": 256, "why": "", "given_up": false,
//    "ended_ns": 1795442620000000000, "gone_ns": 1795442620000000000, "killed": 0,
//    "peak_memory": 73400320,
//    "peak_of_cgroup": true, "oom_killed": false, "log_dropped": 0}
//
// "peak_memory" and "oom_killed" are absent if unknown.
#include "ops/shim/records.h"

#include "ops/shim/json_reader.h"

namespace ff::shim {
namespace {

Json id_json(const ProcessId& id) { return {{"pid", id.pid}, {"start", id.start}}; }

Result<ProcessId> parse_id(const JsonReader& fields, const char* key) {
  FF_TRY(const JsonReader object, fields.object(key));
  FF_TRY(const uint64_t pid, object.number("pid", INT32_MAX));
  FF_TRY(const uint64_t start, object.number("start"));
  // kill(2) treats pid 0 as a process group.
  if (pid == 0) return object.field_error("pid", "no process");
  return ProcessId{static_cast<pid_t>(pid), start};
}

Result<int64_t> parse_time(const JsonReader& fields, const char* key) {
  FF_TRY(const uint64_t number, fields.number(key, INT64_MAX));
  return static_cast<int64_t>(number);
}

std::optional<ExitKind> parse_exit_kind(std::string_view name) {
  for (const ExitKind kind : {ExitKind::exited, ExitKind::not_started, ExitKind::lost}) {
    if (name == exit_kind_name(kind)) return kind;
  }
  return std::nullopt;
}

}  // namespace

std::string_view exit_kind_name(ExitKind kind) {
  switch (kind) {
    case ExitKind::exited: return "ended";
    case ExitKind::not_started: return "not_started";
    case ExitKind::lost: return "lost";
  }
  return "lost";
}

std::string to_json(const RunningRecord& running) {
  return file_text({{"shim", id_json(running.shim)},
                    {"rank", id_json(running.rank)},
                    {"boot", text_json(running.boot)},
                    {"cgroup_kind", cgroup_kind_name(running.cgroup_kind)},
                    {"cgroup", text_json(running.cgroup)},
                    {"no_cgroup", text_json(running.no_cgroup)},
                    {"marker", text_json(running.marker)},
                    {"began_ns", static_cast<uint64_t>(running.began_ns)}});
}

std::string to_json(const ExitRecord& exit) {
  Json json = {{"ending", exit_kind_name(exit.kind)},
               {"status", static_cast<uint64_t>(exit.status)},
               {"why", text_json(exit.why)},
               {"given_up", exit.abandoned},
               {"ended_ns", static_cast<uint64_t>(exit.ended_ns)},
               {"gone_ns", static_cast<uint64_t>(exit.gone_ns)},
               {"killed", exit.killed},
               {"peak_of_cgroup", exit.peak_of_cgroup},
               {"log_dropped", exit.log_dropped}};
  if (exit.peak_memory) json["peak_memory"] = *exit.peak_memory;
  if (exit.oom_killed) json["oom_killed"] = *exit.oom_killed;
  return file_text(json);
}

Result<RunningRecord> parse_running(std::string_view text) {
  FF_TRY(const JsonReader fields, JsonReader::parse(text, kRunningFile));
  RunningRecord running;
  FF_TRY(running.shim, parse_id(fields, "shim"));
  FF_TRY(running.rank, parse_id(fields, "rank"));
  FF_TRY(running.boot, fields.text("boot"));
  FF_TRY(const std::string kind, fields.text("cgroup_kind"));
  const auto known = cgroup_kind_of(kind);
  if (!known) return fields.field_error("cgroup_kind", "unknown");
  running.cgroup_kind = *known;
  FF_TRY(running.cgroup, fields.text("cgroup"));
  FF_TRY(running.no_cgroup, fields.text("no_cgroup"));
  FF_TRY(running.marker, fields.text("marker"));
  FF_TRY(running.began_ns, parse_time(fields, "began_ns"));
  return running;
}

Result<ExitRecord> parse_exit(std::string_view text) {
  FF_TRY(const JsonReader fields, JsonReader::parse(text, kExitFile));
  ExitRecord exit;
  FF_TRY(const std::string name, fields.text("ending"));
  const auto kind = parse_exit_kind(name);
  if (!kind) return fields.field_error("ending", "unknown");
  exit.kind = *kind;
  FF_TRY(const uint64_t status, fields.number("status", UINT16_MAX));
  exit.status = static_cast<int>(status);
  FF_TRY(exit.why, fields.text("why"));
  FF_TRY(exit.abandoned, fields.boolean("given_up"));
  FF_TRY(exit.ended_ns, parse_time(fields, "ended_ns"));
  FF_TRY(exit.gone_ns, parse_time(fields, "gone_ns"));
  FF_TRY(exit.killed, fields.number("killed"));
  FF_TRY(exit.peak_of_cgroup, fields.boolean("peak_of_cgroup"));
  FF_TRY(exit.log_dropped, fields.number("log_dropped"));
  if (fields.has("peak_memory")) {
    FF_TRY(exit.peak_memory, fields.number("peak_memory"));
  }
  if (fields.has("oom_killed")) {
    FF_TRY(exit.oom_killed, fields.boolean("oom_killed"));
  }
  return exit;
}

}  // namespace ff::shim
