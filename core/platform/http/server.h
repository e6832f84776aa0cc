// An HTTP/1.1 server on a loop, for bodies of any size in both directions: connections stay open
// between requests, clients may use TLS, and one that is slow, sends too much or leaves costs only
// its own connection. The status pages of daemons have a server of their own (rpc/http.h), which
// answers while the loop is busy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "platform/base/gate.h"
#include "platform/base/result.h"
#include "platform/http/exchange.h"
#include "platform/net/address.h"
#include "platform/net/socket.h"
#include "platform/net/tls.h"

namespace ff::http {

// Answers requests. What it leaves without a reply ends the connection.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual Task<void> handle(Exchange& exchange) = 0;
  // The reply to a request whose head is not valid.
  virtual ReplyHead refusal(int status) = 0;
  virtual std::string refusal_body(int status, const std::string& why) = 0;
};

struct ServerOptions {
  size_t connections_max = 1000;  // more are closed at once
  // Null: without TLS.
  std::shared_ptr<const net::TlsContext> certificates = {};
};

// Owned by one loop.
class RequestServer {
 public:
  // All arguments outlive it.
  RequestServer(Loop& loop, Handler& handler, ServerOptions options);
  // Only after close().
  ~RequestServer();
  RequestServer(const RequestServer&) = delete;
  RequestServer& operator=(const RequestServer&) = delete;

  // Returns the address with the port that the kernel chose. Clients that connect wait for start().
  Result<net::Address> listen(const net::Address& address);
  Result<net::Address> listen(net::InheritedSocket socket);
  void start();
  // Serves one connection until it ends; for tests, which have streams of their own.
  Task<void> serve_stream(net::Stream& stream);
  // Accepts no more requests, waits up to `drain_ns` for those under way, and ends the rest.
  Task<void> close(int64_t drain_ns);

  size_t connections() const { return open_; }

 private:
  void admit(net::Socket socket);
  Task<void> serve(net::Socket socket);
  Task<Result<void>> serve_requests(net::Stream& stream);
  Task<Result<bool>> serve_request(net::Stream& stream, ReadBuffer& buffer);
  Task<Result<std::string>> read_head(net::Stream& stream, ReadBuffer& buffer);
  Task<Result<void>> refuse(net::Stream& stream, int status, std::string why);
  Task<Result<bool>> finish(Exchange& exchange);

  Loop& loop_;
  Handler& handler_;
  const ServerOptions options_;
  net::Address address_;
  std::unique_ptr<net::SocketListener> listener_;
  size_t open_ = 0;
  bool closing_ = false;
  CancellationToken idle_;  // of the waits for requests
  Gate accept_gate_;
  Gate connection_gate_;
};

}  // namespace ff::http
