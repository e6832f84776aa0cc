// channel.cc: calls, replies, grants and the cancellation of calls.
#include "platform/rpc/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "platform/base/clock.h"
#include "platform/rpc/error_wire.h"

namespace ff::rpc {

namespace {

// Time left for the header of a call: rounded up; 0: no deadline.
uint32_t time_left_ms(Loop& loop, int64_t deadline_ns) {
  if (deadline_ns == INT64_MAX) return 0;
  const int64_t left = (deadline_ns - loop.now_ns() + kMillisecond - 1) / kMillisecond;
  return static_cast<uint32_t>(std::clamp<int64_t>(left, 1, UINT32_MAX));
}

// An error about what was asked for, such as "there is no task 99", needs no name of a call.
bool is_answer(Errc code) {
  return code == Errc::usage || code == Errc::refused || code == Errc::not_found ||
         code == Errc::exists;
}

}  // namespace

void ClientCallMetrics::record(const CallSpec& spec, const Result<std::string>& result) {
  auto found = methods_.find(spec.method);
  if (found == methods_.end()) {
    CallCounters counters(metrics_, "ff_rpc_client_calls_total", "Calls made, by how they ended",
                          std::string(spec.name));
    found = methods_.emplace(spec.method, std::move(counters)).first;
  }
  found->second.add(result);
}

// One call in flight, in the frame of its coroutine.
class Channel::Pending final : public GrantScheduler::Waiter {
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
    channel_.grants_.cancel(*this);
    if (has_grant_) channel_.grants_.release();
  }

  uint64_t number() const { return number_; }
  // Takes a grant if one is free.
  bool try_acquire_grant() { return has_grant_ = channel_.grants_.try_acquire(); }
  void request_grant() {
    if (has_grant_) return send_grant();
    channel_.grants_.wait(started_ns_, *this);
  }
  void granted() override {
    has_grant_ = true;
    send_grant();
  }

  Event done;
  std::optional<Result<std::string>> reply;

 private:
  void send_grant() {
    channel_.connection().send({.kind = net::FrameKind::grant, .call = number_});
  }

  Channel& channel_;
  const uint64_t number_;
  const int64_t started_ns_;
  bool has_grant_ = false;
};

Channel::Channel(std::unique_ptr<net::Connection> connection, Peer peer, GrantScheduler& grants,
                 ClientCallMetrics& calls)
    : RpcConnection(std::move(connection), std::move(peer), calls.metrics()),
      grants_(grants),
      call_metrics_(calls),
      slots_(loop(), this->peer().calls_max) {
  start();
}

Channel::~Channel() { FF_CHECK(pending_.empty()); }

Task<void> Channel::close() {
  connection().close(fail(Errc::unreachable, "{}: the connection was closed", peer().text()));
  co_await finish();
}

Error Channel::with_call_name(const CallSpec& spec, Error error) const {
  return std::move(error).with_context(fmt::format("{} on {}: ", spec.name, peer().text()));
}

Error Channel::deadline_error(const CallSpec& spec) const {
  return with_call_name(spec, fail(Errc::deadline, "no answer in time"));
}

Task<Result<std::string>> Channel::call(CallSpec spec, std::string message) {
  auto slot = slots_.try_acquire(1);
  if (!slot) {
    auto taking = slots_.acquire(1);
    auto taken = co_await with_deadline(loop(), spec.deadline_ns, deadline_error(spec).message,
                                        std::move(taking));
    if (!taken) co_return count_result(spec, std::move(taken).error());
    slot = std::move(*taken);
  }
  if (!usable()) {
    Error error = fail(Errc::unreachable, "the connection is closed");
    co_return count_result(spec, with_call_name(spec, std::move(error)));
  }
  if (message.size() > net::kMessageMax) {
    Error error = fail(Errc::usage, "a message of {} bytes (the limit is {})", message.size(),
                       net::kMessageMax);
    co_return count_result(spec, with_call_name(spec, std::move(error)));
  }
  Pending pending(*this, next_call_++);
  net::FrameHeader head{
      .kind = net::FrameKind::call, .call = pending.number(), .method = spec.method};
  head.deadline_ms = time_left_ms(loop(), spec.deadline_ns);
  if (spec.sink_bytes > kUngrantedMax && pending.try_acquire_grant())
    head.flags |= net::kFlagGranted;
  connection().send(head, message);
  auto waited = co_await pending.done.wait(spec.deadline_ns);
  if (!waited && !pending.reply) {
    co_await cancel_call(pending, spec.has_memory).shielded();
  }
  const bool answered = pending.reply.has_value();
  if (!answered && loop().now_ns() >= spec.deadline_ns) waited = deadline_error(spec);
  if (!answered) pending.reply = std::move(waited).error();
  Result<std::string> result = std::move(*pending.reply);
  if (answered && !result && !is_answer(result.error().code)) {
    result = with_call_name(spec, std::move(result).error());
  }
  co_return count_result(spec, std::move(result));
}

