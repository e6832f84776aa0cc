// Values of options that are not on the command line: from the environment, then from the files of
// base/config.h. The configurable options of all commands are known keys, so every command checks
// the whole file.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "platform/base/config.h"
#include "platform/base/result.h"

namespace ff::cmd {

struct SettingValue {
  std::string text;    // as on the command line
  std::string source;  // "FF_STORE" or "/etc/ff/ff.toml:3"
};

// All options with a key or an environment variable, sorted by key, without duplicates.
std::vector<const Option*> configurable_options(std::span<const std::unique_ptr<Command>> commands);

// Parses the value of an option into its field. Errc::usage: not a value of it; the error names the
// source.
Result<void> assign(const Option& option, std::span<const std::string> texts,
                    const std::string& source);

class Settings {
 public:
  static Result<Settings> load(std::span<const std::unique_ptr<Command>> commands);
  // Those of one command, for a program that does not know the others: it ignores their keys.
  static Result<Settings> load(const Command& command);
  // An empty variable counts as not set.
  std::optional<SettingValue> find(const Option& option) const;

 private:
  Result<void> load(const std::vector<const Option*>& options, UnknownKeys unknown);

  Config config_;
};

// Assigns the options of a command that have a value, for a library, which has no command line.
Result<void> assign_settings(const Command& command);

}  // namespace ff::cmd
