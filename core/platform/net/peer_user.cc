// peer_user.cc: asks the kernel for one socket by its addresses.
#include "platform/net/peer_user.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "platform/base/fd.h"

namespace ff::net {

namespace {

struct Request {
  nlmsghdr header = {};
  inet_diag_req_v2 body = {};
};

bool put_address(const Address& address, uint8_t family, __be32* into) {
  return ::inet_pton(family, address.host.c_str(), into) == 1;
}

// Long enough for the one message that answers, with its attributes.
constexpr size_t kAnswerBytes = 4096;

std::optional<uint32_t> user_in(const std::array<char, kAnswerBytes>& answer, size_t size) {
  nlmsghdr header;
  if (size < sizeof header) return std::nullopt;
  std::memcpy(&header, answer.data(), sizeof header);
  inet_diag_msg found;
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || size < NLMSG_HDRLEN + sizeof found) {
    return std::nullopt;
  }
  std::memcpy(&found, answer.data() + NLMSG_HDRLEN, sizeof found);
  return found.idiag_uid;
}

}  // namespace

std::optional<uint32_t> local_user_of(const Address& peer, const Address& local) {
  if (peer.is_unix() || peer.host != local.host) return std::nullopt;
  const uint8_t family = peer.host.find(':') == std::string::npos ? AF_INET : AF_INET6;
  Request request;
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_family = family;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = UINT32_MAX;
  inet_diag_sockid& id = request.body.id;
  id.idiag_sport = htons(peer.port);
  id.idiag_dport = htons(local.port);
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (!put_address(peer, family, id.idiag_src) || !put_address(local, family, id.idiag_dst)) {
    return std::nullopt;
  }
  const Fd socket(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (socket.get() < 0) return std::nullopt;
  if (::send(socket.get(), &request, sizeof request, 0) != sizeof request) return std::nullopt;
  // The kernel has answered before send() returns.
  std::array<char, kAnswerBytes> answer;
  const ssize_t got = ::recv(socket.get(), answer.data(), answer.size(), MSG_DONTWAIT);
  return got > 0 ? user_in(answer, static_cast<size_t>(got)) : std::nullopt;
}

}  // namespace ff::net
