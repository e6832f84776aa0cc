// attempt_record.cc: attempt.json, in the format of the files of shims (shim/json_reader.h).
//
//   {"ff_shim": 1, "scheduler": "9f…", "task": 12, "attempt": 1, "node_rank": 0, "processes": 2,
//    "port": 23450, "uid": 1000, "user": {"uid": 1000, "gid": 1000, "groups": [44]},
//    "login": {"name": "ada", "home": "/home/ada", "shell": "/bin/bash"}, "boot": "3f…"}
//
// "user" and "login" may be absent.
#include "ops/scheduler/attempt_record.h"

#include "ops/shim/json_reader.h"
#include "platform/base/text.h"
#include "training/task/agent_task_dir.h"

namespace ff::scheduler {

std::string text_of(const AttemptName& name) {
  return fmt::format("{}.{}", name.task, name.attempt);
}

std::optional<AttemptName> parse_attempt_name(std::string_view text) {
  const auto parts = split(text, '.');
  if (parts.size() != 2) return std::nullopt;
  const auto task = parse_u64(parts[0]);
  const auto attempt = parse_u64(parts[1]);
  if (!task || !attempt || *attempt > UINT32_MAX) return std::nullopt;
  const AttemptName name{*task, static_cast<uint32_t>(*attempt)};
  if (text_of(name) != text) return std::nullopt;
  return name;
}

std::string AttemptRecord::name() const {
  const AttemptName own{task, attempt};
  return text_of(own);
}

std::string to_json(const AttemptRecord& record) {
  shim::Json json = {{"scheduler", shim::text_json(record.scheduler)},
                     {"task", record.task},
                     {"attempt", record.attempt},
                     {"node_rank", record.node_rank},
                     {"processes", record.processes},
                     {"port", record.port},
                     {"uid", record.uid},
                     {"boot", shim::text_json(record.boot)}};
  if (record.user) {
    json["user"] = {
        {"uid", record.user->uid}, {"gid", record.user->gid}, {"groups", record.user->groups}};
  }
  if (record.login) {
    json["login"] = {{"name", shim::text_json(record.login->name)},
                     {"home", shim::text_json(record.login->home)},
                     {"shell", shim::text_json(record.login->shell)}};
  }
  return shim::file_text(json);
}

Result<AttemptRecord> parse_attempt(std::string_view text) {
  FF_TRY(const shim::JsonReader fields, shim::JsonReader::parse(text, kAttemptFile));
  AttemptRecord record;
  const auto small = [&fields](const char* key, uint32_t& into) -> Result<void> {
    FF_TRY(const uint64_t number, fields.number(key, UINT32_MAX));
    into = static_cast<uint32_t>(number);
    return {};
  };
  FF_TRY(record.scheduler, fields.text("scheduler"));
  FF_TRY(record.task, fields.number("task"));
  FF_TRY(small("attempt", record.attempt));
  FF_TRY(small("node_rank", record.node_rank));
  FF_TRY(small("processes", record.processes));
  if (record.processes == 0 || record.processes > task::kNodeRanksMax) {
    return fields.field_error("processes", "none, or too many");
  }
  FF_TRY(small("port", record.port));
  FF_TRY(small("uid", record.uid));
  FF_TRY(record.boot, fields.text("boot"));
  if (fields.has("user")) {
    FF_TRY(const shim::JsonReader user, fields.object("user"));
    FF_TRY(const uint64_t uid, user.number("uid", UINT32_MAX));
    FF_TRY(const uint64_t gid, user.number("gid", UINT32_MAX));
    FF_TRY(const auto groups, user.numbers("groups", UINT32_MAX));
    record.user = {.uid = static_cast<uint32_t>(uid), .gid = static_cast<uint32_t>(gid)};
    for (const uint64_t group : groups) {
      record.user->groups.push_back(static_cast<uint32_t>(group));
    }
  }
  if (fields.has("login")) {
    FF_TRY(const shim::JsonReader login, fields.object("login"));
    record.login.emplace();
    FF_TRY(record.login->name, login.text("name"));
    FF_TRY(record.login->home, login.text("home"));
    FF_TRY(record.login->shell, login.text("shell"));
  }
  return record;
}

}  // namespace ff::scheduler
