// resolve.cc: runs getaddrinfo(3) on a thread of its own, since it may take minutes. The thread is
// detached: the caller may be gone when it ends.
#include "platform/net/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <memory>
#include <thread>

#include "platform/base/thread_result.h"

namespace ff::net {

namespace {

Result<std::vector<SocketAddress>> look_up(const Address& address) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int err =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (err != 0) {
    Error error = fail(Errc::unreachable, "{}: {}", address.host, ::gai_strerror(err));
    error.hint = "Check the name, /etc/hosts and /etc/resolv.conf.";
    return error;
  }
  std::vector<SocketAddress> found;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    SocketAddress& next = found.emplace_back();
    std::memcpy(&next.storage, entry->ai_addr, entry->ai_addrlen);
    next.size = entry->ai_addrlen;
  }
  ::freeaddrinfo(list);
  return found;
}

SocketAddress unix_address(const std::string& path) {
  SocketAddress result;
  auto& to = reinterpret_cast<sockaddr_un&>(result.storage);
  to.sun_family = AF_UNIX;
  FF_CHECK(path.size() < sizeof to.sun_path);
  std::memcpy(to.sun_path, path.data(), path.size());
  const bool abstract = path.starts_with('@');
  if (abstract) to.sun_path[0] = '\0';
  // Abstract names are not terminated: their length is the address's.
  result.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (abstract ? 0 : 1));
  return result;
}

SocketAddress v6_address(const in6_addr& host, uint16_t port) {
  SocketAddress result;
  auto& to = reinterpret_cast<sockaddr_in6&>(result.storage);
  to.sin6_family = AF_INET6;
  to.sin6_addr = host;
  to.sin6_port = htons(port);
  result.size = sizeof to;
  return result;
}

}  // namespace

std::optional<SocketAddress> numeric_address(const Address& address) {
  if (address.is_unix()) return unix_address(address.unix_path);
  if (address.host.empty()) return v6_address(in6addr_any, address.port);
  in6_addr v6 = {};
  if (::inet_pton(AF_INET6, address.host.c_str(), &v6) == 1) return v6_address(v6, address.port);
  SocketAddress result;
  auto& v4 = reinterpret_cast<sockaddr_in&>(result.storage);
  if (::inet_pton(AF_INET, address.host.c_str(), &v4.sin_addr) != 1) return std::nullopt;
  v4.sin_family = AF_INET;
  v4.sin_port = htons(address.port);
  result.size = sizeof v4;
  return result;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, sizeof name - 1) != 0) name[0] = '\0';
  return name;
}

Address to_address(const SocketAddress& address) {
  Address result;
  char text[INET6_ADDRSTRLEN] = {};
  if (address.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    result.host = ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    result.port = ntohs(v4.sin_port);
  } else if (address.storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
    result.port = ntohs(v6.sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      result.host = ::inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof text);
    } else if (!IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) {
      result.host = ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    }
  }
  return result;
}

Task<Result<std::vector<SocketAddress>>> resolve(Loop& loop, Address address) {
  if (const auto numeric = numeric_address(address)) {
    std::vector<SocketAddress> one;
    one.push_back(*numeric);
    co_return one;
  }
  using Addresses = ThreadResult<std::vector<SocketAddress>>;
  auto taking = Addresses::wait(loop, [address](std::shared_ptr<Addresses> result) {
    std::thread([result, address] { result->set(look_up(address)); }).detach();
  });
  co_return co_await std::move(taking);
}

}  // namespace ff::net
