// Asking before what cannot be undone.
#pragma once

#include <string>

#include "cmd/cli/cli.h"

namespace ff::cmd {

// What a command does without --yes where nobody can be asked: where standard input or standard
// error is no terminal, and with --json.
enum class Unasked : unsigned char { refuse, act };

// Asks on the terminal; goes on when the answer is `answer`. Errc::refused otherwise.
Result<void> confirm(Session& session, bool yes, const std::string& question,
                     const std::string& answer, Unasked unasked);

// The flag --yes, for all commands that ask.
Option& declare_yes(Command& command, bool& yes);

}  // namespace ff::cmd
