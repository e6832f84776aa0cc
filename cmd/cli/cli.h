// What the author of a command writes. A command is one file that declares a table (names, values,
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

// What a running command is given.
struct Session {
  Output& out;
  StopToken& stop;  // Ctrl-C, SIGTERM and --timeout; pass it down, loops ask it
  std::span<const std::unique_ptr<Command>> commands;  // all of ff, for `ff help`
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
  // An earlier key of the setting: still read from ff.toml, where the present one is not set.
  Option& old_config(std::string key);
  // An earlier spelling ("--mark", "-g"): it still works on the line, and no help shows it.
  Option& alias(std::string old_name);
  // Help, manual pages and completions do not show it; the line, and a setting's sources, have it.
  Option& hidden() { return hidden_ = true, *this; }
  // What holds where a value is given nowhere, for a field that can be absent; it reads back.
  Option& default_value(std::string text) { return binding_.default_text = std::move(text), *this; }
  // One of the options that several subcommands share, under this title.
  Option& section(std::string_view title) { return section_ = title, *this; }
  // Given nowhere is a usage error. Arguments are required unless their field can be absent.
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
  // `word` is its long, short or earlier name.
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
  std::string line;  // "ff checkpoint save model.safetensors"
  std::string says;  // what it does, one line
};

// A further link that runs a command, for a program that calls it with a line of its own making.
struct Link {
  std::string name;  // "mount.ff"
  // Its words as the command has them.
  std::function<Result<std::vector<std::string>>(std::vector<std::string>)> words;
  int (*exit)(Errc code) = nullptr;  // what that program takes for an error's exit code
};

class Command {
 public:
  Command(std::string name, std::string summary, const Command* parent = nullptr);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // The long description: paragraphs parted by empty lines; lines that start with a space print
  // as they are.
  Command& about(std::string text);
  Command& example(std::string line, std::string says);
  // "--name" or "-n,--name". Options of a command hold in its subcommands too, in any place.
  Option& option(std::string names, Binding binding, std::string description);
  Option& flag(std::string names, bool& field, std::string description);
  // Positional, in order; a list comes last.
  Option& argument(std::string name, Binding binding, std::string description);
  // A subcommand; it gets run() in its turn. A command with subcommands has no run() of its own.
  Command& sub(std::string name, std::string summary);
  // What runs when none of its subcommands is named.
  Command& default_sub(std::string name, std::string summary);
  // The action may wait: adds --timeout, whose end is in Session::stop. 0: no limit by default.
  Command& blocking(int64_t default_ns = 0);
  Command& run(Run action);
  Command& link(Link link);
  // For programs of ff, not for people: no list, manual page or completion shows it.
  Command& hidden() { return hidden_ = true, *this; }
  // Its argument is a command line of another program: options end where that begins.
  Command& takes_command_line() { return command_line_ = true, *this; }
  // Its errors end with this code, whatever they are; an interruption, and a wrong line, do not.
  // For a command that hands on the exit code of another program (Output::exit_with).
  Command& exits_with(int failure) { return failure_exit_ = failure, *this; }
  // An object owned by the command, for the fields that bindings point to.
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
  const std::vector<Link>& links() const { return links_; }
  bool has_command_line() const { return command_line_; }
  bool is_hidden() const { return hidden_; }
  std::optional<int> failure_exit() const { return failure_exit_; }
  std::string path() const;                           // "checkpoint save"
  int64_t timeout_ns() const { return timeout_ns_; }  // after parsing; 0: no limit
  // This command, or what runs in its place when it is named alone.
  const Command& leaf() const { return default_ != nullptr ? *default_ : *this; }
  // What holds in this command: its own options (and those of its default subcommand), then those
  // of the commands above it.
  std::vector<const Option*> all_options() const;
  // Those of them, and of the subcommands, that are not hidden.
  std::vector<const Option*> shown_options() const;
  std::vector<const Command*> shown_subs() const;
  const Command* find(std::string_view sub_name) const;

 private:
  std::string name_, summary_, about_;
  const Command* parent_;
  std::vector<Example> examples_;
  std::vector<Link> links_;
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
struct Entry {
  std::string_view name;
  std::string_view summary;  // one line, no full stop
  void (*declare)(Command&);
};

// The table's commands with everything they declare.
std::vector<std::unique_ptr<Command>> declare_all(std::span<const Entry> commands);

// The whole program: picks the command by link name or argv[1], parses, runs, prints, and returns
// the exit code.
int run_program(std::span<const Entry> commands, int argc, char** argv);

}  // namespace ff::cmd
