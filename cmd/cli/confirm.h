// How commands that destroy data ask for confirmation first.
#pragma once

#include <string>

#include "cmd/cli/cli.h"

namespace ff::cmd {

// What a command does without --yes if it cannot ask: if standard input or standard error is not a
// terminal, or with --json.
enum class NonInteractive : unsigned char { refuse, proceed };

// Asks on the terminal. Errc::refused if the user does not type `answer`.
Result<void> confirm(Session& session, bool yes, const std::string& question,
                     const std::string& answer, NonInteractive non_interactive);

// Declares the flag --yes.
Option& declare_yes(Command& command, bool& yes);

}  // namespace ff::cmd
