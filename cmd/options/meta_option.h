// --meta: the managers of a cluster, for every command that asks them.
#pragma once

#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "platform/base/clock.h"
#include "platform/net/address.h"

namespace ff::cmd {

constexpr const char* kDefaultMeta = "127.0.0.1:4400";
// How long a command waits for a manager and the routing of the cluster.
constexpr int64_t kOpenNs = 15 * kSecond;

// --meta, its variable FF_META and its place in ff.toml.
void declare_meta(Command& command, std::string& meta);
// Errc::usage, naming the option.
Result<std::vector<net::Address>> parse_meta(const std::string& meta);

}  // namespace ff::cmd
