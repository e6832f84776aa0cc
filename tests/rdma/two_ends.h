// A server and a visitor in two processes or two machines, who try frames, pushes and pulls on each
// other: the second half of the tests of RDMA, and the peer that gets killed.
#pragma once

#include <cstdint>
#include <string>

#include "platform/base/result.h"

namespace ff::net {

// Serves one visitor on a TCP port and returns when it has left well.
Result<void> serve_one(uint16_t port);
// Visits; `host` may need a while until it listens.
Result<void> visit(const std::string& host, uint16_t port);
// Connects to this machine and says one word, then nothing until it is killed.
Result<void> hang(uint16_t port);

}  // namespace ff::net
