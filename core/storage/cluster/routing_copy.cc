// routing_copy.cc: asking for what has changed, page by page.
#include "storage/cluster/routing_copy.h"

#include <utility>

#include "platform/base/clock.h"
#include "storage/cluster/wire.h"

namespace ff::cluster {

namespace {

// Without anybody asking: a client that is idle learns all the same whom to ask next.
constexpr int64_t kCopyFollowNs = 5 * kSecond;
// Between two attempts at least, however many ask.
constexpr int64_t kCopyPauseNs = 50 * kMillisecond;
constexpr int64_t kCopyTryNs = kSecond;
constexpr int64_t kAskNs = 5 * kSecond;

}  // namespace

RoutingCopy::RoutingCopy(rpc::ClientContext& context, const std::vector<net::Address>& managers,
                         std::function<void()> changed)
    : loop_(context.loop),
      managers_(context, managers),
      changed_(std::move(changed)),
      asked_(context.loop) {}

Task<void> RoutingCopy::run() {
  for (;;) {
    asked_.reset();
    auto asking = ask();
    auto asked = co_await std::move(asking);
    if (!asked && asked.error().code == Errc::interrupted) co_return;
    trouble_ = asked ? std::nullopt : std::optional<Error>(std::move(asked).error());
    const auto paused = co_await after(loop_, kCopyPauseNs);
    if (!paused) co_return;
    const auto waited = co_await asked_.wait(loop_.now_ns() + kCopyFollowNs);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

Task<Result<bool>> next_page(ManagerClient& managers, Routing& routing, int64_t try_ns,
                             int64_t deadline_ns) {
  wire::RoutingRequest request;
  request.set_since(routing.version);
  auto calling = managers.call(kRouting, std::move(request), try_ns, deadline_ns, true);
  FF_CO_TRY(const wire::RoutingReply reply, co_await std::move(calling));
  FF_CO_TRY(const Changes changes, from_wire(reply.changes()));
  FF_CO_TRY(routing.apply(changes));
  co_return changes.complete;
}

Task<Result<void>> RoutingCopy::ask() {
  for (;;) {
    const uint64_t before = routing_.version;
    auto asking = next_page(managers_, routing_, kCopyTryNs, loop_.now_ns() + kAskNs);
    FF_CO_TRY(const bool complete, co_await std::move(asking));
    if (routing_.version != before) changed_();
    if (complete) co_return Result<void>();
  }
}

}  // namespace ff::cluster
