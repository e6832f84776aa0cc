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

// Numeric addresses and Unix paths, at once; an empty host is every address (IPv6 and IPv4).
// Nothing when a name server has to be asked.
std::optional<SocketAddress> numeric_address(const Address& address);
// The address as the kernel tells it, in numbers.
Address to_address(const SocketAddress& address);
// What this machine calls itself; empty when that cannot be told.
std::string host_name();
// Every address of the name, in the order to try them. Errc::unreachable when there is none.
Task<Result<std::vector<SocketAddress>>> resolve(Loop& loop, Address address);

}  // namespace ff::net
