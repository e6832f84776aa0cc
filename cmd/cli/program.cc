// Runs a command: selects it by link name or first word, prints help and version, parses, handles
// signals, runs it, and returns the exit code. Ctrl-C and SIGTERM ask the command to stop through
// its StopToken; a second Ctrl-C kills. If the reader of stdout closes it, the process dies by
// SIGPIPE, but only after the command has cleaned up.
#include <algorithm>
#include <csignal>
#include <cstdio>

#include "cmd/cli/build_info.h"
#include "cmd/cli/cli.h"
#include "cmd/cli/help_page.h"
#include "cmd/cli/parse.h"
#include "platform/base/clock.h"

namespace ff::cmd {
namespace {

using Commands = std::span<const std::unique_ptr<Command>>;

std::atomic<StopToken*> signalled_stop{nullptr};

void on_signal(int number) {
  StopToken* stop = signalled_stop.load();
  if (stop == nullptr || (number == SIGINT && stop->requested())) {
    // Blocked while this handler runs: it is delivered, and kills, on return.
    ::signal(number, SIG_DFL);
    ::raise(number);
    return;
  }
  stop->request();
}

// Forwards signals to `stop` during its lifetime.
class SignalScope {
 public:
  explicit SignalScope(StopToken& stop) {
    signalled_stop.store(&stop);
    ::signal(SIGPIPE, SIG_IGN);
    struct sigaction action {};
    action.sa_handler = on_signal;  // no SA_RESTART: waits end at once
    // One at a time: an interrupted first handler has not asked yet.
    for (const int number : {SIGINT, SIGTERM}) ::sigaddset(&action.sa_mask, number);
    for (const int number : {SIGINT, SIGTERM}) {
      struct sigaction old {};
      ::sigaction(number, nullptr, &old);
      // Ignored on purpose by the caller (nohup, a script's background job): stays so.
      if (old.sa_handler != SIG_IGN) ::sigaction(number, &action, nullptr);
    }
  }
  ~SignalScope() { signalled_stop.store(nullptr); }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;
};

const Command* find_command(Commands commands, std::string_view name) {
  for (const auto& command : commands) {
    if (command->name() == name) return command.get();
  }
  return nullptr;
}

// The selected command and its arguments, before its options are parsed.
struct Request {
  const Command* command = nullptr;   // null: ff itself
  std::vector<std::string> args;      // without the name of the command
  const ProgramLink* link = nullptr;  // the link of argv[0], if any
};

// The command a link is named after ("ff-validate", "validate"), or a link of its own
// ("mount.ff").
void find_by_link_name(Commands commands, std::string_view argv0, Request& request) {
  std::string_view name = argv0.substr(argv0.rfind('/') + 1);
  for (const auto& command : commands) {
    for (const ProgramLink& link : command->links()) {
      if (link.name != name) continue;
      request.command = command.get();
      request.link = &link;
      return;
    }
  }
  if (name.starts_with("ff-")) name.remove_prefix(3);
  request.command = find_command(commands, name);
}

Result<void> find_request(Commands commands, int argc, char** argv, Request& request) {
  request.args.assign(argv + std::min(argc, 1), argv + argc);
  find_by_link_name(commands, argc > 0 ? argv[0] : "ff", request);
  if (request.link != nullptr) {
    FF_TRY(request.args, request.link->arguments(std::move(request.args)));
    return {};
  }
  if (request.command == nullptr) {
    const auto word = std::find_if(request.args.begin(), request.args.end(),
                                   [](const std::string& arg) { return !arg.starts_with('-'); });
    if (word == request.args.end()) return {};
    request.command = find_command(commands, *word);
    if (request.command == nullptr) {
      std::vector<std::string> names;
      for (const auto& command : commands) names.push_back(command->name());
      return Error{Errc::usage, fmt::format("unknown command '{}'", *word),
                   suggestion(*word, names, "`ff -h` lists the commands.")};
    }
    request.args.erase(word);
  }
  return resolve_subcommand(request.command, request.args);
}

void print_version(Output& out) {
  const BuildInfo& info = kBuildInfo;
  out.line("ff {} ({}, {})", info.version, info.commit, info.type);
  out.data({{"version", info.version}, {"commit", info.commit}, {"build", info.type}});
}

// ff without a command: --version, -h, --help, or a usage error.
Result<void> run_bare(Output& out, Commands commands, const std::vector<std::string>& args) {
  CommonOptions common;
  const std::deque<Option> known = program_options(common);
  for (const std::string& arg : args) {
    const bool fine = std::any_of(known.begin(), known.end(), [&arg](const Option& option) {
      return arg == option.long_name() || arg == option.short_name();
    });
    if (!fine) {
      std::vector<std::string> names;
      for (const Option& option : known) names.push_back(option.long_name());
      return Error{Errc::usage, fmt::format("unknown option {}", arg),
                   suggestion(arg, names, "`ff -h` lists the options.")};
    }
  }
  if (has_word(args, "--version")) {
    print_version(out);
  } else if (has_word(args, "--help") || has_word(args, "-h")) {
    const bool full = has_word(args, "--help");
    const std::string page = top_help_page(commands, full ? HelpForm::full : HelpForm::brief);
    out.raw_text(page);
    out.data({{"help", page}});
  } else {
    return Error{Errc::usage, "a command is missing", "`ff -h` lists the commands."};
  }
  return {};
}

void print_help(Output& out, const Command& command, HelpForm form) {
  const std::string page = help_page(command, form);
  out.raw_text(page);
  out.data({{"help", page}});
}

Result<void> run_command(Output& out, StopToken& stop, Commands commands, const Command& command) {
  FF_CHECK(command.action() != nullptr);
  Session session{out, stop, commands};
  return command.action()(session);
}

// The exit code, or death by SIGPIPE when that is what happened.
int end(Output& out, const Result<void>& result, const ProgramLink* link) {
  int exit = out.finish(result);
  if (out.broken_pipe()) {
    ::signal(SIGPIPE, SIG_DFL);
    ::raise(SIGPIPE);
  }
  if (exit != 0 && link != nullptr) {
    exit = link->exit_code(result ? Errc::failed : result.error().code);
  }
  return exit;
}

}  // namespace

int run_program(std::span<const CommandEntry> entries, int argc, char** argv) {
  const std::vector<std::unique_ptr<Command>> commands = declare_all(entries);
  Request request;
  Result<void> found = find_request(commands, argc, argv, request);
  if (found && request.command != nullptr) insert_option_end(request.command->leaf(), request.args);
  const std::vector<std::string>& args = request.args;

  CommonOptions common;
  // Known before parsing, so that a usage error too is an envelope.
  common.mode.json = has_word(args, "--json");
  const std::string path = request.command == nullptr ? "" : request.command->leaf().path();
  SystemClock clock;
  if (!found || request.command == nullptr) {
    Output out(path, common.mode);
    StopToken stop(clock);
    const SignalScope signals(stop);
    return end(out, found ? run_bare(out, commands, args) : std::move(found), request.link);
  }
  Result<void> parsed;
  const bool full_help = has_word(args, "--help");
  common.help = full_help || has_word(args, "-h");
  const Command& command = common.help ? *request.command : request.command->leaf();
  if (!common.help) {
    const bool json = common.mode.json;
    parsed = parse(command, args, commands, common);
    if (!parsed) common.mode.json |= json;
  }
  Output out(path, common.mode);
  out.set_failure_exit(command.failure_exit());
  const int64_t limit_ns = command.timeout_ns();
  StopToken stop(clock, limit_ns > 0 ? clock.steady_ns() + limit_ns : 0);
  out.set_stop_token(stop);
  const SignalScope signals(stop);
  if (parsed && common.help) {
    print_help(out, command, full_help ? HelpForm::full : HelpForm::brief);
  } else if (parsed) {
    parsed = run_command(out, stop, commands, command);
  }
  return end(out, parsed, request.link);
}

}  // namespace ff::cmd
