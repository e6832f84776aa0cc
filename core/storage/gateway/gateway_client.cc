// gateway_client.cc: sends and receives at the same time, so that neither end waits for the other.
#include "storage/gateway/gateway_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/task_group.h"
#include "platform/net/address.h"
#include "platform/net/socket.h"

namespace ff::gateway {

namespace {

constexpr int64_t kGatewayConnectNs = 10 * kSecond;
constexpr size_t kPieceWord = 4 * kKiB;  // longer words are sent from where they are
constexpr size_t kPiecesAtOnce = 64;
constexpr size_t kReceiveBytes = 64 * kKiB;
constexpr size_t kReplyLine = 64 * kKiB;

}  // namespace

void GatewayClient::Outgoing::add(const Words& words) {
  if (texts.empty()) texts.push_back(std::make_unique<std::string>());
  *texts.back() += fmt::format("*{}\r\n", words.size());
  for (const std::string_view word : words) {
    *texts.back() += fmt::format("${}\r\n", word.size());
    if (word.size() < kPieceWord) {
      *texts.back() += word;
    } else {
      finish();
      pieces.push_back(as_bytes(word));
      texts.push_back(std::make_unique<std::string>());
    }
    *texts.back() += "\r\n";
  }
}

void GatewayClient::Outgoing::finish() {
  if (!texts.empty() && !texts.back()->empty()) pieces.push_back(as_bytes(*texts.back()));
}

GatewayClient::GatewayClient(Loop& loop, std::string address, const GatewayAccess& access)
    : loop_(loop), address_(std::move(address)), access_(access), calling_(loop, 1) {}

Task<Result<std::unique_ptr<net::Stream>>> GatewayClient::open_stream() {
  FF_CO_TRY(const net::Address address, net::parse_address(address_));
  FF_CO_TRY(net::Socket socket, co_await net::connect_socket(loop_, address));
  FF_CO_TRY(auto plain, net::SocketStream::make(loop_, std::move(socket)));
  plain->keep_alive();
  if (access_.certificates == nullptr) co_return std::unique_ptr<net::Stream>(std::move(plain));
  net::TlsServer server;
  server.host = address.host;
  FF_CO_TRY(auto secure, co_await net::TlsStream::connect(std::move(plain), access_.certificates,
                                                          std::move(server)));
  co_return std::unique_ptr<net::Stream>(std::move(secure));
}

Task<Result<void>> GatewayClient::connect() {
  received_.clear();
  parsed_ = 0;
  FF_CO_TRY(stream_, co_await with_deadline(loop_, loop_.now_ns() + kGatewayConnectNs,
                                            "no connection within 10 s", open_stream()));
  if (access_.password.empty()) co_return {};
  const Words auth = {"AUTH", access_.password};
  FF_CO_TRY(const auto replies, co_await exchange(std::span(&auth, 1)));
  if (!replies.front().is_error) co_return {};
  co_return fail(Errc::refused, "it does not accept the key: {}", replies.front().text);
}

Task<Result<std::vector<GatewayClient::Reply>>> GatewayClient::call(
    std::span<const Words> requests) {
  FF_CO_TRY(const auto permit, co_await calling_.acquire(1));
  Result<void> connected;
  if (stream_ == nullptr) connected = co_await connect();
  Result<std::vector<Reply>> replies = std::vector<Reply>();
  if (connected) {
    replies = co_await exchange(requests);
  } else {
    replies = std::move(connected).error();
  }
  if (!replies) {
    stream_ = nullptr;
    co_return std::move(replies).error().with_context(fmt::format("gateway {}: ", address_));
  }
  co_return replies;
}

Task<Result<std::vector<GatewayClient::Reply>>> GatewayClient::exchange(
    std::span<const Words> requests) {
  Outgoing outgoing;
  for (const Words& words : requests) outgoing.add(words);
  outgoing.finish();
  std::vector<Reply> replies;
  TaskGroup both(loop_);
  both.add(send(outgoing.pieces));
  both.add(receive(requests.size(), replies));
  FF_CO_TRY(co_await both.join());
  co_return replies;
}

Task<Result<void>> GatewayClient::send(std::vector<ByteView>& pieces) {
  for (size_t next = 0; next < pieces.size();) {
    const size_t count = std::min(kPiecesAtOnce, pieces.size() - next);
    const auto wrote = stream_->try_write(std::span(pieces).subspan(next, count));
    if (!wrote) {
      stream_->close();  // nobody need wait for replies
      co_return wrote.error();
    }
    if (!*wrote) {
      FF_CO_TRY(co_await stream_->writable().wait());
      continue;
    }
    size_t left = **wrote;
    while (next < pieces.size() && left >= pieces[next].size()) left -= pieces[next++].size();
    if (left > 0) pieces[next] = pieces[next].subspan(left);
  }
  co_return {};
}

Task<Result<std::string>> GatewayClient::next_line() {
  for (;;) {
    const size_t end = received_.find("\r\n", parsed_);
    if (end != std::string::npos) {
      std::string line = received_.substr(parsed_, end - parsed_);
      parsed_ = end + 2;
      co_return line;
    }
    received_.erase(0, std::exchange(parsed_, 0));
    const size_t had = received_.size();
    if (had > kReplyLine) co_return fail(Errc::corrupt, "a reply without an end");
    received_.resize(had + kReceiveBytes);
    const ByteSpan into = std::as_writable_bytes(std::span(received_)).subspan(had);
    const auto got = stream_->try_read({&into, 1});
    received_.resize(had + (got ? got->value_or(0) : 0));
    if (!got) co_return got.error();
    if (!*got) {
      FF_CO_TRY(co_await stream_->readable().wait());
    } else if (**got == 0) {
      co_return fail(Errc::unreachable, "it has closed the connection");
    }
  }
}

Task<Result<void>> GatewayClient::receive(size_t count, std::vector<Reply>& replies) {
  while (replies.size() < count) {
    auto line = co_await next_line();
    if (line && !line->empty() && std::string_view("+-:").find(line->front()) < 3) {
      replies.push_back({.is_error = line->front() == '-', .text = line->substr(1)});
      continue;
    }
    stream_->close();  // nobody need send on
    if (!line) co_return line.error();
    co_return fail(Errc::corrupt, "its reply is not what Redis replies");
  }
  co_return {};
}

}  // namespace ff::gateway
