// confirm.cc: asks for confirmation on the terminal.
#include "cmd/cli/confirm.h"

#include <unistd.h>

#include <iostream>

namespace ff::cmd {

Result<void> confirm(Session& session, bool yes, const std::string& question,
                     const std::string& answer, NonInteractive non_interactive) {
  if (yes) return {};
  const bool terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  if (!terminal || session.out.mode().json) {
    if (non_interactive == NonInteractive::proceed) return {};
    return Error{Errc::refused, "not confirmed", "Add --yes to confirm."};
  }
  session.out.prompt(question);
  std::string typed;
  std::getline(std::cin, typed);
  FF_TRY(session.stop.check());
  if (typed == answer) return {};
  return Error{Errc::refused, "not confirmed: nothing was changed",
               "Add --yes to confirm without a question."};
}

Option& declare_yes(Command& command, bool& yes) {
  return command.flag("-y,--yes", yes, "Do not ask for confirmation");
}

}  // namespace ff::cmd
