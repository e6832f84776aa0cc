// The files that `ff generate` writes, from the option tables: nothing in them depends on the
// machine, the time or the commit, so that the committed copies can be compared byte for byte.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/cli/cli.h"

namespace ff::cmd {

struct EmittedFile {
  std::string path;  // "man/ff-checkpoint.1", under the directory asked for
  std::string text;
};

// man/ff.1, man/ff-NAME.1 for each command, and the pages of section 7.
std::vector<EmittedFile> emit_man(std::span<const std::unique_ptr<Command>> commands);
// man/*.7, written by hand, unchanged.
std::vector<EmittedFile> handwritten_pages();
// completions/ff.bash, completions/_ff (zsh), completions/ff.fish.
std::vector<EmittedFile> emit_completions(std::span<const std::unique_ptr<Command>> commands);

// Units for systemd, and a line for cron, that run `program`, an absolute path. These are not
// committed.
std::vector<EmittedFile> emit_units(std::string_view program);
std::vector<EmittedFile> emit_cron(std::string_view program);

// Run `ff generate`, also for its former name `ff help --emit`. Without a directory they print the
// units and the line for cron.
Result<void> generate_docs(Session& session, const std::string& dir);
Result<void> generate_units(Session& session, const std::optional<std::string>& into);
Result<void> generate_cron(Session& session, const std::optional<std::string>& into);
// The absolute path of this program.
Result<std::string> program_path();

}  // namespace ff::cmd
