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

// "Name of the run (default: main; setting: checkpoint.run; environment: FF_RUN)"
std::string describe(const Option& option);

// A long description in pieces: paragraphs to be filled, and blocks of indented lines as they are.
struct Paragraph {
  bool verbatim;
  std::string text;  // one line, or lines parted by '\n' when verbatim
};
std::vector<Paragraph> paragraphs(std::string_view about);

// `text` broken at spaces, no line wider than `width` unless a word is.
std::vector<std::string> wrap(std::string_view text, size_t width);

}  // namespace ff::cmd
