// server_connection.cc: from the frame of a call to the frame of its reply.
#include "platform/rpc/server_connection.h"

#include <fmt/format.h>

#include "platform/auth/revocations.h"
#include "platform/base/audit.h"
#include "platform/base/clock.h"
#include "platform/rpc/error_wire.h"
#include "platform/rpc/grant_scheduler.h"

namespace ff::rpc {

ServerCall::ServerCall(ServerConnection& connection, const net::FrameHeader& head,
                       int64_t longest_ns)
    : connection_(connection),
      number_(head.call),
      began_ns_(loop().now_ns()),
      deadline_ns_(began_ns_ + (head.deadline_ms == 0
                                    ? longest_ns
                                    : std::min(longest_ns, head.deadline_ms * kMillisecond))),
      granted_((head.flags & net::kFlagGranted) != 0),
      grant_(loop()),
      scope_(loop(), &connection.call_gate_.cancellation(), deadline_ns_,
             "the time of the call has passed") {}

Loop& ServerCall::loop() const { return connection_.loop(); }

const Peer& ServerCall::peer() const { return connection_.peer(); }

Gate& ServerCall::gate() { return connection_.call_gate_; }

Task<Result<void>> ServerCall::push(net::RemoteBuffer sink, uint64_t offset, ByteView from) {
  auto pushing = push_here(sink, offset, from);
  if (away_ == nullptr) co_return co_await std::move(pushing);
  co_return co_await run_on(*away_, gate(), std::move(pushing));
}

Task<Result<void>> ServerCall::pull(net::RemoteBuffer source, uint64_t offset, ByteSpan into) {
  auto pulling = pull_here(source, offset, into);
  if (away_ == nullptr) co_return co_await std::move(pulling);
  co_return co_await run_on(*away_, gate(), std::move(pulling));
}

Task<Result<void>> ServerCall::push_here(net::RemoteBuffer sink, uint64_t offset, ByteView from) {
  net::Connection& connection = connection_.connection();
  if (!granted_ && from.size() > kUngrantedMax && !connection.same_host()) {
    if (!grant_requested_)
      connection.send({.kind = net::FrameKind::request_to_send, .call = number_});
    grant_requested_ = true;
    FF_CO_TRY(co_await grant_.wait());
    granted_ = true;
  }
  if (loop().now_ns() >= deadline_ns_) {
    co_return fail(Errc::deadline, "the time of the call has passed");
  }
  co_return co_await connection.push(sink, offset, from);
}

Task<Result<void>> ServerCall::pull_here(net::RemoteBuffer source, uint64_t offset, ByteSpan into) {
  const int64_t enough_ns = kPullNs + static_cast<int64_t>(into.size() / kMiB) * kSecond;
  auto pulling = connection_.connection().pull(source, offset, into);
  co_return co_await with_deadline(loop(), loop().now_ns() + enough_ns,
                                   "the client does not send the data of its call",
                                   std::move(pulling));
}

std::optional<net::Connection::MappedMemory> ServerCall::mapped_memory(
    const net::RemoteBuffer& buffer) {
  if (away_ != nullptr) return std::nullopt;
  return connection_.connection().mapped_memory(buffer);
}

void Router::add(uint32_t method, std::string_view name, Handler handler, auth::Roles roles) {
  Route route{std::string(name), std::move(handler), roles};
  const bool added = routes_.emplace(method, std::move(route)).second;
  FF_CHECK(added);
}

const Route* Router::find(uint32_t method) const {
  const auto found = routes_.find(method);
  return found == routes_.end() ? nullptr : &found->second;
}

ServerMethods::ServerMethods(const Router& router, Metrics& metrics)
    : router_(router), metrics_(metrics), unknown_(make(nullptr)) {}

ServerMethods::Entry ServerMethods::make(const Route* route) {
  return {route,
          CallCounters(metrics_, "ff_rpc_server_calls_total", "Calls answered, by how they ended",
                       route == nullptr ? "unknown" : route->name),
          nullptr};
}

ServerMethods::Entry& ServerMethods::find(uint32_t method) {
  const auto found = methods_.find(method);
  if (found != methods_.end()) return found->second;
  const Route* const route = router_.find(method);
  if (route == nullptr) return unknown_;
  return methods_.emplace(method, make(route)).first->second;
}

void ServerMethods::record(Entry& entry, const Result<std::string>& result, int64_t ns) {
  entry.calls.add(result);
  if (entry.seconds == nullptr) {
    entry.seconds = &metrics_.histogram("ff_rpc_server_seconds", "From a call's frame to its reply",
                                        {{"method", entry.calls.method()}});
  }
  entry.seconds->observe_ns(ns);
}

ServerConnection::ServerConnection(std::unique_ptr<net::Connection> connection, Peer peer,
                                   ServerMethods& methods, ServerConnectionLimits limits,
                                   const auth::Keyring* keyring, CallThrottle* throttle)
    : RpcConnection(std::move(connection), std::move(peer), methods.metrics()),
      methods_(methods),
      limits_(limits),
      keyring_(keyring),
      throttle_(throttle),
      disconnected_(loop()),
      call_gate_(loop()) {
  start();
}

Task<void> ServerConnection::run() {
  // If cancelled, the server is shutting down and has stopped the connection.
  (void)co_await disconnected_.wait();
  Error reason = fail(Errc::unreachable, "{}: the connection is gone", peer().text());
  co_await call_gate_.close(std::move(reason));
  co_await finish();
}

void ServerConnection::drain() {
  draining_ = true;
  connection().send({.kind = net::FrameKind::goaway});
}

void ServerConnection::stop(Error reason) {
  connection().close(std::move(reason));
  disconnected_.set();
}

void ServerConnection::on_disconnect(const Error&) { disconnected_.set(); }

Result<void> ServerConnection::handle_frame(net::Frame frame) {
  const auto found = calls_.find(frame.head.call);
  switch (frame.head.kind) {
    case net::FrameKind::call:
      if (found != calls_.end()) {
        return fail(Errc::corrupt, "call {} was made twice", frame.head.call);
      }
      return handle_call(std::move(frame));
    case net::FrameKind::cancel:
      if (found != calls_.end()) {
        found->second->scope_.cancellation().request(
            fail(Errc::interrupted, "the caller has given up"));
      }
      return {};
    case net::FrameKind::grant:
      if (found != calls_.end()) found->second->grant_.set();
      return {};
    default:
      return fail(Errc::corrupt, "a frame of kind {} for a server",
                  static_cast<int>(frame.head.kind));
  }
}

// Without keys every process of this machine may call every method.
Result<void> ServerConnection::check_access(const Route& route) const {
  const auto& entity = peer().entity;
  if (!peer().has_key || (entity && route.roles.contains(entity->role))) return {};
  const std::string who = entity ? entity->full_name() : "nobody known";
  Error error =
      fail(Errc::refused, "{} is not for {}: {} came as {}", route.name,
           entity ? fmt::format("the role '{}'", auth::role_name(entity->role)) : "strangers",
           peer().text(), who);
  error.hint = "Use the key of an operator: ff admin key create admin/NAME.";
  audit("denied", who, {{"method", route.name}, {"address", peer().address}});
  return error;
}

// A client that hangs must not hold what its calls hold for ever.
int64_t ServerConnection::longest_call_ns() const {
  const auto& entity = peer().entity;
  const bool client =
      entity && (entity->role == auth::Role::user || entity->role == auth::Role::mount);
  return client ? limits_.client_call_ns : limits_.call_ns;
}

// The key of the peer may have been revoked, or may have expired, since it connected.
Result<void> ServerConnection::check_key() {
  if (keyring_ == nullptr || !peer().entity) return {};
  const uint64_t version = keyring_->revocations_version();
  if (version == checked_version_ && loop().now_ns() < check_again_ns_) return {};
  const int64_t now_s = loop().clock().wall_ns() / kSecond;
  FF_TRY(auth::check_valid(*keyring_->revocations(), *peer().entity, now_s));
  checked_version_ = version;
  check_again_ns_ = loop().now_ns() + kSecond;
  return {};
}

Result<void> ServerConnection::handle_call(net::Frame frame) {
  const uint64_t number = frame.head.call;
  ServerMethods::Entry& method = methods_.find(frame.head.method);
  const auto refuse = [&](Result<std::string> error) {
    methods_.record(method, error, 0);
    reply(number, std::move(error));
  };
  if (method.route == nullptr) {
    refuse(fail(Errc::unsupported, "there is no method {}", frame.head.method));
  } else if (auto valid = check_key(); !valid) {
    refuse(std::move(valid).error());
    drain();
  } else if (auto may = check_access(*method.route); !may) {
    refuse(std::move(may).error());
  } else if (draining_) {
    refuse(fail(Errc::unreachable, "the server is going down"));
  } else if (calls_.size() >= limits_.calls_max) {
    refuse(fail(Errc::busy, "{} has {} calls under way already", peer().text(), calls_.size()));
  } else if (message_bytes_ + frame.message.size() > limits_.message_bytes_max) {
    refuse(fail(Errc::busy, "the messages of calls of {} have {} bytes already", peer().text(),
                message_bytes_));
  } else {
    message_bytes_ += frame.message.size();
    auto& call = calls_[number] =
        std::make_unique<ServerCall>(*this, frame.head, longest_call_ns());
    call_gate_.spawn(serve(*call, method, std::move(frame.message)));
  }
  return {};
}

Task<void> ServerConnection::serve(ServerCall& call, ServerMethods::Entry& method,
                                   std::string message) {
  const int64_t began_ns = call.began_ns_;
  const uint64_t number = call.number_;
  const size_t bytes = message.size();
  Result<CallThrottle::Permit> permit = CallThrottle::Permit();
  const auto& caller = peer().entity;
  if (throttle_ != nullptr && caller && caller->role == auth::Role::user) {
    permit = co_await throttle_->begin_of_user(caller->full_name())
                 .with_cancellation(call.scope_.cancellation());
  } else if (throttle_ != nullptr) {
    permit = throttle_->begin();
  }
  Result<std::string> result = std::string();
  if (!permit) result = std::move(permit).error();
  if (permit)
    result = co_await method.route->handler(call, std::move(message))
                 .with_cancellation(call.scope_.cancellation());
  // What only operators may do, and did; managers call one another all the time.
  if (caller && caller->role == auth::Role::admin && method.route->roles == auth::kOperators) {
    audit("operator", caller->full_name(),
          {{"method", method.route->name},
           {"address", peer().address},
           {"result", result ? "ok" : result.error().message}});
  }
  calls_.erase(number);
  message_bytes_ -= bytes;
  methods_.record(method, result, loop().now_ns() - began_ns);
  reply(number, std::move(result));
}

void ServerConnection::reply(uint64_t number, Result<std::string> result) {
  net::FrameHeader head{.kind = net::FrameKind::reply, .call = number};
  if (result && result->size() > net::kMessageMax) {
    result = fail(Errc::failed, "the answer has {} bytes (the limit is {})", result->size(),
                  net::kMessageMax);
  }
  if (result) return connection().send(head, *result);
  head.flags = kFlagError;
  wire::Error error;
  to_wire(result.error(), error);
  std::string message = error.SerializeAsString();
  if (message.size() > net::kMessageMax) {
    error.mutable_message()->resize(net::kMessageMax / 4);
    error.clear_hint();
    message = error.SerializeAsString();
  }
  connection().send(head, message);
}

}  // namespace ff::rpc
