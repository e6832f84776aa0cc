// Two connected sockets on one loop, for tests that build streams and connections over them.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "platform/base/gate.h"
#include "platform/net/socket.h"

namespace ff::net {

struct SocketEnds {
  Socket client;
  Socket server;
};

// An abstract one, of this process.
inline Address unix_test_address() { return {"", 0, fmt::format("@ff-test-{}", ::getpid())}; }

inline Task<Result<SocketEnds>> connect_both(Loop& loop, SocketListener& listener) {
  FF_CO_TRY(auto client, co_await connect_socket(loop, listener.address()));
  FF_CO_TRY(auto server, co_await listener.accept());
  SocketEnds ends;
  ends.client = std::move(client);
  ends.server = std::move(server);
  co_return ends;
}

inline SocketEnds connected_sockets(Loop& loop, const Address& address) {
  auto listener = SocketListener::listen(loop, address);
  FF_CHECK(listener.ok());
  auto ends = run_task(loop, connect_both(loop, **listener));
  FF_CHECK(ends.ok());
  return std::move(*ends);
}

inline std::unique_ptr<SocketStream> stream_of(Loop& loop, Socket socket) {
  auto stream = SocketStream::make(loop, std::move(socket));
  FF_CHECK(stream.ok());
  return std::move(*stream);
}

}  // namespace ff::net
