// Declaration of commands. A command is one file that declares a table (names, values,
// descriptions, where a value may be configured) and a function to run; parsing, `-h`, manual
// pages, completions, configuration and `ff help config` all read that one table. CLI11 splits the
// line and is seen by parse.cc only.
//
//   void declare_greet(Command& greet) {            // and one line in the table of main.cc
//     auto& o = greet.keep<GreetOptions>();         // lives as long as the command
//     greet.about("...").option("--name", text(o.name, "NAME"), "Whom").env("FF_NAME");
//     greet.run([&o](Session& s) -> Result<void> { s.out.line("hello {}", o.name); return {}; });
//   }
//
// Every command has --json, --no-header, --quiet, --verbose, -h, --help; blocking() adds --timeout.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/cli/bind.h"
#include "cmd/cli/output.h"
#include "cmd/cli/progress.h"
#include "platform/base/result.h"
#include "platform/base/stop_token.h"

namespace ff::cmd {

class Command;

// What a command receives when it runs.
struct Session {
  Output& out;
  StopToken& stop;  // Ctrl-C, SIGTERM and --timeout; long loops check it
  std::span<const std::unique_ptr<Command>> commands;  // all commands, for `ff help`
};
using Run = std::function<Result<void>(Session&)>;

// Sections of options that several subcommands share: the manual page of the command explains them
// once. The help of a subcommand refers to the network options of the command above it.
inline constexpr std::string_view kNetworkOptions = "Network options";
inline constexpr std::string_view kCommonOptions = "Options of several commands";

// One option or positional argument. The setters return the option for chaining.
class Option {
 public:
  Option(std::string names, Binding binding, std::string description);

  // The value may come from `[checkpoint] store = ...` in ff.toml ("checkpoint.store"), and from
  // an environment variable. A flag that is configurable also gets --no-NAME. Not for lists.
  Option& config(std::string key);
  Option& env(std::string name);
  // The former key of the setting: ff still reads it from ff.toml if the new key is not set.
  Option& old_config(std::string key);
  // A former spelling ("--mark", "-g"): the command line accepts it, no help shows it.
  Option& alias(std::string old_name);
  // Not in help, manual pages and completions; the command line, ff.toml and the environment accept
  // it.
  Option& hidden() { return hidden_ = true, *this; }
  // The default of an optional field, as a text that the option accepts.
  Option& default_value(std::string text) { return binding_.default_text = std::move(text), *this; }
  // An option that several subcommands share; `title`: of its section in the manual page.
  Option& section(std::string_view title) { return section_ = title, *this; }
  // A missing value is a usage error. Arguments are required unless their field is optional.
  Option& required() { return required_ = true, *this; }
  Option& optional() { return required_ = false, *this; }

  const std::string& long_name() const { return long_; }    // "--store"; arguments: "PATH"
  const std::string& short_name() const { return short_; }  // "-s" or ""
  bool positional() const { return positional_; }
  bool is_required() const { return required_; }
  bool is_flag() const { return binding_.kind == Kind::flag; }
  bool negatable() const { return is_flag() && !(config_key_.empty() && env_name_.empty()); }
  const Binding& binding() const { return binding_; }
  const std::string& description() const { return description_; }
  const std::string& config_key() const { return config_key_; }
  const std::string& env_name() const { return env_name_; }
  const std::string& old_config_key() const { return old_config_key_; }
  const std::vector<std::string>& aliases() const { return aliases_; }
  bool is_hidden() const { return hidden_; }
  std::string_view section_title() const { return section_; }
  // Whether `word` is its long, short or former name.
  bool is_named(std::string_view word) const;
  // "--store DIR", "-n, --dry-run", "PATH..."
  std::string synopsis() const;

