// The option --meta: the addresses of the managers of a cluster.
#pragma once

#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "platform/base/clock.h"
#include "platform/net/address.h"

namespace ff::cmd {

constexpr const char* kDefaultMeta = "127.0.0.1:4400";
// Maximum time for the first answer of a manager and the routing of the cluster.
constexpr int64_t kConnectTimeoutNs = 15 * kSecond;

// Declares --meta, with its variable FF_META and its setting.
void declare_meta(Command& command, std::string& meta);
// Errc::usage for a wrong address; the error names the option.
Result<std::vector<net::Address>> parse_meta(const std::string& meta);

}  // namespace ff::cmd
