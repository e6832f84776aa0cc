// The local user at the other end of a TCP connection over the loopback interface, which has no
// SO_PEERCRED: the kernel tells whose socket it is (sock_diag(7), NETLINK_SOCK_DIAG).
#pragma once

#include <cstdint>
#include <optional>

#include "platform/net/address.h"

namespace ff::net {

// `peer` and `local`: the two ends, with numeric hosts. Empty: the peer is on another machine, or
// the kernel does not tell.
std::optional<uint32_t> local_user_of(const Address& peer, const Address& local);

}  // namespace ff::net
