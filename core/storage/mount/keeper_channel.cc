// keeper_channel.cc: packets with SCM_RIGHTS (unix(7)).
#include "storage/mount/keeper_channel.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "platform/base/text.h"

namespace ff::mount {

namespace {

constexpr size_t kMessageMax = 64 * 1024;

}  // namespace

Result<void> send_message(int socket, KeeperMessageType type, std::string_view text, int fd) {
  std::string bytes(1, static_cast<char>(type));
  bytes += text.substr(0, kMessageMax - 1);
  iovec part{bytes.data(), bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  }
  while (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return errno_error(errno, "the socket of the mount's keeper");
  }
  return {};
}

Result<std::optional<KeeperMessage>> receive_message(int socket, bool wait) {
  std::string bytes(kMessageMax, '\0');
  iovec part{bytes.data(), bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
  } while (got < 0 && errno == EINTR);
  if (got == 0 || (got < 0 && (errno == EAGAIN || errno == ECONNRESET))) {
    return std::optional<KeeperMessage>();
  }
  if (got < 0) return errno_error(errno, "the socket of the mount's keeper");
  KeeperMessage received{.type = static_cast<KeeperMessageType>(bytes[0])};
  received.text = bytes.substr(1, static_cast<size_t>(got) - 1);
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(head), sizeof fd);
    received.fd = Fd(fd);
  }
  return std::optional(std::move(received));
}

std::string text_of(const Error& error) {
  return fmt::format("{}\n{}\n{}", errc_name(error.code), error.hint, error.message);
}

Error error_of(std::string_view text) {
  const size_t code = text.find('\n');
  const size_t hint = code == text.npos ? text.npos : text.find('\n', code + 1);
  if (hint == text.npos) return fail(Errc::failed, "{}", printable(text));
  Error error;
  error.code = errc_from_name(text.substr(0, code)).value_or(Errc::failed);
  error.hint = text.substr(code + 1, hint - code - 1);
  error.message = text.substr(hint + 1);
  return error;
}

}  // namespace ff::mount
