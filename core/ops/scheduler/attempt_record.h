// `attempt.json` in the folder of an attempt: what the agent stores before anything of the attempt
// starts, and reads again after a restart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ops/shim/launch.h"
#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::scheduler {

// What a node's user database says about the login of a user (passwd(5)).
struct LoginAccount {
  std::string name, home, shell;
  bool operator==(const LoginAccount&) const = default;
};

struct AttemptRecord {
  std::string scheduler = {};  // id of the scheduler that owns it
  uint64_t task = 0;
  uint32_t attempt = 0;
  uint32_t node_rank = 0;
  uint32_t processes = 1;
  uint32_t port = 0;                        // MASTER_PORT, reserved on the first node; else 0
  uint32_t uid = 0;                         // the owner of the task, who may read its logs
  std::optional<shim::RankUser> user = {};  // credentials of the ranks; nothing: those of the agent
  std::optional<LoginAccount> login = {};   // of that uid; nothing: unknown here
  std::string boot = {};                    // boot id of the kernel

  // "12.1"
  std::string name() const;
};

constexpr const char* kAttemptFile = "attempt.json";
constexpr uint64_t kAttemptRecordBytesMax = kMiB;  // bytes of the file

std::string to_json(const AttemptRecord& record);
// Errors: corrupt, newer_format.
Result<AttemptRecord> parse_attempt(std::string_view text);

// TASK.ATTEMPT, the name of its folders.
struct AttemptName {
  uint64_t task = 0;
  uint32_t attempt = 0;
  auto operator<=>(const AttemptName&) const = default;
};
std::string text_of(const AttemptName& name);
std::optional<AttemptName> parse_attempt_name(std::string_view text);

}  // namespace ff::scheduler
