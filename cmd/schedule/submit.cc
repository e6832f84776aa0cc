// `ff schedule submit`: options of a task, and its submission.
#include "cmd/schedule/submit.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>

#include "cmd/cli/cancel_on_stop.h"
#include "cmd/options/acting_user.h"
#include "cmd/schedule/schedule.h"
#include "platform/base/system_loop.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/pipe.h"
#include "platform/io/system_disk.h"
#include "storage/client/mode.h"

namespace ff::cmd {
namespace {

using scheduler::wire::Owner;
using scheduler::wire::Spec;
using scheduler::wire::SubmitRequest;

constexpr size_t kOnceBytes = 16;
constexpr int kSignals = 64;
constexpr uint64_t kCodesMost = 255;
constexpr std::string_view kStandardInput = "-";
constexpr const char* kScriptName = "stdin";        // $0 of a script, and name of its task
constexpr size_t kScriptBytesMax = 128 * kKiB - 1;  // of an argument, without its final zero
constexpr std::string_view kShells[] = {"sh", "bash", "dash", "ksh", "zsh"};

// With --no-inherit: variables that programs need for paths and languages.
constexpr std::string_view kNeeded[] = {"PATH", "HOME", "USER", "LANG", "TERM"};
// Not inherited: secrets of ff or their paths; the address of the scheduler; and variables of an
// enclosing task.
constexpr std::string_view kWithheld[] = {"FF_TOKEN", "FF_KEY", "FF_SCHEDULER", "FF_TASK",
                                          "FF_ATTEMPT"};
constexpr std::string_view kSecretWords[] = {"SECRET", "TOKEN", "PASSWORD", "_KEY"};
// Not inherited either, by their first letters: what belongs to a session or a service on this
// machine. On a node these name nothing, or hand on credentials (agents, systemd).
constexpr std::string_view kOfThisMachine[] = {
    "SSH_AUTH_SOCK",   "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR", "XDG_SESSION_",  "SUDO_",          "CREDENTIALS_DIRECTORY",
    "NOTIFY_SOCKET",   "LISTEN_FDS",    "LISTEN_PID",     "LISTEN_FDNAMES",
    "WATCHDOG_",       "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID"};

Error bad(const std::string& option, std::string_view value, std::string_view says) {
  return fail(Errc::usage, "{} {}: {}", option, value, says);
}

Result<void> check_pair(const std::string& option, const std::string& pair) {
  const size_t equals = pair.find('=');
  if (equals != pair.npos && equals > 0) return {};
  return bad(option, "'" + printable(pair) + "'", "expected NAME=VALUE");
}

Result<std::string> task_folder(const SubmitOptions& options) {
  char* const current = ::get_current_dir_name();
  if (current == nullptr) return errno_error(errno, "the current folder");
  std::string here = current;
  std::free(current);
  if (!options.chdir) return here;
  return options.chdir->starts_with('/') ? *options.chdir : io::join(here, *options.chdir);
}

// Reads the script of "-" to its end.
Result<std::string> read_script(const StopToken& stop) {
  SystemLoop loop(stop.clock());
  // One byte more, so that script_command() refuses what is longer.
  auto reading = io::read_pipe(loop, STDIN_FILENO, kScriptBytesMax + 1);
  return run_task(loop, cancel_on_stop(loop, stop, std::move(reading)));
}

Result<Spec> make_spec(const StopToken& stop, const SubmitOptions& options, bool is_own) {
  Spec spec;
  spec.set_name(options.name.value_or(""));
  auto words = options.words;
  if (words.front() == kStandardInput) {
    FF_TRY(const std::string script, read_script(stop));
    FF_TRY(auto command, script_command(script));
    words.erase(words.begin());
    words.insert(words.begin(), command.begin(), command.end());
    if (!options.name) spec.set_name(kScriptName);
  }
  for (const std::string& word : words) spec.add_argv(word);
  FF_TRY(const auto variables, task_environment(options, is_own));
  for (const auto& [name, value] : variables) spec.add_env(name + "=" + value);
  FF_TRY(const std::string cwd, task_folder(options));
  spec.set_cwd(cwd);
  spec.set_nodes(options.nodes);
  spec.set_processes(options.processes);
  spec.set_group(options.group);
  spec.set_zone(options.zone.value_or(""));
  for (const std::string& mark : options.marks) {
    FF_TRY(check_pair("--label", mark));
    spec.add_marks(mark);
  }
  if (options.priority != "auto") {
    spec.set_priority(static_cast<uint32_t>(*parse_u64(options.priority)));
  }
  spec.set_limit(options.limit_ns.value_or(0));
  spec.set_min_run(options.min_run_ns.value_or(0));
  if (options.restart) {
    FF_TRY(const uint32_t restarts, parse_restart(*options.restart));
    spec.set_restarts(restarts);
  }
  if (options.restart_on) {
    if (*options.restart_on == 0 || *options.restart_on > kCodesMost) {
      return bad("--restart-on", fmt::to_string(*options.restart_on), "expected 1 to 255");
    }
    spec.set_restart_on(static_cast<uint32_t>(*options.restart_on));
  }
  if (options.signal) {
    FF_TRY(const uint32_t wanted, parse_signal(*options.signal));
    spec.set_signal(wanted);
  }
  spec.set_memory(options.memory.value_or(0));
  spec.set_hang(options.hang_ns);
  return spec;
}

// `token_user`: with a token, its user. Then the scheduler sets the owner to that user, and its
// nodes look up the groups.
Result<Owner> task_owner(const SubmitOptions& options, std::optional<uint32_t> token_user) {
  Owner owner;
  if (options.user && token_user) {
    return bad("--user", printable(*options.user),
               "with a token, ff submits for the user of that token");
  }
  if (token_user) {
    owner.set_uid(*token_user);
    return owner;
  }
  io::SystemDisk disk;
  meta::Caller caller = process_caller();
  if (options.user) {
    auto user = client::parse_owner(disk, *options.user);
    if (!user || !user->uid || user->gid) {
      return bad("--user", printable(*options.user), "this machine has no such user");
    }
    caller = {.uid = *user->uid, .gid = *user->uid, .groups = {}};
  }
  if (caller.uid == 0) {
    Error error = fail(Errc::refused, "root cannot own tasks");
    error.hint = "Name the user with --user, or submit as that user.";
    return error;
  }
  owner.set_uid(caller.uid);
  owner.set_gid(caller.gid);
  for (const uint32_t group : caller.groups) owner.add_groups(group);
  owner.set_name(client::AccountNames(disk).user(caller.uid));
  return owner;
}

constexpr std::string_view kTaskOptions = "Task options";

struct SubmitCommand {
  ScheduleOptions schedule;
  SubmitOptions task;
};

Result<void> run_submit(Session& session, const SubmitCommand& options, int64_t timeout_ns) {
  FF_TRY(const auto client, SchedulerClient::open(session, options.schedule, timeout_ns));
  FF_TRY(const uint64_t id, submit_task(*client, options.task));
  session.out.line("{}", id);
  session.out.data({{"task", id}});
  if (session.out.stdout_is_terminal()) {
    session.out.note(
        "to see why it waits: ff schedule explain {}; to follow its output: ff schedule logs -f {}",
        id, id);
  }
  return {};
}

}  // namespace

bool is_passed_on(std::string_view name, bool no_inherit) {
  if (no_inherit) return std::ranges::find(kNeeded, name) != std::ranges::end(kNeeded);
  const auto begins = [&](std::string_view part) { return name.starts_with(part); };
  if (std::ranges::any_of(kOfThisMachine, begins)) return false;
  if (!name.starts_with("FF_")) return true;
  const auto contains = [&](std::string_view part) { return name.find(part) != name.npos; };
  return !std::ranges::any_of(kWithheld, begins) && !std::ranges::any_of(kSecretWords, contains);
}

Result<std::map<std::string, std::string>> task_environment(const SubmitOptions& options,
                                                            bool is_own) {
  std::map<std::string, std::string> all;
  for (char** at = environ; is_own && at != nullptr && *at != nullptr; at++) {
    const std::string pair = *at;
    const size_t equals = pair.find('=');
    if (equals == pair.npos || equals == 0) continue;
    const std::string name = pair.substr(0, equals);
    if (is_passed_on(name, options.no_inherit)) all[name] = pair.substr(equals + 1);
  }
  for (const std::string& pair : options.env) {
    FF_TRY(check_pair("--env", pair));
    const size_t equals = pair.find('=');
    all[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return all;
}

Result<std::vector<std::string>> script_command(const std::string& script) {
  if (script.find_first_not_of(" \t\r\n") == script.npos) {
    return fail(Errc::usage, "the script on standard input is empty");
  }
  const auto only = [](std::string message) {
    return Error{Errc::usage, std::move(message),
                 "Store the script where all nodes can read it, and submit its path."};
  };
  if (script.size() > kScriptBytesMax) {
    return only(
        fmt::format("the script on standard input has more than {} bytes", kScriptBytesMax));
  }
  std::vector<std::string> command;
  if (script.starts_with("#!")) {
    const std::string_view line =
        std::string_view(script).substr(2, script.find_first_of("\r\n") - 2);
    for (const std::string_view word : split(line, ' ')) {
      if (!word.empty()) command.emplace_back(word);
    }
  } else {
    command = {"/bin/sh"};
  }
  const bool by_env = command.size() > 1 && command[0].ends_with("/env");
  const std::string_view shell = command.empty() ? std::string_view() : command[by_env ? 1 : 0];
  const std::string_view name = shell.substr(shell.rfind('/') + 1);
  if (std::ranges::find(kShells, name) == std::ranges::end(kShells)) {
    return only(
        fmt::format("the script on standard input is for '{}'; only scripts for {} can be "
                    "read from there",
                    printable(shell), fmt::join(kShells, ", ")));
  }
  command.insert(command.end(), {"-c", script, kScriptName});
  return command;
}

Result<uint32_t> parse_signal(std::string_view text) {
  uint32_t found = 0;
  if (const auto number = parse_u64(text)) {
    if (*number > 0 && *number <= kSignals) found = static_cast<uint32_t>(*number);
  } else {
    const std::string_view name = text.starts_with("SIG") ? text.substr(3) : text;
    for (int one = 1; one < kSignals && found == 0; one++) {
      const char* const known = ::sigabbrev_np(one);
      if (known != nullptr && name == known) found = static_cast<uint32_t>(one);
    }
  }
  if (found == 0)
    return bad("--signal", printable(text),
               "unknown signal; expected a name such as USR1, or a number");
  if (found == SIGKILL || found == SIGSTOP) {
    return bad("--signal", printable(text), "a program cannot handle this signal");
  }
  return found;
}

Result<uint32_t> parse_restart(std::string_view text) {
  constexpr std::string_view kOnFailure = "on-failure:";
  constexpr uint64_t kRestartsMax = 1'000'000;
  if (text.starts_with(kOnFailure)) {
    const auto times = parse_u64(text.substr(kOnFailure.size()));
    if (times && *times <= kRestartsMax) return static_cast<uint32_t>(*times);
  }
  return bad("--restart", "'" + printable(text) + "'",
             "expected on-failure:N, such as on-failure:3");
}

Result<uint64_t> submit_task(SchedulerClient& client, const SubmitOptions& options) {
  SubmitRequest request;
  FF_TRY(*request.mutable_owner(), task_owner(options, client.token_user()));
  const bool is_own = request.owner().uid() == ::geteuid();
  FF_TRY(*request.mutable_spec(), make_spec(client.session().stop, options, is_own));
  // The same key in each attempt: a lost reply must not create two tasks.
  std::string once;
  while (once.size() < kOnceBytes) {
    const uint64_t bits = client.rng().next();
    once.append(reinterpret_cast<const char*>(&bits), sizeof bits);
  }
  request.set_once(once);
  FF_TRY(const auto reply, client.call(scheduler::kSubmit, request));
  return reply.task();
}

void declare_task(Command& command, SubmitOptions& options) {
  command.takes_command_line();
  command.argument("CMD", text(options.words, "CMD"),
                   "The program and its arguments, which no shell interprets; or '-' and arguments "
                   "of a shell script on standard input");
  const auto option = [&command](std::string names, Binding binding,
                                 std::string description) -> Option& {
    return command.option(std::move(names), std::move(binding), std::move(description))
        .section(kTaskOptions);
  };
  option("-n,--nodes", number(options.nodes), "Number of whole nodes; the task gets all or none");
  option("--nproc", number(options.processes), "Processes per node; each is a rank");
  option("--partition", text(options.group, "NAME"), "Partition of the nodes")
      .alias("--group")
      .alias("-g");
  option("--zone", text(options.zone, "ZONE"), "Use only nodes of this zone");
  option("--label", text(options.marks, "NAME=VALUE"), "Use only nodes with this label")
      .alias("--mark");
  option("-p,--priority", choice(options.priority, {"50", "40", "30", "20", "10", "0", "auto"}),
         "A task preempts tasks of lower priority; auto is the highest that the user's quota "
         "allows");
  option("--name", text(options.name, "NAME"), "Name in lists; without it the command");
  option("--time", duration(options.limit_ns),
         "Stop the task after this run time; with a limit, the scheduler may start it earlier in a "
         "gap");
  option("--min-run", duration(options.min_run_ns),
         "Do not preempt the task before it has run this long");
  option("--restart", text(options.restart, "on-failure:N"),
         "Restart the task after a failure, at most N times; after a preemption or the loss of a "
         "node the scheduler always restarts it");
  option("--restart-on", number(options.restart_on),
         "Exit code with which a rank asks for a restart; such an exit is not a failure");
  option("--signal", text(options.signal, "SIGNAL"),
         "Also send this signal, such as USR1 or 10, to the first process of each rank with a "
         "request to stop");
  option("--memory", size(options.memory), "Memory limit of each rank");
  option("--hang", duration(options.hang_ns),
         "Fail the task when no rank prints or sends a heartbeat for this long; 0s disables this");
  option("-e,--env", text(options.env, "NAME=VALUE"),
         "Set a variable in the environment of the task");
  command
      .flag("--no-inherit", options.no_inherit,
            "Pass on only PATH, HOME, USER, LANG and TERM of this environment, and nothing to the "
            "task of another user")
      .section(kTaskOptions);
  option("--chdir", dir(options.chdir),
         "Directory of the task on its nodes; without it the current directory");
  option("--user", text(options.user, "USER"),
         "Submit the task for this user, a name of this machine or a number; requires the cluster "
         "key. The task of another user inherits nothing of this environment");
}

void declare_schedule_submit(Command& submit) {
  auto& options = submit.keep<SubmitCommand>();
  submit.about(
      "Puts a task into the queue and prints its id. The task runs CMD on all of its nodes, in the "
      "current directory. Options end at CMD, with or without '--' before it. If CMD is '-', ff "
      "reads a shell script from standard input and stores it with the task; its first line names "
      "the shell ('#!/bin/bash'), otherwise /bin/sh runs it.\n\nA task of your "
      "own user inherits the environment of this command, except for variables that name keys, "
      "tokens or the scheduler of ff, or that belong to a session of this machine (SSH_AUTH_SOCK, "
      "XDG_RUNTIME_DIR, SUDO_USER and the like). The task of another user (--user, or a token of "
      "another user) inherits nothing: it gets the variables of --env only. Each node then sets "
      "HOME, USER, LOGNAME and SHELL from its own user database, and a default PATH, unless the "
      "task has them already. The scheduler stores the environment until it forgets the task, and "
      "shows it to the owner and to operators: pass secrets in files.\n\nWhen the scheduler "
      "preempts a task, it asks the task to stop (with the file 'stop' in $FF_TASK_DIR). The task "
      "has 30 seconds to acknowledge and 5 minutes to save; the scheduler restarts it later under "
      "the same id.\n\nIf the connection is lost, ff sends the request again; the scheduler still "
      "creates only one task.");
  declare_task(submit, options.task);
  declare_scheduler(submit, options.schedule);
  submit.example("ff schedule submit -n 4 --partition h200 python train.py --lr 3e-4",
                 "a task on four nodes");
  submit.example("id=$(ff schedule submit --time 2h ./evaluate.sh)", "in a script");
  submit.example("ff schedule submit -n 4 - <train.sh", "a script from standard input");
  submit.example("ff schedule submit -p 10 --restart on-failure:3 -- sh -c './sweep | tee log'",
                 "a pipe needs a shell");
  submit.blocking(kScheduleNs);
  submit.run([&options, &submit](Session& session) {
    return run_submit(session, options, submit.timeout_ns());
  });
}

}  // namespace ff::cmd