Result<std::string> Channel::count_result(const CallSpec& spec, Result<std::string> result) {
  call_metrics_.record(spec, result);
  return result;
}

// Sends a cancel. With a one-sided transport it then waits until the server confirms that it no
// longer uses the caller's memory, or until the connection is closed. A server that answers pings
// but does not confirm has a device that still writes to that memory: nothing stops a read of a
// disk that hangs.
Task<void> Channel::cancel_call(Pending& pending, bool has_memory) {
  connection().send({.kind = net::FrameKind::cancel, .call = pending.number()});
  if (!has_memory || !connection().one_sided()) co_return;
  for (;;) {
    const int64_t asked_ns = loop().now_ns();
    connection().send({.kind = net::FrameKind::ping});
    auto answer = wait_for(pending.done);
    const auto confirmed = co_await with_deadline(loop(), asked_ns + kCancelConfirmNs,
                                                  "no answer to a cancel", std::move(answer));
    if (confirmed) co_return;
    if (last_receive_ns() > asked_ns) continue;
    unconfirmed_ns_ = asked_ns;
    connection().close(
        fail(Errc::unreachable, "{}: did not confirm that a call was cancelled", peer().text()));
    co_return;
  }
}

Result<void> Channel::handle_frame(net::Frame frame) {
  switch (frame.head.kind) {
    case net::FrameKind::reply: return handle_reply(std::move(frame));
    case net::FrameKind::request_to_send: return handle_request_to_send(frame.head);
    default:
      return fail(Errc::corrupt, "a frame of kind {} for a client",
                  static_cast<int>(frame.head.kind));
  }
}

Result<void> Channel::handle_reply(net::Frame frame) {
  const auto found = pending_.find(frame.head.call);
  if (found == pending_.end()) {
    if (frame.head.call < next_call_) return {};  // the call was cancelled
    return fail(Errc::corrupt, "a reply to call {}, which was never made", frame.head.call);
  }
  Pending& pending = *found->second;
  if (pending.reply) return fail(Errc::corrupt, "a second reply to call {}", frame.head.call);
  if ((frame.head.flags & kFlagError) == 0) {
    pending.reply = std::move(frame.message);
  } else {
    wire::Error error;
    if (!error.ParseFromString(frame.message)) {
      return fail(Errc::corrupt, "the error in a reply is not valid protobuf");
    }
    pending.reply = from_wire(error);
  }
  pending.done.set();
  return {};
}

Result<void> Channel::handle_request_to_send(const net::FrameHeader& head) {
  const auto found = pending_.find(head.call);
  if (found != pending_.end()) {
    found->second->request_grant();
  } else if (head.call >= next_call_) {
    return fail(Errc::corrupt, "a request to send for call {}, which was never made", head.call);
  }
  return {};
}

// A server that shares memory with this process ends the stream when it no longer uses the memory
// of calls; it has not done so if this side gave up.
void Channel::on_disconnect(const Error& error) {
  usable_ = false;
  if (connection().same_host() && !connection().ended_by_peer() && !unconfirmed_ns_) {
    unconfirmed_ns_ = loop().now_ns();
  }
  for (auto& [number, pending] : pending_) {
    if (pending->reply) continue;
    Error copy = error;
    copy.code = Errc::unreachable;
    pending->reply = std::move(copy);
    pending->done.set();
  }
}

}  // namespace ff::rpc
