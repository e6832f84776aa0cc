// inherited_sockets.cc: reads the variables, and checks each descriptor.
#include "platform/net/inherited_sockets.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "platform/base/text.h"
#include "platform/net/resolve.h"

namespace ff::net {

namespace {

constexpr int kFirstDescriptor = 3;  // SD_LISTEN_FDS_START
constexpr uint64_t kInheritedMax = 64;

// The variables, which are gone then.
struct ListenVariables {
  std::optional<std::string> pid, count, names;
};

std::optional<std::string> take_variable(const char* name) {
  const char* const value = ::getenv(name);
  if (value == nullptr) return std::nullopt;
  std::string text = value;
  ::unsetenv(name);
  return text;
}

Error bad_variable(std::string text) {
  Error error = fail(Errc::usage, "{}", text);
  error.hint =
      "Programs that pass sockets set LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES as systemd does "
      "(sd_listen_fds(3)); unset them to start without sockets.";
  return error;
}

int socket_option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

Result<Address> bound_address(int fd) {
  SocketAddress bound;
  bound.size = sizeof bound.storage;
  if (::getsockname(fd, bound.get(), &bound.size) != 0) return errno_error(errno, "getsockname");
  if (bound.storage.ss_family != AF_UNIX) return to_address(bound);
  const auto& local = reinterpret_cast<const sockaddr_un&>(bound.storage);
  Address address;
  std::string_view path(local.sun_path, bound.size - offsetof(sockaddr_un, sun_path));
  if (path.starts_with('\0')) {
    address.unix_path = "@" + std::string(path.substr(1));
  } else {
    address.unix_path = path.substr(0, path.find('\0'));
  }
  return address;
}

Result<InheritedSocket> check_socket(int fd, std::string name) {
  const int domain = socket_option(fd, SO_DOMAIN);
  const bool known = domain == AF_INET || domain == AF_INET6 || domain == AF_UNIX;
  if (!known || socket_option(fd, SO_TYPE) != SOCK_STREAM ||
      socket_option(fd, SO_ACCEPTCONN) != 1) {
    return bad_variable(
        fmt::format("descriptor {}, which LISTEN_FDS names, is no stream socket that listens", fd));
  }
  const int flags = ::fcntl(fd, F_GETFL);
  if (::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return errno_error(errno, fmt::format("descriptor {}", fd));
  }
  FF_TRY(auto address, bound_address(fd));
  return InheritedSocket{std::move(name), Fd(fd), std::move(address)};
}

}  // namespace

Result<std::vector<InheritedSocket>> take_inherited_sockets() {
  const ListenVariables variables{take_variable("LISTEN_PID"), take_variable("LISTEN_FDS"),
                                  take_variable("LISTEN_FDNAMES")};
  std::vector<InheritedSocket> sockets;
  if (!variables.pid || !variables.count) return sockets;
  const auto pid = parse_u64(*variables.pid);
  if (!pid || *pid == 0) {
    return bad_variable(
        fmt::format("LISTEN_PID is '{}', which is no process", printable(*variables.pid)));
  }
  if (*pid != static_cast<uint64_t>(::getpid())) return sockets;
  const auto count = parse_u64(*variables.count);
  if (!count || *count == 0 || *count > kInheritedMax) {
    return bad_variable(fmt::format("LISTEN_FDS is '{}', but must be a number from 1 to {}",
                                    printable(*variables.count), kInheritedMax));
  }
  std::vector<std::string> names(*count);
  if (variables.names) {
    const auto given = split(*variables.names, ':');
    if (given.size() != *count) {
      return bad_variable(fmt::format("LISTEN_FDS is {}, but LISTEN_FDNAMES has {} names: '{}'",
                                      *count, given.size(), printable(*variables.names)));
    }
    for (size_t i = 0; i < *count; i++) names[i] = given[i];
  }
  for (size_t i = 0; i < *count; i++) {
    FF_TRY(auto socket, check_socket(kFirstDescriptor + static_cast<int>(i), std::move(names[i])));
    sockets.push_back(std::move(socket));
  }
  return sockets;
}

}  // namespace ff::net
