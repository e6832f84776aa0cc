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

// man/ff.1 and man/ff-NAME.1, one a command; and the pages of section 7.
std::vector<EmittedFile> emit_man(std::span<const std::unique_ptr<Command>> commands);
// man/*.7, which people write, as they are.
std::vector<EmittedFile> written_pages();
// completions/ff.bash, completions/_ff (zsh), completions/ff.fish.
std::vector<EmittedFile> emit_completions(std::span<const std::unique_ptr<Command>> commands);

// Units for systemd, and a line for cron, that run `program`, an absolute path. These are not
// committed.
std::vector<EmittedFile> emit_units(std::string_view program);
std::vector<EmittedFile> emit_cron(std::string_view program);

// What `ff generate` does, also for its old name `ff help --emit`. Units and the line for cron are
// printed where no directory is given.
Result<void> generate_docs(Session& session, const std::string& dir);
Result<void> generate_units(Session& session, const std::optional<std::string>& into);
Result<void> generate_cron(Session& session, const std::optional<std::string>& into);
// Where this program lies.
Result<std::string> program_path();

}  // namespace ff::cmd
