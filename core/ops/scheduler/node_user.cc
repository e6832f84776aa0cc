// node_user.cc: getent(1), and a child process that tries to enter a directory.
#include "ops/scheduler/node_user.h"

#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "ops/validate/program.h"
#include "platform/base/bytes.h"
#include "platform/base/text.h"

namespace ff::scheduler {
namespace {

constexpr int64_t kUserPollNs = 5 * kMillisecond;
constexpr int kUnknownKeyExit = 2;  // getent's exit code
constexpr size_t kOutputMost = 64 * kKiB;
constexpr size_t kHomeField = 5, kShellField = 6;  // of passwd(5)
constexpr int kExitCodeMax = 255;                  // an exit code holds no more

std::optional<uint32_t> parse_id(std::string_view text) {
  const auto number = parse_u64(text);
  // The kernel reserves the last id for "unchanged".
  if (!number || *number >= UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

// The printed line; nothing: no such entry.
Result<std::optional<std::string>> run_getent(const std::string& table, const std::string& key,
                                              Clock& clock) {
  auto getent = validate::run_program("getent", {table, key}, clock, kLookupTimeoutNs, kOutputMost);
  if (!getent) {
    return Error{Errc::failed, getent.error().message,
                 "The agent finds users with getent(1): install it (libc-bin), or set PATH."};
  }
  if (getent->hung) {
    return fail(Errc::failed, "getent {} {} did not answer in {} s", table, key,
                kLookupTimeoutNs / kSecond);
  }
  if (WIFEXITED(getent->status) && WEXITSTATUS(getent->status) == kUnknownKeyExit) {
    return std::optional<std::string>();
  }
  if (!getent->ended_well()) return fail(Errc::failed, "getent {} {} failed", table, key);
  return std::optional(getent->output.substr(0, getent->output.find('\n')));
}

Result<PasswdLine> find_entry(uint32_t uid, Clock& clock) {
  FF_TRY(const auto line, run_getent("passwd", fmt::to_string(uid), clock));
  if (!line) {
    return fail(Errc::not_found, "this node has no user with uid {}", uid);
  }
  const auto entry = parse_passwd(*line);
  // A name of digits may look like the uid of another user.
  if (!entry || entry->uid != uid) {
    return fail(Errc::failed, "getent printed for user {}: {}", uid, printable(*line));
  }
  return *entry;
}

// Runs in the child: it must not allocate, since another thread may have held the malloc lock.
[[noreturn]] void enter(const shim::RankUser* user, const gid_t* groups, size_t count,
                        const char* folder) {
  const bool became = user == nullptr || (::setgroups(count, groups) == 0 &&
                                          ::setresgid(user->gid, user->gid, user->gid) == 0 &&
                                          ::setresuid(user->uid, user->uid, user->uid) == 0);
  if (became && ::chdir(folder) == 0) ::_exit(0);
  ::_exit(std::clamp(errno, 1, kExitCodeMax));
}

}  // namespace

std::optional<PasswdLine> parse_passwd(std::string_view line) {
  const auto parts = split(line, ':');
  if (parts.size() < 4 || parts[0].empty()) return std::nullopt;
  const auto uid = parse_id(parts[2]);
  const auto gid = parse_id(parts[3]);
  if (!uid || !gid) return std::nullopt;
  PasswdLine entry{.name = std::string(parts[0]), .uid = *uid, .gid = *gid};
  if (parts.size() > kHomeField && !parts[kHomeField].empty()) entry.home = parts[kHomeField];
  if (parts.size() > kShellField && !parts[kShellField].empty()) entry.shell = parts[kShellField];
  return entry;
}

std::optional<std::vector<uint32_t>> parse_groups(std::string_view line, std::string_view name) {
  if (!line.starts_with(name)) return std::nullopt;
  std::vector<uint32_t> groups;
  for (const std::string_view word : split(line.substr(name.size()), ' ')) {
    if (word.empty()) continue;
    const auto group = parse_id(word);
    if (!group) return std::nullopt;
    groups.push_back(*group);
  }
  return groups;
}

Result<NodeUser> find_user(uint32_t uid, Clock& clock) {
  FF_TRY(const PasswdLine entry, find_entry(uid, clock));
  NodeUser user{.ids = {.uid = uid, .gid = entry.gid},
                .login = {.name = entry.name, .home = entry.home, .shell = entry.shell}};
  FF_TRY(const auto listed, run_getent("initgroups", entry.name, clock));
  const auto groups = parse_groups(listed.value_or(entry.name), entry.name);
  if (!groups) {
    return fail(Errc::failed, "getent printed for the groups of {}: {}", printable(entry.name),
                printable(*listed));
  }
  user.ids.groups = *groups;
  if (std::ranges::find(user.ids.groups, user.ids.gid) == user.ids.groups.end()) {
    user.ids.groups.push_back(user.ids.gid);
  }
  return user;
}

Result<LoginAccount> find_login(uint32_t uid, Clock& clock) {
  FF_TRY(const PasswdLine entry, find_entry(uid, clock));
  return LoginAccount{.name = entry.name, .home = entry.home, .shell = entry.shell};
}

Result<void> check_dir_access(const shim::RankUser* user, const std::string& folder, Clock& clock) {
  std::vector<gid_t> groups;
  if (user != nullptr) groups.assign(user->groups.begin(), user->groups.end());
  const pid_t pid = ::fork();
  if (pid == 0) enter(user, groups.data(), groups.size(), folder.c_str());
  if (pid < 0) return errno_error(errno, "a process cannot be made");
  const int64_t end_ns = clock.steady_ns() + kLookupTimeoutNs;
  int status = 0;
  pid_t ended = 0;
  for (;;) {
    ended = ::waitpid(pid, &status, WNOHANG);
    if (ended != 0 && !(ended < 0 && errno == EINTR)) break;
    if (clock.steady_ns() >= end_ns) {
      // A child that hangs in the kernel cannot be killed; do not wait for it.
      ::kill(pid, SIGKILL);
      (void)::waitpid(pid, &status, WNOHANG);
      return fail(Errc::failed, "{}: hangs", printable(folder));
    }
    clock.sleep_ns(kUserPollNs);
  }
  if (ended == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const int err = ended == pid && WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
  const std::string who = user == nullptr ? "" : fmt::format(" (as user {})", user->uid);
  return errno_error(err, printable(folder) + who);
}

}  // namespace ff::scheduler
