// Who a task's user is on this node: the tables of users are the node's own (files, LDAP, SSSD), so
// getent(1) is asked, which a static program cannot do itself. And whether that user can enter the
// folder that the task is to run in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/shim/launch.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"

namespace ff::scheduler {

// Each of these blocks for some seconds at most, also where a table or a file system hangs.
constexpr int64_t kAskNs = 10 * kSecond;

// The uid with its group and the groups that it is in. Errc::not_found: nobody knows it here;
// failed: nobody could be asked.
Result<shim::User> find_user(uint32_t uid, Clock& clock);

// As that user, or as this process itself. Errors name the folder and the cause.
Result<void> check_folder(const shim::User* user, const std::string& folder, Clock& clock);

// Of getent's lines, without their newlines. Nothing: it is none.
//   passwd      "ada:x:1000:100:Ada:/home/ada:/bin/sh"
//   initgroups  "ada                  4 24 27"
struct PasswdLine {
  std::string name;
  uint32_t uid = 0;
  uint32_t gid = 0;
};
std::optional<PasswdLine> parse_passwd(std::string_view line);
std::optional<std::vector<uint32_t>> parse_groups(std::string_view line, std::string_view name);

}  // namespace ff::scheduler
