// tcp.cc: sockets become connections as they are.
#include "net/tcp.h"

#include <utility>

#include "net/socket.h"

namespace ff::net {

namespace {

Result<std::unique_ptr<Connection>> plain(Loop& loop, Socket socket) {
  FF_TRY(auto stream, SocketStream::make(loop, std::move(socket)));
  return std::make_unique<Connection>(loop, std::move(stream), nullptr);
}

class TcpArrival final : public Arrival {
 public:
  explicit TcpArrival(Socket socket) : peer_(socket.peer.text()), socket_(std::move(socket)) {}

  std::string peer() const override { return peer_; }
  Task<Result<std::unique_ptr<Connection>>> open(Loop& loop) override {
    co_return plain(loop, std::move(socket_));
  }

 private:
  const std::string peer_;
  Socket socket_;
};

class TcpListener final : public Listener {
 public:
  explicit TcpListener(std::unique_ptr<SocketListener> listener) : listener_(std::move(listener)) {}

  const Address& address() const override { return listener_->address(); }
  Task<Result<std::unique_ptr<Arrival>>> accept() override {
    FF_CO_TRY(auto socket, co_await listener_->accept());
    std::unique_ptr<Arrival> arrival = std::make_unique<TcpArrival>(std::move(socket));
    co_return arrival;
  }

 private:
  std::unique_ptr<SocketListener> listener_;
};

}  // namespace

Task<Result<std::unique_ptr<Connection>>> TcpTransport::connect(Loop& loop, Address to) {
  FF_CO_TRY(auto socket, co_await connect_socket(loop, std::move(to)));
  co_return plain(loop, std::move(socket));
}

Result<std::unique_ptr<Listener>> TcpTransport::listen(Loop& loop, const Address& at) {
  FF_TRY(auto listener, SocketListener::listen(loop, at));
  return std::unique_ptr<Listener>(std::make_unique<TcpListener>(std::move(listener)));
}

}  // namespace ff::net
