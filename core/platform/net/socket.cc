// socket.cc: non-blocking sockets on a loop with vectored reads and writes. Unix sockets pass file
// descriptors with the next write (SCM_RIGHTS).
#include "platform/net/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

#include "platform/net/resolve.h"

namespace ff::net {

namespace {

constexpr size_t kPiecesMax = 64;       // of one gathered read or write
constexpr size_t kDescriptorsMax = 16;  // beside one message
// Limit of received descriptors whose frames have not been read; a correct peer needs fewer.
constexpr size_t kDescriptorsHeldMax = 128;
constexpr int kBacklog = 1024;
// Limits of SO_RCVLOWAT: below, wakeups are rare anyway; above, the sender would stall on the
// receive window.
constexpr size_t kMarkMin = 64 * kKiB;
constexpr size_t kMarkMax = 256 * kKiB;

Error lost(int err) {
  Error error = fail(Errc::unreachable, "{}", ::strerror(err));
  error.sys = err;
  return error;
}

// Close-on-exec: child processes must not keep the socket open.
Result<Fd> new_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return errno_error(errno, "socket");
  return fd;
}

void set_option(int fd, int level, int name, int value) {
  // Failures cost speed, not correctness.
  (void)::setsockopt(fd, level, name, &value, sizeof value);
}

Socket finished(Fd fd, const Address& fallback) {
  Socket socket;
  SocketAddress address;
  address.size = sizeof address.storage;
  if (fallback.is_unix()) {
    socket.peer = socket.local = fallback;
  } else {
    set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    socket.peer = fallback;
    if (::getpeername(fd.get(), address.get(), &address.size) == 0) {
      socket.peer = to_address(address);
    }
    address.size = sizeof address.storage;
    if (::getsockname(fd.get(), address.get(), &address.size) == 0) {
      socket.local = to_address(address);
    }
  }
  socket.fd = std::move(fd);
  return socket;
}

// sendfile(2) that never raises SIGPIPE, which send(2) with MSG_NOSIGNAL does not raise either.
ssize_t send_file(int socket, const FilePlace& file, size_t size) {
  sigset_t pipe, before, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigpending(&pending);
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  auto at = static_cast<off_t>(file.offset);
  ssize_t sent;
  do {
    sent = ::sendfile(socket, file.fd, &at, size);
  } while (sent < 0 && errno == EINTR);
  const int err = errno;
  constexpr timespec kNow = {};
  if (sent < 0 && err == EPIPE && sigismember(&pending, SIGPIPE) == 0) {
    (void)::sigtimedwait(&pipe, nullptr, &kNow);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = err;
  return sent;
}

// Connects to one numeric address; 0 or an errno.
Task<Result<int>> connect_one(Loop& loop, const Fd& fd, SocketAddress address) {
  int result = ::connect(fd.get(), address.get(), address.size);
  if (result == 0) co_return 0;
  if (errno != EINPROGRESS) co_return errno;
  FF_CO_TRY(const auto watch, loop.watch(fd.get()));
  watch->arm_writable();
  FF_CO_TRY(co_await watch->writable.wait());
  int err = 0;
  socklen_t size = sizeof err;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &err, &size) != 0) co_return errno;
  co_return err;
}

}  // namespace

Result<std::unique_ptr<SocketStream>> SocketStream::make(Loop& loop, Socket socket) {
  std::unique_ptr<SocketStream> stream(new SocketStream(std::move(socket)));
  FF_TRY(stream->watch_, loop.watch(stream->fd()));
  return stream;
}

Socket SocketStream::release() {
  watch_.reset();
  return std::move(socket_);
}

