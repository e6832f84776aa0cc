// routing_cache.cc: fetches changes page by page.
#include "storage/cluster/routing_cache.h"

#include <utility>

#include "platform/base/clock.h"
#include "storage/cluster/tickets.h"
#include "storage/cluster/wire.h"

namespace ff::cluster {

namespace {

// Refresh interval of an idle client, which must still learn of new nodes.
constexpr int64_t kCacheRefreshNs = 5 * kSecond;
// Minimum interval.
constexpr int64_t kCacheMinIntervalNs = 50 * kMillisecond;
constexpr int64_t kCacheAttemptNs = kSecond;
constexpr int64_t kFetchTimeoutNs = 5 * kSecond;

}  // namespace

RoutingCache::RoutingCache(rpc::ClientContext& context, const std::vector<net::Address>& managers,
                           std::function<void()> changed)
    : loop_(context.loop),
      keyring_(context.transport.keyring()),
      managers_(context, managers),
      changed_(std::move(changed)),
      refresh_requested_(context.loop) {}

Task<void> RoutingCache::run() {
  for (;;) {
    refresh_requested_.reset();
    auto asked = co_await fetch();
    if (!asked && asked.error().code == Errc::interrupted) co_return;
    last_error_ = asked ? std::nullopt : std::optional<Error>(std::move(asked).error());
    const auto paused = co_await sleep_for(loop_, kCacheMinIntervalNs);
    if (!paused) co_return;
    const auto waited = co_await refresh_requested_.wait(loop_.now_ns() + kCacheRefreshNs);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

Task<Result<bool>> fetch_routing_page(ManagerClient& managers, Routing& routing,
                                      auth::Keyring* keyring, int64_t now_s, int64_t try_ns,
                                      int64_t deadline_ns) {
  wire::RoutingRequest request;
  request.set_since(routing.version);
  FF_CO_TRY(const wire::RoutingReply reply,
            co_await managers.call(kRouting, std::move(request), try_ns, deadline_ns, true));
  FF_CO_TRY(const RoutingDelta changes, from_wire(reply.changes()));
  std::vector<const NodeInfo*> nodes;
  for (const NodeInfo& node : changes.nodes) nodes.push_back(&node);
  for (const auto& [id, node] : routing.nodes) nodes.push_back(&node);
  FF_CO_TRY(
      co_await fetch_tickets(managers, keyring, std::move(nodes), now_s, try_ns, deadline_ns));
  FF_CO_TRY(routing.apply(changes));
  co_return changes.complete;
}

Task<Result<void>> RoutingCache::fetch() {
  for (;;) {
    const uint64_t before = routing_.version;
    const int64_t now_s = loop_.clock().wall_ns() / kSecond;
    FF_CO_TRY(const bool complete,
              co_await fetch_routing_page(managers_, routing_, keyring_, now_s, kCacheAttemptNs,
                                          loop_.now_ns() + kFetchTimeoutNs));
    if (routing_.version != before) changed_();
    if (complete) co_return Result<void>();
  }
}

}  // namespace ff::cluster
