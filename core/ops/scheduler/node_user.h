// Looks up the user of a task in the user databases of this node (files, LDAP, SSSD). It runs
// getent(1), since a static program cannot load NSS modules. Also checks that the user can enter
// the working directory of the task.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/scheduler/attempt_record.h"
#include "ops/shim/launch.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"

namespace ff::scheduler {

// Limit of each function, also where a database or a file system hangs.
constexpr int64_t kLookupTimeoutNs = 10 * kSecond;

struct NodeUser {
  shim::RankUser ids;  // with the primary and the supplementary groups
  LoginAccount login;
};
// Errc::not_found: unknown user; failed: getent could not run.
Result<NodeUser> find_user(uint32_t uid, Clock& clock);
// The same without groups.
Result<LoginAccount> find_login(uint32_t uid, Clock& clock);

// Checks as that user (null: as this process) that the directory can be entered. Errors name the
// directory and the cause.
Result<void> check_dir_access(const shim::RankUser* user, const std::string& folder, Clock& clock);

// Parse one line of getent, without the newline. Nothing: malformed.
//   passwd      "ada:x:1000:100:Ada:/home/ada:/bin/sh"
//   initgroups  "ada                  4 24 27"
struct PasswdLine {
  std::string name;
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::string home = "/";  // as login(1) sets them where the line names none
  std::string shell = "/bin/sh";
};
std::optional<PasswdLine> parse_passwd(std::string_view line);
std::optional<std::vector<uint32_t>> parse_groups(std::string_view line, std::string_view name);

}  // namespace ff::scheduler