void SocketStream::keep_alive() {
  const auto set = [this](int level, int name, int value) {
    (void)::setsockopt(fd(), level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

Task<Result<void>> SocketStream::wait_for(size_t bytes) {
  drained_ = false;
  for (;;) {
    set_mark(bytes);
    int unread = 0;
    if (::ioctl(fd(), FIONREAD, &unread) != 0) co_return lost(errno);
    if (static_cast<size_t>(unread) >= bytes) break;
    pollfd end{.fd = fd(), .events = POLLRDHUP, .revents = 0};
    if (::poll(&end, 1, 0) > 0) co_return fail(Errc::unreachable, "the peer closed the connection");
    watch_->readable.reset();
    FF_CO_TRY(co_await watch_->readable.wait());
  }
  set_mark(1);
  co_return Result<void>();
}

Task<Result<void>> SocketStream::peek(ByteSpan into) {
  FF_CO_TRY(co_await wait_for(into.size()));
  if (::recv(fd(), into.data(), into.size(), MSG_PEEK) < 0) co_return lost(errno);
  co_return Result<void>();
}

Result<uint32_t> unix_peer_user(int fd) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return errno_error(errno, "the user of the peer");
  }
  return peer.uid;
}

SocketStream::~SocketStream() {
  for (const int fd : received_) ::close(fd);
}

Result<std::optional<size_t>> SocketStream::try_read(std::span<const ByteSpan> into) {
  if (std::exchange(drained_, false) && !watch_->readable.is_set()) return std::optional<size_t>();
  std::array<iovec, kPiecesMax> pieces;
  const size_t count = std::min(into.size(), kPiecesMax);
  size_t room = 0;
  for (size_t i = 0; i < count; i++) {
    pieces[i] = {into[i].data(), into[i].size()};
    room += into[i].size();
  }
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> control;
  msghdr message = {};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  if (carries_descriptors()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  ssize_t got;
  do {
    got = ::recvmsg(fd(), &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) {
    watch_->readable.reset();
    return std::optional<size_t>();
  }
  if (got < 0) return lost(errno);
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t fds = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < fds; i++) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(part) + i * sizeof(int), sizeof received);
      received_.push_back(received);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return errno_error(EMFILE, "a descriptor came beyond the limit on open files (ulimit -n)");
  }
  if (received_.size() > kDescriptorsHeldMax) {
    return fail(Errc::corrupt, "the peer sent {} file descriptors without frames for them",
                received_.size());
  }
  const auto size = static_cast<size_t>(got);
  // A short read has taken everything, so the next one need not ask the kernel. Exceptions: a read
  // ends behind the message of a descriptor, and the event of the end of the stream may be over.
  drained_ = size > 0 && size < room && message.msg_controllen == 0 && !watch_->hung_up;
  if (drained_) watch_->readable.reset();
  return std::optional(size);
}

Result<std::optional<size_t>> SocketStream::try_write(std::span<const ByteView> from) {
  return write_pieces(from, 0);
}

Result<std::optional<size_t>> SocketStream::try_write_file(std::span<const ByteView> head,
                                                           const FilePlace& file, size_t size) {
  size_t before = 0;
  if (!head.empty()) {
    size_t wanted = 0;
    for (const ByteView piece : head) wanted += piece.size();
    // The head leaves in the first packet of the file.
    FF_TRY(const auto wrote, write_pieces(head, MSG_MORE));
    if (!wrote || *wrote < wanted) return wrote;
    before = wanted;
  }
  const ssize_t sent = send_file(fd(), file, size);
  if (sent > 0) return std::optional(before + static_cast<size_t>(sent));
  if (sent == 0) return fail(Errc::corrupt, "a file ends before the bytes that are to be sent");
  const int err = errno;
  if (before > 0 && err == EAGAIN) return std::optional(before);
  return refused_write(err);
}

Result<std::optional<size_t>> SocketStream::refused_write(int err) {
  if (err != EAGAIN) return lost(err);
  watch_->arm_writable();
  return std::optional<size_t>();
}

Result<std::optional<size_t>> SocketStream::write_pieces(std::span<const ByteView> from,
                                                         int flags) {
  std::array<iovec, kPiecesMax> pieces;
  const size_t count = std::min(from.size(), kPiecesMax);
  for (size_t i = 0; i < count; i++) {
    pieces[i] = {const_cast<std::byte*>(from[i].data()), from[i].size()};
  }
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  const size_t fds = std::min(to_send_.size(), kDescriptorsMax);
  if (fds > 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds * sizeof(int));
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds * sizeof(int));
    for (size_t i = 0; i < fds; i++) {
      std::memcpy(CMSG_DATA(part) + i * sizeof(int), &to_send_[i], sizeof(int));
    }
  }
  ssize_t sent;
  do {
    sent = ::sendmsg(fd(), &message, MSG_NOSIGNAL | flags);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return refused_write(errno);
  to_send_.erase(to_send_.begin(), to_send_.begin() + static_cast<ptrdiff_t>(fds));
  return std::optional(static_cast<size_t>(sent));
}

