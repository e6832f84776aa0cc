// rxe_link.cc: what the programs rdma and ip of iproute2 do, as far as a test guest needs it: the
// guest then holds one program and no libraries.
#include "rdma/rxe_link.h"

#include <linux/netlink.h>
#include <net/if.h>
#include <rdma/rdma_netlink.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "platform/net/socket.h"

namespace ff::net {

namespace {

void append(std::string& message, uint16_t type, const std::string& value) {
  nlattr head = {};
  head.nla_len = static_cast<uint16_t>(NLA_HDRLEN + value.size() + 1);
  head.nla_type = type;
  message.append(reinterpret_cast<const char*>(&head), sizeof head);
  message.append(value);
  message.append(NLA_ALIGN(value.size() + 1) - value.size(), '\0');
}

}  // namespace

Result<void> add_rxe_link(const std::string& name, const std::string& netdev) {
  std::string message(NLMSG_HDRLEN, '\0');
  append(message, RDMA_NLDEV_ATTR_DEV_NAME, name);
  append(message, RDMA_NLDEV_ATTR_LINK_TYPE, "rxe");
  append(message, RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
  nlmsghdr head = {};
  head.nlmsg_len = static_cast<uint32_t>(message.size());
  head.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK);
  head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  std::memcpy(message.data(), &head, sizeof head);
  const Fd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));
  sockaddr_nl kernel = {};
  kernel.nl_family = AF_NETLINK;
  if (::sendto(fd.get(), message.data(), message.size(), 0, reinterpret_cast<sockaddr*>(&kernel),
               sizeof kernel) < 0) {
    return errno_error(errno, "netlink");
  }
  struct {
    nlmsghdr head;
    nlmsgerr error;
  } answer = {};
  if (::recv(fd.get(), &answer, sizeof answer, MSG_TRUNC) < static_cast<ssize_t>(sizeof answer)) {
    return fail(Errc::failed, "netlink gave no answer");
  }
  if (answer.error.error != 0) return errno_error(-answer.error.error, name);
  return {};
}

Result<void> set_netdev_up(const std::string& netdev, bool up) {
  const Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  netdev.copy(request.ifr_name, IFNAMSIZ - 1);
  if (::ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0) return errno_error(errno, netdev);
  const int flags = up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP;
  request.ifr_flags = static_cast<short>(flags);
  if (::ioctl(fd.get(), SIOCSIFFLAGS, &request) != 0) return errno_error(errno, netdev);
  return {};
}

int64_t rxe_counter(const std::string& name) {
  std::ifstream in("/sys/class/infiniband/rxe0/ports/1/hw_counters/" + name);
  int64_t value = -1;
  in >> value;
  return in ? value : -1;
}

}  // namespace ff::net
