// Shared by `ff up` and `ff down`: the location of the folder, and common messages.
#pragma once

#include <optional>
#include <string>

#include "cmd/cli/cli.h"
#include "ops/devcluster/cluster_dir.h"

namespace ff::cmd {

// Declares --dir; up_dir() returns the absolute path.
void declare_up_dir(Command& command, std::optional<std::string>& dir);
Result<std::string> up_dir(const std::optional<std::string>& dir);

// check_mountable() of mount/device.h, with retries while a killed mount is still being removed.
Result<void> wait_until_mountable(Session& session, const std::string& dir);

// The command that stops the cluster, for hints.
std::string down_command(const devcluster::ClusterDir& folder);

}  // namespace ff::cmd
