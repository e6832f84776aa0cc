// Streams over TCP and Unix sockets: connecting, listening, and the stream itself.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/fd.h"
#include "platform/base/fd_watch.h"
#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/net/address.h"
#include "platform/net/inherited_sockets.h"
#include "platform/net/stream.h"

namespace ff::net {

// A socket that is not bound to a loop: accept() can hand it to the loop of another thread.
struct Socket {
  Fd fd;
  Address peer;
  Address local;
  std::string peer_name = {};  // for messages; empty: the address with "(tcp)" or "(shm)"
};

// Unix sockets: the effective user id of the process that connected, or that listens (SO_PEERCRED,
// unix(7)); as this process's user namespace has it.
Result<uint32_t> unix_peer_user(int fd);

class SocketStream final : public Stream {
 public:
  static Result<std::unique_ptr<SocketStream>> make(Loop& loop, Socket socket);
  ~SocketStream() override;

  Result<std::optional<size_t>> try_read(std::span<const ByteSpan> into) override;
  Result<std::optional<size_t>> try_write(std::span<const ByteView> from) override;
  bool writes_files() const override { return !socket_.peer.is_unix(); }
  Result<std::optional<size_t>> try_write_file(std::span<const ByteView> head,
                                               const FilePlace& file, size_t size) override;
  Event& readable() override { return watch_->readable; }
  Event& writable() override { return watch_->writable; }
  void expect(size_t bytes) override;
  void close() override;
  std::string peer() const override;
  std::string local() const override;
  bool carries_descriptors() const override { return socket_.peer.is_unix(); }
  void send_descriptor(int fd) override { to_send_.push_back(fd); }
  std::optional<int> receive_descriptor() override;

  int fd() const { return socket_.fd.get(); }
  // The socket, for another loop; the stream is not usable any more.
  Socket release();
  // TCP keep-alive that detects a dead machine of an idle peer within half a minute.
  void keep_alive();
  // Waits until this many bytes can be read, at most 4 KiB. Errc::unreachable: the peer has closed
  // its side before.
  Task<Result<void>> wait_for(size_t bytes);
  // The same, and copies them; they stay unread.
  Task<Result<void>> peek(ByteSpan into);
  const Address& peer_address() const { return socket_.peer; }

 private:
  explicit SocketStream(Socket socket) : socket_(std::move(socket)) {}
  void set_mark(size_t mark);
  Result<std::optional<size_t>> write_pieces(std::span<const ByteView> from, int flags);
  Result<std::optional<size_t>> refused_write(int err);

  Socket socket_;
  size_t mark_ = 1;       // SO_RCVLOWAT
  bool drained_ = false;  // the last read has taken all bytes: an event announces further ones
  std::unique_ptr<FdWatch> watch_;
  std::deque<int> to_send_;
  std::deque<int> received_;
};

// Errc::unreachable: the message names the address and every numeric address that was tried.
Task<Result<Socket>> connect_socket(Loop& loop, Address address);

class SocketListener {
 public:
  // Port 0: the kernel chooses a free port. Errc::refused, Errc::exists (the address is in use),
  // Errc::failed.
  static Result<std::unique_ptr<SocketListener>> listen(Loop& loop, const Address& address);
  // The path of a Unix socket stays when the listener ends: it belongs to who made the socket.
  static Result<std::unique_ptr<SocketListener>> adopt(Loop& loop, InheritedSocket socket);
  ~SocketListener();

  Task<Result<Socket>> accept();
  // With the port that the kernel chose.
  const Address& address() const { return address_; }

 private:
  SocketListener(Fd fd, Address address, bool owns_path)
      : fd_(std::move(fd)), address_(std::move(address)), owns_path_(owns_path) {}
  static Result<std::unique_ptr<SocketListener>> watch(Loop& loop,
                                                       std::unique_ptr<SocketListener> listener);

  Fd fd_;
  Address address_;
  bool owns_path_;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace ff::net
