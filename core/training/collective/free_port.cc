// free_port.cc: asks the kernel for a port, and gives it back.
#include "training/collective/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "platform/base/fd.h"

namespace ff::collective {

Result<uint16_t> find_free_port() {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof at;
  if (socket.get() < 0 || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&at), size) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    return errno_error(errno, "a free port");
  }
  return ntohs(at.sin_port);
}

}  // namespace ff::collective