void SocketStream::expect(size_t bytes) {
  if (socket_.peer.is_unix()) return;
  set_mark(bytes < kMarkMin ? 1 : std::min(bytes, kMarkMax));
}

// SO_RCVLOWAT (socket(7)): the kernel reports the socket readable only when this many bytes are
// there, and not for each packet of a large payload.
void SocketStream::set_mark(size_t mark) {
  if (mark == mark_) return;
  set_option(fd(), SOL_SOCKET, SO_RCVLOWAT, static_cast<int>(mark));
  mark_ = mark;
}

void SocketStream::close() {
  ::shutdown(fd(), SHUT_RDWR);
  watch_->readable.set();
  watch_->writable.set();
}

std::string SocketStream::peer() const {
  if (!socket_.peer_name.empty()) return socket_.peer_name;
  return fmt::format("{} ({})", socket_.peer.text(), socket_.peer.is_unix() ? "shm" : "tcp");
}

std::string SocketStream::local() const { return socket_.local.text(); }

std::optional<int> SocketStream::receive_descriptor() {
  if (received_.empty()) return std::nullopt;
  const int fd = received_.front();
  received_.pop_front();
  return fd;
}

Task<Result<Socket>> connect_socket(Loop& loop, Address address) {
  FF_CO_TRY(const auto found, co_await resolve(loop, address));
  std::string tried;
  for (const SocketAddress& next : found) {
    FF_CO_TRY(auto fd, new_socket(next.storage.ss_family));
    FF_CO_TRY(const int err, co_await connect_one(loop, fd, next));
    if (err == 0) co_return finished(std::move(fd), address);
    const std::string name = address.is_unix() ? address.text() : to_address(next).text();
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", name, ::strerror(err));
  }
  Error error = fail(Errc::unreachable, "{}",
                     tried.empty() ? address.text() + ": the name has no address" : tried);
  error.hint = "Check that the daemon runs there and that the port is open.";
  co_return error;
}

Result<std::unique_ptr<SocketListener>> SocketListener::listen(Loop& loop, const Address& address) {
  const auto numeric = numeric_address(address);
  if (!numeric) {
    Error error = fail(Errc::usage, "cannot listen on '{}': not a numeric address", address.text());
    error.hint = "Give an address of this machine, or *:PORT for all addresses.";
    return error;
  }
  const int family = numeric->storage.ss_family;
  FF_TRY(auto fd, new_socket(family));
  if (family != AF_UNIX) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (family == AF_INET6)
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, address.host.empty() ? 0 : 1);
  if (::bind(fd.get(), numeric->get(), numeric->size) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    const int err = errno;
    Error error = errno_error(err, "cannot listen on " + address.text());
    if (err == EADDRINUSE) {
      error.code = Errc::exists;
      error.hint = "Another program listens there; choose another port, or 0 for a free one.";
    }
    return error;
  }
  Address chosen = address;
  SocketAddress bound;
  bound.size = sizeof bound.storage;
  if (!address.is_unix() && ::getsockname(fd.get(), bound.get(), &bound.size) == 0) {
    chosen = to_address(bound);
  }
  return watch(loop, std::unique_ptr<SocketListener>(
                         new SocketListener(std::move(fd), std::move(chosen), true)));
}

Result<std::unique_ptr<SocketListener>> SocketListener::adopt(Loop& loop, InheritedSocket socket) {
  return watch(loop, std::unique_ptr<SocketListener>(new SocketListener(
                         std::move(socket.fd), std::move(socket.address), false)));
}

Result<std::unique_ptr<SocketListener>> SocketListener::watch(
    Loop& loop, std::unique_ptr<SocketListener> listener) {
  FF_TRY(listener->watch_, loop.watch(listener->fd_.get()));
  return listener;
}

SocketListener::~SocketListener() {
  watch_.reset();
  if (owns_path_ && address_.is_unix() && !address_.unix_path.starts_with('@')) {
    ::unlink(address_.unix_path.c_str());
  }
}

Task<Result<Socket>> SocketListener::accept() {
  for (;;) {
    Fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() >= 0) co_return finished(std::move(fd), address_);
    const int err = errno;
    if (err == EINTR || err == ECONNABORTED) continue;
    if (err != EAGAIN) co_return errno_error(err, "accept on " + address_.text());
    watch_->readable.reset();
    FF_CO_TRY(co_await watch_->readable.wait());
  }
}

}  // namespace ff::net
