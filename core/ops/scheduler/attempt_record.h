// What an agent writes down of an attempt before anything of it starts: `attempt.json` in the
// attempt's folder, from which it goes on after it was killed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ops/shim/launch.h"
#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::scheduler {

struct AttemptRecord {
  std::string scheduler = {};  // whose it is
  uint64_t task = 0;
  uint32_t attempt = 0;
  uint32_t node_rank = 0;
  uint32_t processes = 1;
  uint32_t port = 0;                    // of the gang, on the first node; else 0
  uint32_t uid = 0;                     // its owner, who may read its logs
  std::optional<shim::User> user = {};  // that ranks become; nothing: they stay the agent's
  std::string boot = {};                // of the kernel

  // "12.1"
  std::string name() const;
};

constexpr const char* kAttemptFile = "attempt.json";
constexpr uint64_t kAttemptRecordMost = kMiB;  // bytes of the file

std::string to_json(const AttemptRecord& record);
// Errors: corrupt, newer_format.
Result<AttemptRecord> parse_attempt(std::string_view text);

// TASK.ATTEMPT, as its folders are called.
struct AttemptName {
  uint64_t task = 0;
  uint32_t attempt = 0;
  auto operator<=>(const AttemptName&) const = default;
};
std::string text_of(const AttemptName& name);
std::optional<AttemptName> parse_attempt_name(std::string_view text);

}  // namespace ff::scheduler
