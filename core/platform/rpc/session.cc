// session.cc: from the frame of a call to the frame of its reply.
#include "platform/rpc/session.h"

#include <fmt/format.h>

#include "platform/base/clock.h"
#include "platform/rpc/error_wire.h"
#include "platform/rpc/senders.h"

namespace ff::rpc {

ServerCall::ServerCall(Session& session, const net::Head& head)
    : session_(session),
      number_(head.call),
      began_ns_(loop().now_ns()),
      deadline_ns_(head.deadline_ms == 0 ? INT64_MAX : began_ns_ + head.deadline_ms * kMillisecond),
      granted_((head.flags & net::kFlagGranted) != 0),
      grant_(loop()),
      scope_(loop(), &session.call_gate_.cancel(), deadline_ns_,
             "the time of the call has passed") {}

Loop& ServerCall::loop() const { return session_.loop(); }

const Peer& ServerCall::peer() const { return session_.peer(); }

Task<Result<void>> ServerCall::push(net::Slice sink, uint64_t offset, ByteView from) {
  net::Connection& connection = session_.connection();
  if (!granted_ && from.size() > kUngrantedMax && !connection.same_host()) {
    if (!asked_) connection.send({.kind = net::FrameKind::ask, .call = number_});
    asked_ = true;
    FF_CO_TRY(co_await grant_.wait());
    granted_ = true;
  }
  if (loop().now_ns() >= deadline_ns_) {
    co_return fail(Errc::deadline, "the time of the call has passed");
  }
  co_return co_await connection.push(sink, offset, from);
}

Task<Result<void>> ServerCall::pull(net::Slice source, uint64_t offset, ByteSpan into) {
  co_return co_await session_.connection().pull(source, offset, into);
}

std::optional<ByteSpan> ServerCall::reach(const net::Slice& slice) {
  return session_.connection().reach(slice);
}

void Router::add(uint32_t method, std::string_view name, Handler handler, Access access) {
  Route route{std::string(name), std::move(handler), access};
  const bool added = routes_.emplace(method, std::move(route)).second;
  FF_CHECK(added);
}

const Route* Router::find(uint32_t method) const {
  const auto found = routes_.find(method);
  return found == routes_.end() ? nullptr : &found->second;
}

ServedMethods::ServedMethods(const Router& router, Metrics& metrics)
    : router_(router), metrics_(metrics), unknown_(make(nullptr)) {}

ServedMethods::Served ServedMethods::make(const Route* route) {
  return {route,
          CallCounters(metrics_, "ff_rpc_server_calls_total", "Calls answered, by how they ended",
                       route == nullptr ? "unknown" : route->name),
          nullptr};
}

ServedMethods::Served& ServedMethods::find(uint32_t method) {
  const auto found = methods_.find(method);
  if (found != methods_.end()) return found->second;
  const Route* const route = router_.find(method);
  if (route == nullptr) return unknown_;
  return methods_.emplace(method, make(route)).first->second;
}

void ServedMethods::ended(Served& served, const Result<std::string>& result, int64_t ns) {
  served.calls.add(result);
  if (served.seconds == nullptr) {
    served.seconds =
        &metrics_.histogram("ff_rpc_server_seconds", "From a call's frame to its reply",
                            {{"method", served.calls.method()}});
  }
  served.seconds->observe_ns(ns);
}

Session::Session(std::unique_ptr<net::Connection> connection, Peer peer, ServedMethods& methods,
                 SessionLimits limits)
    : Link(std::move(connection), std::move(peer), methods.metrics()),
      methods_(methods),
      limits_(limits),
      lost_(loop()),
      call_gate_(loop()) {
  start();
}

Task<void> Session::run() {
  // Cancelled: the server goes down and has stopped the session.
  (void)co_await lost_.wait();
  Error reason = fail(Errc::unreachable, "{}: the connection is gone", peer().text());
  co_await call_gate_.close(std::move(reason));
  co_await finish();
}

void Session::drain() {
  draining_ = true;
  connection().send({.kind = net::FrameKind::bye});
}

void Session::stop(Error reason) {
  connection().close(std::move(reason));
  lost_.set();
}

void Session::lost(const Error&) { lost_.set(); }

Result<void> Session::take(net::Frame frame) {
  const auto found = calls_.find(frame.head.call);
  switch (frame.head.kind) {
    case net::FrameKind::call:
      if (found != calls_.end()) {
        return fail(Errc::corrupt, "call {} was made twice", frame.head.call);
      }
      return take_call(std::move(frame));
    case net::FrameKind::cancel:
      if (found != calls_.end()) {
        found->second->scope_.cancel().request(fail(Errc::interrupted, "the caller has given up"));
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

// Who may act for any user may call everything.
Result<void> Session::may_call(const Route& route) const {
  if (route.access == Access::users || peer().trusted()) return {};
  const std::string as =
      peer().user ? fmt::format("user {}", peer().user->uid) : std::string("nobody known");
  Error error =
      fail(Errc::refused, "{} is not for users: {} came as {}", route.name, peer().text(), as);
  error.hint = "Give the cluster's key file with --key, in place of a token.";
  return error;
}

Result<void> Session::take_call(net::Frame frame) {
  const uint64_t number = frame.head.call;
  ServedMethods::Served& method = methods_.find(frame.head.method);
  const auto refuse = [&](Result<std::string> error) {
    methods_.ended(method, error, 0);
    reply(number, std::move(error));
  };
  if (method.route == nullptr) {
    refuse(fail(Errc::unsupported, "there is no method {}", frame.head.method));
  } else if (auto may = may_call(*method.route); !may) {
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
    auto& call = calls_[number] = std::make_unique<ServerCall>(*this, frame.head);
    call_gate_.spawn(serve(*call, method, std::move(frame.message)));
  }
  return {};
}

Task<void> Session::serve(ServerCall& call, ServedMethods::Served& method, std::string message) {
  const int64_t began_ns = call.began_ns_;
  const uint64_t number = call.number_;
  const size_t bytes = message.size();
  auto task = method.route->handler(call, std::move(message));
  auto result = co_await std::move(task).under(call.scope_.cancel());
  calls_.erase(number);
  message_bytes_ -= bytes;
  methods_.ended(method, result, loop().now_ns() - began_ns);
  reply(number, std::move(result));
}

void Session::reply(uint64_t number, Result<std::string> result) {
  net::Head head{.kind = net::FrameKind::reply, .call = number};
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
