// replica_reach.cc: whether the next target of the chain can be reached. Its node may be alive, by
// its heartbeats, and cut off from this one all the same: then nothing is committed any more. A
// call that is late says little, for the other's disk may be slow; so it is asked for something
// that it knows by heart, and when it answers nothing at all the manager is told
// (Manager::note_cuts).
#include <utility>

#include "platform/base/log.h"
#include "storage/chain/replica.h"

namespace ff::chain {

namespace {

constexpr int64_t kLateNs = 2 * kSecond;
constexpr int64_t kTryNs = 3 * kSecond;
constexpr int64_t kUnreachableNs = 6 * kSecond;  // without any answer, until it is told
constexpr int64_t kReachRetryNs = 500 * kMillisecond;

}  // namespace

void Replica::watch_successor(const std::optional<Part>& part) {
  const bool has_one = part && part->serves && part->successor != nullptr;
  const cluster::NodeId node = has_one ? part->successor->node : 0;
  if (node != successor_) {
    successor_ = node;
    unanswered_since_ns_ = 0;
    context_.member.set_unreachable(id_, std::nullopt);
  }
  const bool late = successor_ != 0 && unanswered_since_ns_ != 0 &&
                    context_.loop.now_ns() - unanswered_since_ns_ > kLateNs;
  // Also while it is on its way to serve: that may hang on the successor.
  if (late && !std::exchange(trying_, true)) {
    gate_.spawn(try_successor(seen_version_, *part->successor));
  }
}

// Until it answers, or the chain has changed.
Task<void> Replica::try_successor(uint64_t version, cluster::Target to) {
  auto trying = try_while(version, std::move(to));
  (void)co_await std::move(trying);
  trying_ = false;
}

Task<Result<void>> Replica::try_while(uint64_t version, cluster::Target to) {
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
          "the next target of the chain cannot be reached",
          {{"target", id_}, {"next", to.id}, {"node", to.node}, {"cause", reply.error().message}});
      context_.member.set_unreachable(
          id_, cluster::Unreachable{
                   .chain = chain_, .chain_version = version, .from = id_, .to = to.id});
      context_.poke();
    }
    auto waiting = wait_for_change(kReachRetryNs);
    FF_CO_TRY(co_await std::move(waiting));
  }
  co_return Result<void>();
}

}  // namespace ff::chain
