// Parses a command line: finds the subcommand and sets the fields of its options, from the line,
// the environment, the configuration files or the default. Errors are Errc::usage and suggest the
// nearest known name.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "platform/base/result.h"

namespace ff::cmd {

// The values of the options that every command has.
struct CommonOptions {
  Output::Mode mode;
  bool help = false;
  bool version = false;
};
std::deque<Option> common_options(CommonOptions& common);
// The options of ff without a command: the common ones and --version.
std::deque<Option> program_options(CommonOptions& common);

// Finds the subcommand that `args` name and removes its name from them; options may come before it.
// `reached` is the deepest command found, also after an error.
Result<void> resolve_subcommand(const Command*& reached, std::vector<std::string>& args);

// Sets the fields of `leaf` from args, environment and files.
Result<void> parse(const Command& leaf, std::vector<std::string> args,
                   std::span<const std::unique_ptr<Command>> commands, CommonOptions& common);

// If `leaf` takes the command line of another program, inserts `--` before it, so that the options
// of that program are not parsed.
void insert_option_end(const Command& leaf, std::vector<std::string>& args);

// "ff checkpoint save [OPTIONS] PATH..."
std::string usage_line(const Command& command);

// Whether `args` contain `word` before a `--`.
bool has_word(std::span<const std::string> args, std::string_view word);

// "Did you mean X? SEE", or only SEE if no candidate is similar.
std::string suggestion(std::string_view word, std::span<const std::string> candidates,
                       std::string see);

}  // namespace ff::cmd
