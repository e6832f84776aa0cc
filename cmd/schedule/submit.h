// The options that describe a task, shared by `ff schedule submit` and `run`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/schedule/client.h"

namespace ff::cmd {

struct SubmitOptions {
  std::vector<std::string> words;
  uint32_t nodes = 1;
  uint32_t processes = 1;
  std::string group = "default";
  std::optional<std::string> zone;
  std::vector<std::string> marks;
  std::string priority = "30";
  std::optional<std::string> name;
  std::optional<int64_t> limit_ns, min_run_ns;
  std::optional<std::string> restart;
  std::optional<uint64_t> restart_on;
  std::optional<std::string> signal;
  std::optional<uint64_t> memory;
  int64_t hang_ns = 1800 * kSecond;
  std::vector<std::string> env;
  bool no_inherit = false;
  std::optional<std::string> chdir;
  std::optional<std::string> user;
};
void declare_task(Command& command, SubmitOptions& options);
// The command that runs a shell script with the shell of its "#!" line, or with /bin/sh; arguments
// of the script may follow. Errc::usage: not a shell script, or too long for an argument.
Result<std::vector<std::string>> script_command(const std::string& script);

// Returns the id of the new task. Errc::usage: of the options, or from the scheduler.
Result<uint64_t> submit_task(SchedulerClient& client, const SubmitOptions& options);

// "USR1", "SIGUSR1", "10". Errc::usage.
Result<uint32_t> parse_signal(std::string_view text);
// "on-failure:3" -> 3. Errc::usage.
Result<uint32_t> parse_restart(std::string_view text);
// The environment that a task is submitted with: what it inherits from this process, then the
// variables of --env; each name once. `is_own`: the task runs as the user of this process. Only
// then does it inherit anything. Errc::usage.
Result<std::map<std::string, std::string>> task_environment(const SubmitOptions& options,
                                                            bool is_own);
// Whether a task of this process's user inherits this variable.
bool is_passed_on(std::string_view name, bool no_inherit);

}  // namespace ff::cmd
