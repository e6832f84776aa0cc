// The files that `ff help --emit` writes, from the option tables: nothing in them depends on the
// machine, the time or the commit, so that the committed copies can be compared byte for byte.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/cli.h"

namespace ff::cmd {

struct EmittedFile {
  std::string path;  // "man/ff-checkpoint.1", under the directory asked for
  std::string text;
};

// man/ff.1, man/ff.7 and man/ff-NAME.1, one a command.
std::vector<EmittedFile> emit_man(std::span<const std::unique_ptr<Command>> commands);
// The text of man/ff.7: how a cluster works, and what may be relied on.
std::string concepts_page();
// completions/ff.bash, completions/_ff (zsh), completions/ff.fish.
std::vector<EmittedFile> emit_completions(std::span<const std::unique_ptr<Command>> commands);

// Units for systemd, and a line for cron, that run `program`, an absolute path. These are not
// committed.
std::vector<EmittedFile> emit_units(std::string_view program);
std::vector<EmittedFile> emit_cron(std::string_view program);

}  // namespace ff::cmd
