// client.cc: connects once for all waiting calls, with backoff.
#include "platform/rpc/client.h"

#include <fmt/format.h>

#include <algorithm>

namespace ff::rpc {

namespace {

// How long before the end of its ticket a client makes a new connection with a newer ticket: if no
// call is in flight, and otherwise.
constexpr int64_t kRenewIdleSeconds = 600, kRenewSeconds = 120;

}  // namespace

std::shared_ptr<ClientInstance> new_client_instance(Rng& rng) {
  return std::make_shared<ClientInstance>(
      ClientInstance{.id = new_client_id(rng), .connection = 0});
}

Client::Client(ClientContext& context, net::Address address, auth::Service service,
               std::shared_ptr<ClientInstance> instance)
    : context_(context),
      address_(std::move(address)),
      service_(std::move(service)),
      instance_(instance == nullptr ? new_client_instance(context.rng) : std::move(instance)),
      attempted_(context.loop),
      gate_(context.loop) {}

Client::~Client() = default;

Task<void> Client::close() {
  Error reason = fail(Errc::unreachable, "{}: the client was closed", address_.text());
  co_await gate_.close(std::move(reason));
  if (channel_ != nullptr) co_await channel_->close();
}

Task<Result<std::shared_ptr<Channel>>> Client::channel(int64_t deadline_ns) {
  if (channel_ != nullptr &&
      context_.loop.now_ns() - channel_->last_receive_ns() > kStaleChannelNs) {
    // First reads what has arrived while this loop was busy, possibly a goaway.
    YieldWait look(context_.loop);
    FF_CO_TRY(co_await look);
  }
  const uint64_t before = begun_;
  while (channel_ == nullptr || !channel_->usable() || has_newer_credential()) {
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

int64_t Client::credential_end_s() const {
  const auth::Keyring* const keyring = context_.transport.keyring();
  return keyring == nullptr ? 0 : keyring->credential_end_s(service_);
}

bool Client::has_newer_credential() const {
  if (channel_end_s_ == 0) return false;
  // A new connection ends the calls of the old one, so an idle moment is better.
  const int64_t before_s = channel_->calls() == 0 ? kRenewIdleSeconds : kRenewSeconds;
  const int64_t now_s = context_.loop.clock().wall_ns() / kSecond;
  return now_s >= channel_end_s_ - before_s && credential_end_s() > channel_end_s_;
}

Task<void> Client::connect() {
  // The old channel may still have calls in flight; their tasks keep it alive.
  channel_.reset();
  const auto waited = co_await sleep_until(context_.loop, not_before_ns_);
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
    // The deadline was that of the attempt, not of a call.
    if (outcome_.error().code == Errc::deadline) outcome_.error().code = Errc::unreachable;
    not_before_ns_ = context_.loop.now_ns() + backoff_.next_delay_ns();
  }
  context_.metrics
      .counter("ff_rpc_connects_total", "Attempts to connect, by how they ended",
               {{"code", std::string(outcome_ ? "ok" : errc_name(outcome_.error().code))}})
      .add();
  connecting_ = false;
  ended_ = begun_;
  attempted_.set();
}

// The first shard serves, and tells the choice to, a client that does not name one. After a failure
// the client names none, either: an older version may serve there now, which would not understand.
Task<Result<std::shared_ptr<Channel>>> Client::attempt() {
  net::Address address = address_;
  const bool knows = shard_.value_or(0) != 0 && !failed_;
  if (knows) address.shard = shard_;
  auto made = co_await open_channel(address);
  failed_ = !made;
  if (!made || knows || (*made)->peer().choice.count == 0) co_return made;
  const ShardChoice choice = (*made)->peer().choice;
  if (!shard_ || *shard_ >= choice.count) shard_ = choice.shard;
  if (*shard_ == 0) co_return made;
  co_await (*made)->close();
  address.shard = shard_;
  made = co_await open_channel(std::move(address));
  failed_ = !made;
  co_return made;
}

Task<Result<std::shared_ptr<Channel>>> Client::open_channel(net::Address address) {
  const int64_t deadline_ns = context_.loop.now_ns() + kHandshakeNs;
  channel_end_s_ = credential_end_s();
  auto connecting = context_.transport.connect(context_.loop, address, service_);
  std::string what = fmt::format("{}: no answer to a connect", address.text());
  FF_CO_TRY(auto connection, co_await with_deadline(context_.loop, deadline_ns, std::move(what),
                                                    std::move(connecting)));
  instance_->connection++;
  auto peer = co_await client_handshake(*connection, context_.self, *instance_);
  if (!peer) {
    count_protocol_fault(*connection, context_.metrics);
    const auth::Keyring* const keyring = context_.transport.keyring();
    if (peer.error().code == Errc::refused && keyring != nullptr && !keyring->file().empty()) {
      peer.error().message += fmt::format(" (the key file here is {})", keyring->file());
    }
    co_return std::move(peer).error();
  }
  co_return std::make_shared<Channel>(std::move(connection), std::move(*peer), context_.grants,
                                      context_.calls);
}

}  // namespace ff::rpc
