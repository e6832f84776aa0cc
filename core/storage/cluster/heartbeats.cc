// heartbeats.cc: when to report, and what an answer changes.
#include "storage/cluster/heartbeats.h"

#include <utility>

#include "platform/base/log.h"
#include "storage/cluster/timing.h"
#include "storage/cluster/wire.h"

namespace ff::cluster {

namespace {

// For one manager to answer: of three, two may be silent, and the lease must not run out.
constexpr int64_t kHeartbeatTryNs = kSecond;
// Of one heartbeat: older than this, its answer would be worth nothing.
constexpr int64_t kBeatNs = kServeNs;
// Between two heartbeats at most, while a target comes back: each of its states is to be known by
// all nodes of the chain before the next.
constexpr int64_t kChangingNs = 200 * kMillisecond;
// Between two heartbeats at least, however much there is to say.
constexpr int64_t kHeartbeatPauseNs = 50 * kMillisecond;

// Another may be answered, by another manager perhaps.
bool unanswered(const Error& error) {
  return error.code == Errc::unreachable || error.code == Errc::deadline;
}

}  // namespace

Heartbeats::Heartbeats(rpc::ClientContext& context, const std::vector<net::Address>& managers,
                       Member& member, std::function<void()> adopted)
    : loop_(context.loop),
      managers_(context, managers),
      member_(member),
      adopted_(std::move(adopted)),
      poked_(context.loop) {}

Task<void> Heartbeats::run() {
  for (;;) {
    poked_.reset();
    auto beating = beat();
    auto done = co_await std::move(beating);
    if (!done && done.error().code == Errc::interrupted) co_return;
    if (!done && !trouble_) {
      log_warning("no heartbeat is answered", {{"cause", done.error().message}});
    }
    trouble_ = done ? std::nullopt : std::optional<Error>(std::move(done).error());
    if (!co_await after(loop_, kHeartbeatPauseNs)) co_return;
    if (trouble_ ? unanswered(*trouble_) : member_.has_news()) continue;
    const int64_t pause_ns =
        member_.expects_changes() ? kChangingNs : kHeartbeatNs - kHeartbeatPauseNs;
    const auto waited = co_await poked_.wait(loop_.now_ns() + pause_ns);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

// All of the routing that the node holds, in pages.
Task<Result<void>> Heartbeats::offer() {
  const Routing held = member_.routing();
  for (uint64_t since = 0;;) {
    wire::OfferRequest request;
    const Changes page = held.since(since, kAnswerBytes);
    request.set_node(member_.self().id);
    *request.mutable_changes() = to_wire(page);
    auto calling =
        managers_.call(kOffer, std::move(request), kHeartbeatTryNs, loop_.now_ns() + kBeatNs, true);
    FF_CO_TRY(co_await std::move(calling));
    if (page.complete) co_return Result<void>();
    since = page.to;
  }
}

Task<Result<void>> Heartbeats::beat() {
  const Heartbeat beat = member_.report();
  // It may be sent later, to another manager; the lease counts from here.
  const int64_t sent_ns = loop_.now_ns();
  auto calling =
      managers_.call(kHeartbeat, to_wire(beat), kHeartbeatTryNs, sent_ns + kBeatNs, false);
  FF_CO_TRY(const wire::HeartbeatReply reply, co_await std::move(calling));
  if (reply.offer_wanted()) {
    auto offering = offer();
    FF_CO_TRY(co_await std::move(offering));
    co_return fail(Errc::refused, "the manager holds older routing, and waits for its operator");
  }
  FF_CO_TRY(const HeartbeatAnswer answer, from_wire(reply));
  const uint64_t before = member_.routing().version;
  FF_CO_TRY(member_.answered(beat, sent_ns, answer));
  if (member_.routing().version != before) adopted_();
  co_return Result<void>();
}

}  // namespace ff::cluster
