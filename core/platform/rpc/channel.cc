// channel.cc: calls and their replies, grants, and what happens to a call that is given up.
#include "platform/rpc/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "platform/base/clock.h"
#include "platform/rpc/error_wire.h"

namespace ff::rpc {

namespace {

// Time left, for the head of a call: rounded up, 0 for no deadline.
uint32_t time_left_ms(Loop& loop, int64_t deadline_ns) {
  if (deadline_ns == INT64_MAX) return 0;
  const int64_t left = (deadline_ns - loop.now_ns() + kMillisecond - 1) / kMillisecond;
  return static_cast<uint32_t>(std::clamp<int64_t>(left, 1, UINT32_MAX));
}

}  // namespace

void ClientCalls::ended(const CallSpec& spec, const Result<std::string>& result) {
  auto found = methods_.find(spec.method);
  if (found == methods_.end()) {
    CallCounters counters(metrics_, "ff_rpc_client_calls_total", "Calls made, by how they ended",
                          std::string(spec.name));
    found = methods_.emplace(spec.method, std::move(counters)).first;
  }
  found->second.add(result);
}

// One call under way, on the stack of its coroutine.
class Channel::Pending final : public Senders::Waiter {
 public:
  Pending(Channel& channel, uint64_t number)
      : done(channel.loop()),
        channel_(channel),
        number_(number),
        started_ns_(channel.loop().now_ns()) {
    channel_.pending_[number_] = this;
  }
  ~Pending() override {
    channel_.pending_.erase(number_);
    channel_.senders_.leave(*this);
    if (holds_slot_) channel_.senders_.give();
  }

  uint64_t number() const { return number_; }
  // Takes a sender slot if one is free.
  bool take_slot() { return holds_slot_ = channel_.senders_.try_take(); }
  void ask() {
    if (holds_slot_) return granted_again();
    channel_.senders_.wait(started_ns_, *this);
  }
  void granted() override {
    holds_slot_ = true;
    granted_again();
  }

  Event done;
  std::optional<Result<std::string>> reply;

 private:
  void granted_again() {
    channel_.connection().send({.kind = net::FrameKind::grant, .call = number_});
  }

  Channel& channel_;
  const uint64_t number_;
  const int64_t started_ns_;
  bool holds_slot_ = false;
};

Channel::Channel(std::unique_ptr<net::Connection> connection, Peer peer, Senders& senders,
                 ClientCalls& calls)
    : Link(std::move(connection), std::move(peer), calls.metrics()),
      senders_(senders),
      ended_calls_(calls),
      slots_(loop(), this->peer().calls_max) {
  start();
}

Channel::~Channel() { FF_CHECK(pending_.empty()); }

Task<void> Channel::close() {
  connection().close(fail(Errc::unreachable, "{}: the connection was closed", peer().text()));
  co_await finish();
}

Error Channel::named(const CallSpec& spec, Error error) const {
  return std::move(error).within(fmt::format("{} on {}: ", spec.name, peer().text()));
}

Error Channel::late(const CallSpec& spec) const {
  return named(spec, fail(Errc::deadline, "no answer in time"));
}

Task<Result<std::string>> Channel::call(CallSpec spec, std::string message) {
  auto slot = slots_.try_take(1);
  if (!slot) {
    auto taking = slots_.take(1);
    auto taken =
        co_await with_deadline(loop(), spec.deadline_ns, late(spec).message, std::move(taking));
    if (!taken) co_return counted(spec, std::move(taken).error());
    slot = std::move(*taken);
  }
  if (!usable()) {
    Error error = fail(Errc::unreachable, "the connection is closed");
    co_return counted(spec, named(spec, std::move(error)));
  }
  if (message.size() > net::kMessageMax) {
    Error error = fail(Errc::usage, "a message of {} bytes (the limit is {})", message.size(),
                       net::kMessageMax);
    co_return counted(spec, named(spec, std::move(error)));
  }
  Pending pending(*this, next_call_++);
  net::Head head{.kind = net::FrameKind::call, .call = pending.number(), .method = spec.method};
  head.deadline_ms = time_left_ms(loop(), spec.deadline_ns);
  if (spec.sink_bytes > kUngrantedMax && pending.take_slot()) head.flags |= net::kFlagGranted;
  connection().send(head, message);
  auto waited = co_await pending.done.wait(spec.deadline_ns);
  if (!waited && !pending.reply) {
    auto end = give_up(pending, spec.has_memory);
    co_await std::move(end).shielded();
  }
  const bool answered = pending.reply.has_value();
  if (!answered && loop().now_ns() >= spec.deadline_ns) waited = late(spec);
  if (!answered) pending.reply = std::move(waited).error();
  Result<std::string> result = std::move(*pending.reply);
  if (answered && !result) result = named(spec, std::move(result).error());
  co_return counted(spec, std::move(result));
}

Result<std::string> Channel::counted(const CallSpec& spec, Result<std::string> result) {
  ended_calls_.ended(spec, result);
  return result;
}

// The server is told. Where it reaches the caller's memory itself, that stays the call's until the
// server has answered, or the connection is gone.
Task<void> Channel::give_up(Pending& pending, bool has_memory) {
  connection().send({.kind = net::FrameKind::cancel, .call = pending.number()});
  if (!has_memory || !connection().one_sided()) co_return;
  const int64_t told_ns = loop().now_ns();
  auto answer = wait_for(pending.done);
  const auto confirmed = co_await with_deadline(loop(), loop().now_ns() + kConfirmNs,
                                                "no answer to a cancel", std::move(answer));
  if (!confirmed) {
    unconfirmed_ns_ = told_ns;
    connection().close(
        fail(Errc::unreachable, "{}: did not confirm that a call was cancelled", peer().text()));
  }
}

Result<void> Channel::take(net::Frame frame) {
  switch (frame.head.kind) {
    case net::FrameKind::reply: return take_reply(std::move(frame));
    case net::FrameKind::ask: return take_ask(frame.head);
    default:
      return fail(Errc::corrupt, "a frame of kind {} for a client",
                  static_cast<int>(frame.head.kind));
  }
}

Result<void> Channel::take_reply(net::Frame frame) {
  const auto found = pending_.find(frame.head.call);
  if (found == pending_.end()) {
    if (frame.head.call < next_call_) return {};  // given up meanwhile
    return fail(Errc::corrupt, "a reply to call {}, which was never made", frame.head.call);
  }
  Pending& pending = *found->second;
  if (pending.reply) return fail(Errc::corrupt, "a second reply to call {}", frame.head.call);
  if ((frame.head.flags & kFlagError) == 0) {
    pending.reply = std::move(frame.message);
  } else {
    wire::Error error;
    if (!error.ParseFromString(frame.message)) {
      return fail(Errc::corrupt, "an error that cannot be read");
    }
    pending.reply = from_wire(error);
  }
  pending.done.set();
  return {};
}

Result<void> Channel::take_ask(const net::Head& head) {
  const auto found = pending_.find(head.call);
  if (found != pending_.end()) {
    found->second->ask();
  } else if (head.call >= next_call_) {
    return fail(Errc::corrupt, "an ask for call {}, which was never made", head.call);
  }
  return {};
}

void Channel::lost(const Error& error) {
  usable_ = false;
  for (auto& [number, pending] : pending_) {
    if (pending->reply) continue;
    Error copy = error;
    copy.code = Errc::unreachable;
    pending->reply = std::move(copy);
    pending->done.set();
  }
}

}  // namespace ff::rpc
