// Shared by `ff up` and `ff down`: the location of the folder, and common messages.
#pragma once

#include <optional>
#include <string>

#include "cmd/admin/admin.h"
#include "cmd/cli/cli.h"
#include "ops/devcluster/cluster_dir.h"

namespace ff::cmd {

// Declares --dir; up_dir() returns the absolute path.
void declare_up_dir(Command& command, std::optional<std::string>& dir);
Result<std::string> up_dir(const std::optional<std::string>& dir);

// check_mountable() of mount/device.h, with retries while a killed mount is still being removed.
Result<void> wait_until_mountable(Session& session, const std::string& dir);

// What the gateway of --kv needs beside the cluster: the key of its clients, and the folder of the
// buckets. Makes those that are missing.
Result<void> prepare_kv(Session& session, const AdminOptions& admin, devcluster::ClusterDir& folder,
                        int64_t timeout_ns);
// Prints how clients of Redis and S3 connect.
void print_kv_use(Output& out, const devcluster::ClusterDir& folder,
                  const devcluster::ClusterConfig& config);

// The command that stops the cluster, for hints.
std::string down_command(const devcluster::ClusterDir& folder);

}  // namespace ff::cmd
