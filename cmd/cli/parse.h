// From the words after the command's name to values in its fields: which subcommand, which options,
// and for those not on the line the environment, the files, the default. Errors are `usage` and
// name the nearest thing that exists.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "platform/base/result.h"

namespace ff::cmd {

// The options every command has, and their values.
struct Common {
  Output::Mode mode;
  bool help = false;
  bool version = false;
};
std::deque<Option> common_options(Common& common);
// Those of ff without a command: the common ones and --version.
std::deque<Option> bare_options(Common& common);

// The subcommand that `args` name, whose word is taken out of them; options may stand before it.
// `reached` is the deepest command found, with an error too.
Result<void> descend(const Command*& reached, std::vector<std::string>& args);

// Sets the fields of `leaf` from args, environment and files.
Result<void> parse(const Command& leaf, std::vector<std::string> args,
                   std::span<const std::unique_ptr<Command>> commands, Common& common);

// Where the command line of another program begins, `--` is put before it: what follows is that
// program's, also what looks like an option. Nothing, where `leaf` takes none.
void end_options(const Command& leaf, std::vector<std::string>& args);

// "ff checkpoint save [OPTIONS] PATH..."
std::string usage_line(const Command& command);

// `word` stands before a `--` that ends the options.
bool has_word(std::span<const std::string> args, std::string_view word);

// "Did you mean X? SEE", or only SEE when nothing is near.
std::string suggestion(std::string_view word, std::span<const std::string> candidates,
                       std::string see);

}  // namespace ff::cmd
