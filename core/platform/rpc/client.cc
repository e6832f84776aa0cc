// client.cc: connecting, once for all who wait, and backing off.
#include "platform/rpc/client.h"

#include <fmt/format.h>

#include <algorithm>

namespace ff::rpc {

std::shared_ptr<Caller> new_caller(Rng& rng) {
  return std::make_shared<Caller>(Caller{.id = caller_id(rng), .connection = 0});
}

Client::Client(ClientContext& context, net::Address address, std::shared_ptr<Caller> caller)
    : context_(context),
      address_(std::move(address)),
      caller_(caller == nullptr ? new_caller(context.rng) : std::move(caller)),
      attempted_(context.loop),
      gate_(context.loop) {}

Client::~Client() = default;

Task<void> Client::close() {
  Error reason = fail(Errc::unreachable, "{}: the client was closed", address_.text());
  co_await gate_.close(std::move(reason));
  if (channel_ != nullptr) co_await channel_->close();
}

Task<Result<std::shared_ptr<Channel>>> Client::channel(int64_t deadline_ns) {
  if (channel_ != nullptr && context_.loop.now_ns() - channel_->heard_ns() > kQuietNs) {
    // What has arrived while this loop did something else, a goodbye perhaps, is read first.
    YieldWait look(context_.loop);
    FF_CO_TRY(co_await look);
  }
  const uint64_t before = begun_;
  while (channel_ == nullptr || !channel_->usable()) {
    if (ended_ > before && !outcome_) co_return outcome_.error();
    if (!connecting_) {
      connecting_ = true;
      attempted_.reset();
      gate_.spawn(connect());
    }
    std::string what = fmt::format("{}: no connection in time", address_.text());
    if (!outcome_) what += fmt::format(" (the last attempt: {})", outcome_.error().message);
    auto end = wait_for(attempted_);
    FF_CO_TRY(co_await with_deadline(context_.loop, deadline_ns, std::move(what), std::move(end)));
  }
  co_return channel_;
}

Task<void> Client::connect() {
  // An old channel may still have calls under way: who holds it lets it end.
  channel_.reset();
  const auto waited = co_await until(context_.loop, not_before_ns_);
  begun_++;
  Result<std::shared_ptr<Channel>> made = std::shared_ptr<Channel>();
  if (waited) {
    made = co_await attempt();
  } else {
    made = waited.error();
  }
  if (made) {
    channel_ = std::move(*made);
    outcome_ = {};
    backoff_.reset();
    not_before_ns_ = 0;
  } else {
    outcome_ = std::move(made).error();
    // The attempt's own time was up, not that of any call.
    if (outcome_.error().code == Errc::deadline) outcome_.error().code = Errc::unreachable;
    not_before_ns_ = context_.loop.now_ns() + backoff_.pause_ns();
  }
  context_.metrics
      .counter("ff_rpc_connects_total", "Attempts to connect, by how they ended",
               {{"code", std::string(outcome_ ? "ok" : errc_name(outcome_.error().code))}})
      .add();
  connecting_ = false;
  ended_ = begun_;
  attempted_.set();
}

Task<Result<std::shared_ptr<Channel>>> Client::attempt() {
  const int64_t deadline_ns = context_.loop.now_ns() + kHandshakeNs;
  auto connecting = context_.transport.connect(context_.loop, address_);
  std::string what = fmt::format("{}: no answer to a connect", address_.text());
  FF_CO_TRY(auto connection, co_await with_deadline(context_.loop, deadline_ns, std::move(what),
                                                    std::move(connecting)));
  caller_->connection++;
  auto handshake = client_handshake(*connection, context_.self, *caller_);
  auto peer = co_await std::move(handshake);
  if (!peer) {
    count_broken(*connection, context_.metrics);
    co_return std::move(peer).error();
  }
  co_return std::make_shared<Channel>(std::move(connection), std::move(*peer), context_.senders,
                                      context_.calls);
}

}  // namespace ff::rpc
