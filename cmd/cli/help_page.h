// Help pages from the option tables: short for `-h`, complete for `--help` and `ff help`.
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

// "Name of the run (default: main; setting: checkpoint.run; environment: FF_RUN)"; `defaults`, if
// not empty, replaces its own default.
std::string describe(const Option& option);
std::string describe(const Option& option, const std::string& defaults);

// An option that several subcommands share; the manual page of the command explains it once.
struct SharedOption {
  const Option* option;
  std::vector<std::string> subs;  // that have it: "list", "quota set"; empty: all
  std::string defaults;           // "30s; logs, run: none", if the subcommands differ
};
struct SharedSection {
  std::string_view title;
  std::vector<SharedOption> options;
  std::vector<std::string> subs() const;  // that have one of them; empty: all
};
// The sections of `command` and its subcommands, in declaration order.
std::vector<SharedSection> shared_sections(const Command& command);

// A part of a long description: a paragraph to be wrapped, or a verbatim block of indented lines.
struct Paragraph {
  bool verbatim;
  std::string text;  // one line; verbatim: lines separated by '\n'
};
std::vector<Paragraph> paragraphs(std::string_view about);

// `text` broken at spaces, no line wider than `width` unless a word is.
std::vector<std::string> wrap(std::string_view text, size_t width);

}  // namespace ff::cmd
