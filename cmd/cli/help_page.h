// Help on the terminal, from the tables: `-h` fits a screen, `--help` and `ff help` say everything.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/cli/cli.h"

namespace ff::cmd {

enum class HelpForm : unsigned char { brief, full };

struct ExitCode {
  int code;
  std::string_view meaning;
};
// The table of cli.md.
std::span<const ExitCode> exit_codes();

std::string help_page(const Command& command, HelpForm form);
std::string top_help_page(std::span<const std::unique_ptr<Command>> commands, HelpForm form);

// "Name of the run (default: main; setting: checkpoint.run; environment: FF_RUN)"; with `defaults`
// in the place of its own default.
std::string describe(const Option& option);
std::string describe(const Option& option, const std::string& defaults);

// An option that several subcommands have, as the page of the command explains it: once.
struct SharedOption {
  const Option* option;
  std::vector<std::string> subs;  // "list", "quota set"; empty: all of them have it
  std::string defaults;           // "30s; logs, run: none", where they are not all the same
};
struct SharedSection {
  std::string_view title;
  std::vector<SharedOption> options;
  std::vector<std::string> subs() const;  // that have one of them; empty: all
};
// The sections of `command` and its subcommands, in the order in which they are declared.
std::vector<SharedSection> shared_sections(const Command& command);

// A long description in pieces: paragraphs to be filled, and blocks of indented lines as they are.
struct Paragraph {
  bool verbatim;
  std::string text;  // one line, or lines parted by '\n' when verbatim
};
std::vector<Paragraph> paragraphs(std::string_view about);

// `text` broken at spaces, no line wider than `width` unless a word is.
std::vector<std::string> wrap(std::string_view text, size_t width);

}  // namespace ff::cmd
