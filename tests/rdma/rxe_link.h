// The software RDMA device of a test guest: made of a network interface, which can be taken down
// and up again under it.
#pragma once

#include <string>

#include "platform/base/result.h"

namespace ff::net {

// `rdma link add NAME type rxe netdev NETDEV`.
Result<void> add_rxe_link(const std::string& name, const std::string& netdev);
// `ip link set NETDEV up` or `down`.
Result<void> set_netdev_up(const std::string& netdev, bool up);
// A counter of rxe0, from /sys; -1 where there is none.
int64_t rxe_counter(const std::string& name);

}  // namespace ff::net
