// accept.cc: the loop that accepts, and the start of TLS.
#include "platform/net/accept.h"

#include <utility>

#include "platform/base/log.h"
#include "platform/base/wait.h"

namespace ff::net {
namespace {

constexpr int64_t kAcceptPauseNs = 100 * kMillisecond;
constexpr int64_t kTlsHandshakeNs = 10 * kSecond;

Task<Result<std::unique_ptr<Stream>>> accept_tls(std::unique_ptr<SocketStream> socket,
                                                 std::shared_ptr<const TlsContext> context) {
  FF_CO_TRY(auto stream, co_await TlsStream::accept(std::move(socket), std::move(context)));
  co_return std::unique_ptr<Stream>(std::move(stream));
}

}  // namespace

Task<void> accept_sockets(Gate& gate, SocketListener& listener, std::function<void(Socket)> use) {
  for (;;) {
    auto socket = co_await listener.accept();
    if (gate.cancellation().requested()) co_return;
    if (socket) {
      use(std::move(*socket));
      continue;
    }
    log_warning("accept failed",
                {{"address", listener.address().text()}, {"error", socket.error().message}});
    if (!co_await sleep_for(gate.loop(), kAcceptPauseNs)) co_return;
  }
}

Task<Result<std::unique_ptr<Stream>>> open_accepted(
    Loop& loop, Socket socket, std::shared_ptr<const TlsContext> certificates) {
  FF_CO_TRY(auto plain, SocketStream::make(loop, std::move(socket)));
  plain->keep_alive();
  if (certificates == nullptr) co_return std::unique_ptr<Stream>(std::move(plain));
  co_return co_await with_deadline(loop, loop.now_ns() + kTlsHandshakeNs, "the TLS handshake",
                                   accept_tls(std::move(plain), std::move(certificates)));
}

}  // namespace ff::net
