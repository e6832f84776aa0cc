// The sockets that systemd passes to `ff serve-kv` (platform/net/inherited_sockets.h).
#pragma once

#include <optional>
#include <string>

#include "platform/base/result.h"
#include "platform/net/inherited_sockets.h"

namespace ff::cmd {

struct GatewaySockets {
  std::optional<net::InheritedSocket> redis, s3;  // in place of --listen and --s3-listen
};

// At the start of the process. Errc::usage: it gets other sockets, or two with one name.
Result<GatewaySockets> take_gateway_sockets();

// What the help says of them.
std::string sockets_about();

}  // namespace ff::cmd
