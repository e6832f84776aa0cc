// Host names to socket addresses, without blocking the loop.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/net/address.h"

namespace ff::net {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// Converts numeric addresses and Unix paths without I/O; an empty host means all addresses (IPv6
// and IPv4). Empty if a name has to be resolved.
std::optional<SocketAddress> numeric_address(const Address& address);
// The numeric form of an address that the kernel returned.
Address to_address(const SocketAddress& address);
// gethostname(2); empty on failure.
std::string host_name();
// All addresses of the name, in the order to try them. Errc::unreachable: there are none.
Task<Result<std::vector<SocketAddress>>> resolve(Loop& loop, Address address);

}  // namespace ff::net