 private:
  std::string long_, short_;
  bool positional_ = false, required_ = false, hidden_ = false;
  Binding binding_;
  std::string description_, config_key_, env_name_, old_config_key_;
  std::vector<std::string> aliases_;
  std::string_view section_;
};

struct Example {
  std::string line;         // "ff checkpoint save model.safetensors"
  std::string description;  // one line
};

// Another name of the program (argv[0]) that runs a command, for programs such as mount(8) that use
// their own command line and exit codes.
struct ProgramLink {
  std::string name;  // "mount.ff"
  // Converts its arguments to those of the command.
  std::function<Result<std::vector<std::string>>(std::vector<std::string>)> arguments;
  int (*exit_code)(Errc code) = nullptr;  // the exit code that the caller expects for an error
};

class Command {
 public:
  Command(std::string name, std::string summary, const Command* parent = nullptr);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // The long description: empty lines separate paragraphs; lines that start with a space are
  // verbatim.
  Command& about(std::string text);
  Command& example(std::string line, std::string description);
  // `names`: "--name" or "-n,--name". Subcommands accept the options of their parents.
  Option& option(std::string names, Binding binding, std::string description);
  Option& flag(std::string names, bool& field, std::string description);
  // Positional, in order; a list comes last.
  Option& argument(std::string name, Binding binding, std::string description);
  // Adds a subcommand. A command with subcommands has no run() of its own.
  Command& sub(std::string name, std::string summary);
  // The subcommand that runs if the command line names none.
  Command& default_sub(std::string name, std::string summary);
  // Adds --timeout, which ends Session::stop. `default_ns`: 0 means no limit.
  Command& blocking(int64_t default_ns = 0);
  Command& run(Run action);
  Command& link(ProgramLink link);
  // For other programs of ff: not in lists, manual pages and completions.
  Command& hidden() { return hidden_ = true, *this; }
  // Its last argument is the command line of another program: its options end there.
  Command& takes_command_line() { return command_line_ = true, *this; }
  // The exit code of all its errors except interruptions and usage errors, for a command that
  // passes on the exit code of another program (Output::exit_with).
  Command& exits_with(int failure) { return failure_exit_ = failure, *this; }
  // Creates an object that the command owns: the options struct to which bindings point.
  template <class T>
  T& keep() {
    auto object = std::make_shared<T>();
    kept_.push_back(object);
    return *object;
  }

  const std::string& name() const { return name_; }
  const std::string& summary() const { return summary_; }
  const std::string& about() const { return about_; }
  const std::vector<Example>& examples() const { return examples_; }
  const std::deque<Option>& options() const { return options_; }      // own, without arguments
  const std::deque<Option>& arguments() const { return arguments_; }  // own
  const std::deque<Command>& subs() const { return subs_; }
  const Command* parent() const { return parent_; }
  const Run& action() const { return action_; }
  const std::vector<ProgramLink>& links() const { return links_; }
  bool has_command_line() const { return command_line_; }
  bool is_hidden() const { return hidden_; }
  std::optional<int> failure_exit() const { return failure_exit_; }
  std::string path() const;                           // "checkpoint save"
  int64_t timeout_ns() const { return timeout_ns_; }  // after parsing; 0: no limit
  // The default subcommand if there is one, otherwise this command.
  const Command& leaf() const { return default_ != nullptr ? *default_ : *this; }
  // The options that this command accepts: its own (and those of its default subcommand), then
  // those of its parents.
  std::vector<const Option*> all_options() const;
  // all_options() and subs() without the hidden ones.
  std::vector<const Option*> visible_options() const;
  std::vector<const Command*> visible_subs() const;
  const Command* find(std::string_view sub_name) const;

 private:
  std::string name_, summary_, about_;
  const Command* parent_;
  std::vector<Example> examples_;
  std::vector<ProgramLink> links_;
  std::deque<Option> options_, arguments_;  // deques: references stay valid while tables grow
  std::deque<Command> subs_;
  const Command* default_ = nullptr;
  int64_t timeout_ns_ = 0;
  bool command_line_ = false, hidden_ = false;
  std::optional<int> failure_exit_;
  Run action_;
  std::vector<std::shared_ptr<void>> kept_;
};

// One line of the table of commands, sorted by name.
struct CommandEntry {
  std::string_view name;
  std::string_view summary;  // one line, no full stop
  void (*declare)(Command&);
};

// Creates the commands of the table with all their declarations.
std::vector<std::unique_ptr<Command>> declare_all(std::span<const CommandEntry> commands);

// Runs the program: selects the command by the name of the link or argv[1], parses, runs, prints.
// Returns the exit code.
int run_program(std::span<const CommandEntry> commands, int argc, char** argv);

}  // namespace ff::cmd
