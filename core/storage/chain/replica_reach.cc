// replica_reach.cc: detects an unreachable successor. Its node may be alive by its heartbeats and
// still be cut off from this node; then no update commits. A late response alone says little
// because the disk of the successor may be slow. So this target sends a request that needs no disk;
// if there is no response at all, it reports the successor to the manager
// (Manager::record_unreachable).
#include <utility>

#include "platform/base/log.h"
#include "storage/chain/replica.h"

namespace ff::chain {

namespace {

constexpr int64_t kLateNs = 2 * kSecond;
constexpr int64_t kTryNs = 3 * kSecond;
constexpr int64_t kUnreachableNs = 6 * kSecond;  // time without any response until it is reported
constexpr int64_t kReachRetryNs = 500 * kMillisecond;

}  // namespace

void Replica::watch_successor(const std::optional<ChainRole>& role) {
  const bool has_one = role && role->serving && role->successor != nullptr;
  const cluster::NodeId node = has_one ? role->successor->node : 0;
  if (node != successor_) {
    successor_ = node;
    unanswered_since_ns_ = 0;
    context_.member.set_unreachable(id_, std::nullopt);
  }
  const bool late = successor_ != 0 && unanswered_since_ns_ != 0 &&
                    context_.loop.now_ns() - unanswered_since_ns_ > kLateNs;
  // Also while this target prepares to serve: that may depend on the successor.
  if (late && !std::exchange(probing_, true)) {
    gate_.spawn(probe_successor(seen_version_, *role->successor));
  }
}

// Probes until the successor responds or the chain changes.
Task<void> Replica::probe_successor(uint64_t version, cluster::Target to) {
  (void)co_await probe_until_reached(version, std::move(to));
  probing_ = false;
}

Task<Result<void>> Replica::probe_until_reached(uint64_t version, cluster::Target to) {
  const int64_t since_ns = unanswered_since_ns_;
  for (bool told = false; seen_version_ == version && successor_ == to.node;) {
    wire::AbsentRequest request;
    *request.mutable_place() = place_of(to.id, version);
    auto calling = call(to.node, kAbsent, std::move(request), {}, kTryNs);
    const auto reply = co_await std::move(calling);
    if (!reply && reply.error().code == Errc::interrupted) co_return reply.error();
    if (seen_version_ != version || successor_ != to.node) break;
    if (answered(reply)) {
      context_.member.set_unreachable(id_, std::nullopt);
      break;
    }
    if (!told && context_.loop.now_ns() - since_ns >= kUnreachableNs) {
      told = true;
      log_warning(
          "cannot reach the successor in the chain",
          {{"target", id_}, {"next", to.id}, {"node", to.node}, {"cause", reply.error().message}});
      context_.member.set_unreachable(
          id_, cluster::UnreachableTarget{
                   .chain = chain_, .chain_version = version, .from = id_, .to = to.id});
      context_.request_heartbeat();
    }
    FF_CO_TRY(co_await wait_for_change(kReachRetryNs));
  }
  co_return Result<void>();
}

}  // namespace ff::chain
