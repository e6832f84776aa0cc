// heartbeat_sender.cc: when to send heartbeats, and processing of responses.
#include "storage/cluster/heartbeat_sender.h"

#include <utility>

#include "platform/base/log.h"
#include "storage/cluster/key_service.h"
#include "storage/cluster/tickets.h"
#include "storage/cluster/timing.h"
#include "storage/cluster/wire.h"

namespace ff::cluster {

namespace {

// Timeout per manager: two of three may be silent, and the lease must not expire.
constexpr int64_t kHeartbeatAttemptNs = kSecond;
// Timeout of one heartbeat: a later response would not extend the lease.
constexpr int64_t kHeartbeatTimeoutNs = kNodeLeaseNs;
// Maximum interval while a target rejoins: all nodes of the chain must know each of its states
// before the next one.
constexpr int64_t kChangingIntervalNs = 200 * kMillisecond;
// Minimum interval.
constexpr int64_t kHeartbeatMinIntervalNs = 50 * kMillisecond;

// The next heartbeat may succeed, possibly at another manager.
bool unanswered(const Error& error) {
  return error.code == Errc::unreachable || error.code == Errc::deadline;
}

}  // namespace

HeartbeatSender::HeartbeatSender(rpc::ClientContext& context,
                                 const std::vector<net::Address>& managers, Member& member,
                                 std::function<void()> routing_changed)
    : loop_(context.loop),
      keyring_(context.transport.keyring()),
      managers_(context, managers),
      member_(member),
      routing_changed_(std::move(routing_changed)),
      heartbeat_requested_(context.loop) {}

Task<void> HeartbeatSender::run() {
  for (;;) {
    heartbeat_requested_.reset();
    auto done = co_await send_heartbeat();
    if (!done && done.error().code == Errc::interrupted) co_return;
    if (!done && !last_error_) {
      log_warning("no manager answers heartbeats", {{"cause", done.error().message}});
    }
    last_error_ = done ? std::nullopt : std::optional<Error>(std::move(done).error());
    if (!co_await sleep_for(loop_, kHeartbeatMinIntervalNs)) co_return;
    if (last_error_ ? unanswered(*last_error_) : member_.has_unreported_changes()) continue;
    const int64_t pause_ns = member_.expects_routing_changes()
                                 ? kChangingIntervalNs
                                 : kHeartbeatIntervalNs - kHeartbeatMinIntervalNs;
    const auto waited = co_await heartbeat_requested_.wait(loop_.now_ns() + pause_ns);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

// Sends the complete routing of this node, in pages.
Task<Result<void>> HeartbeatSender::offer_routing() {
  const Routing held = member_.routing();
  for (uint64_t since = 0;;) {
    wire::OfferRequest request;
    const RoutingDelta page = held.delta_since(since, kAnswerBytes);
    request.set_node(member_.self().id);
    *request.mutable_changes() = to_wire(page);
    FF_CO_TRY(co_await managers_.call(kOffer, std::move(request), kHeartbeatAttemptNs,
                                      loop_.now_ns() + kHeartbeatTimeoutNs, true));
    if (page.complete) co_return Result<void>();
    since = page.to;
  }
}

// For the other nodes, before this one learns where they are.
Task<Result<void>> HeartbeatSender::get_tickets(const HeartbeatResponse& answer) {
  std::vector<const NodeInfo*> nodes;
  for (const NodeInfo& node : answer.changes.nodes) nodes.push_back(&node);
  for (const auto& [id, node] : member_.routing().nodes) nodes.push_back(&node);
  const int64_t now_s = loop_.clock().wall_ns() / kSecond;
  co_return co_await fetch_tickets(managers_, keyring_, std::move(nodes), now_s,
                                   kHeartbeatAttemptNs, loop_.now_ns() + kHeartbeatTimeoutNs);
}

Task<Result<void>> HeartbeatSender::send_heartbeat() {
  const Heartbeat own = member_.next_heartbeat();
  Heartbeat beat = own;
  if (others_.report) co_await others_.report(beat);
  // The call may reach a manager later; the lease counts from here.
  const int64_t sent_ns = loop_.now_ns();
  wire::HeartbeatRequest request = to_wire(beat);
  if (keyring_ != nullptr) request.set_revocations_version(keyring_->revocations_version());
  if (held_back_) request.set_held_back(held_back_());
  FF_CO_TRY(const wire::HeartbeatReply reply,
            co_await managers_.call(kHeartbeat, std::move(request), kHeartbeatAttemptNs,
                                    sent_ns + kHeartbeatTimeoutNs, false));
  if (reply.offer_wanted()) {
    FF_CO_TRY(co_await offer_routing());
    co_return fail(Errc::refused,
                   "the manager has older routing than this node and waits for its operator");
  }
  FF_CO_TRY(const HeartbeatResponse answer, from_wire(reply));
  if (reply.has_server_keys() && keyring_ != nullptr) {
    FF_CO_TRY(apply_server_keys(reply.server_keys(), *keyring_));
  }
  FF_CO_TRY(co_await get_tickets(answer));
  const uint64_t before = member_.routing().version;
  FF_CO_TRY(member_.on_response(own, sent_ns, answer));
  if (member_.routing().version != before) routing_changed_();
  if (others_.respond) co_await others_.respond(sent_ns, answer);
  co_return Result<void>();
}

}  // namespace ff::cluster
