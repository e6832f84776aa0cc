// server.cc: accepts connections, and reads one request after the other on each.
#include "platform/http/server.h"

#include <array>
#include <functional>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/wait.h"
#include "platform/net/accept.h"

namespace ff::http {

namespace {

constexpr int64_t kIdleNs = 75 * kSecond;  // between requests
constexpr int64_t kHeadNs = 30 * kSecond;  // from the first byte of a head to its end
constexpr int64_t kSkipNs = 10 * kSecond;  // for the rest of a body that nobody wants
constexpr uint64_t kSkipBytes = 16 * kMiB;
constexpr int64_t kDrainPollNs = 5 * kMillisecond;
constexpr size_t kBufferBytes = 128 * kKiB;
static_assert(kBufferBytes >= kHeadMax);

}  // namespace

RequestServer::RequestServer(Loop& loop, Handler& handler, ServerOptions options)
    : loop_(loop),
      handler_(handler),
      options_(std::move(options)),
      accept_gate_(loop),
      connection_gate_(loop) {}

RequestServer::~RequestServer() = default;

Result<net::Address> RequestServer::listen(const net::Address& address) {
  FF_TRY(listener_, net::SocketListener::listen(loop_, address));
  address_ = listener_->address();
  return address_;
}

Result<net::Address> RequestServer::listen(net::InheritedSocket socket) {
  FF_TRY(listener_, net::SocketListener::adopt(loop_, std::move(socket)));
  address_ = listener_->address();
  return address_;
}

void RequestServer::start() {
  accept_gate_.spawn(
      net::accept_sockets(accept_gate_, *listener_, std::bind_front(&RequestServer::admit, this)));
}

Task<void> RequestServer::close(int64_t drain_ns) {
  closing_ = true;
  Error reason = fail(Errc::interrupted, "the server goes down");
  co_await accept_gate_.close(reason);
  listener_.reset();
  idle_.request(reason);
  const int64_t until_ns = loop_.now_ns() + drain_ns;
  while (connection_gate_.running() > 0 && loop_.now_ns() < until_ns) {
    if (!co_await sleep_for(loop_, kDrainPollNs)) break;
  }
  co_await connection_gate_.close(std::move(reason));
}

void RequestServer::admit(net::Socket socket) {
  if (open_ >= options_.connections_max) return;
  open_++;
  connection_gate_.spawn(serve(std::move(socket)));
}

Task<void> RequestServer::serve(net::Socket socket) {
  auto stream = co_await net::open_accepted(loop_, std::move(socket), options_.certificates);
  if (stream) co_await serve_stream(**stream);
  open_--;
}

Task<void> RequestServer::serve_stream(net::Stream& stream) {
  const auto served = co_await serve_requests(stream);
  if (!served) {
    log_debug("connection ended", {{"peer", stream.peer()}, {"error", served.error().message}});
  }
  stream.close();
}

Task<Result<void>> RequestServer::serve_requests(net::Stream& stream) {
  ReadBuffer buffer(kBufferBytes);
  for (bool goes_on = true; goes_on && !closing_;) {
    FF_CO_TRY(goes_on, co_await serve_request(stream, buffer));
  }
  co_return Result<void>();
}

// Empty: the client has closed its side, or sends no further request.
Task<Result<std::string>> RequestServer::read_head(net::Stream& stream, ReadBuffer& buffer) {
  int64_t until_ns = loop_.now_ns() + (buffer.unread().empty() ? kIdleNs : kHeadNs);
  for (;;) {
    const std::string_view text = as_text(buffer.unread());
    const auto end = head_end(text.substr(0, kHeadMax));
    if (end) {
      std::string head(text.substr(0, *end));
      buffer.consume(*end);
      co_return head;
    }
    if (text.size() >= kHeadMax) co_return fail(Errc::busy, "the head of the request is too long");
    const bool first = text.empty();
    const std::array<ByteSpan, 1> space = {buffer.space()};
    FF_CO_TRY(const auto got, stream.try_read(space));
    if (!got) {
      FF_CO_TRY(co_await stream.readable().wait(until_ns));
      continue;
    }
    if (*got == 0) co_return std::string();
    if (first) until_ns = loop_.now_ns() + kHeadNs;
    buffer.commit(*got);
  }
}

Task<Result<void>> RequestServer::refuse(net::Stream& stream, int status, std::string why) {
  ReadBuffer nothing(1);
  RequestHead head;
  Exchange exchange(loop_, stream, nothing, std::move(head), 0);
  exchange.close_after();
  const std::string body = handler_.refusal_body(status, why);
  ReplyHead reply = handler_.refusal(status);
  co_return co_await exchange.reply(std::move(reply), body);
}

// Whether the connection goes on behind this exchange.
Task<Result<bool>> RequestServer::finish(Exchange& exchange) {
  if (!exchange.complete()) co_return false;
  const auto skipped = co_await exchange.skip_body(kSkipBytes, loop_.now_ns() + kSkipNs);
  co_return skipped&&* skipped&& exchange.keeps();
}

Task<Result<bool>> RequestServer::serve_request(net::Stream& stream, ReadBuffer& buffer) {
  auto text = co_await read_head(stream, buffer).with_cancellation(idle_);
  if (!text && text.error().code == Errc::busy) {
    FF_CO_TRY(co_await refuse(stream, 431, text.error().message));
    co_return false;
  }
  if (!text) co_return std::move(text).error();
  if (text->empty()) co_return false;
  auto head = parse_head(*text);
  if (!head) {
    FF_CO_TRY(co_await refuse(stream, 400, head.error().message));
    co_return false;
  }
  const auto body = body_length(*head);
  if (!body) {
    FF_CO_TRY(co_await refuse(stream, 400, body.error().message));
    co_return false;
  }
  Exchange exchange(loop_, stream, buffer, std::move(*head), *body);
  if (closing_) exchange.close_after();
  co_await handler_.handle(exchange);
  co_return co_await finish(exchange);
}

}  // namespace ff::http
