// What `ff up` and `ff down` share: where the folder is, and what is said of it.
#pragma once

#include <optional>
#include <string>

#include "cmd/cli/cli.h"
#include "ops/devcluster/folder.h"

namespace ff::cmd {

// --dir, and where it leads: an absolute path.
void declare_up_dir(Command& command, std::optional<std::string>& dir);
Result<std::string> up_dir(const std::optional<std::string>& dir);

// mount/device.h's check_mountable() where a mount of ours was killed, which takes a moment to end.
Result<void> wait_until_mountable(Session& session, const std::string& dir);

// The command that stops what runs there, for hints.
std::string down_command(const devcluster::Folder& folder);

}  // namespace ff::cmd
