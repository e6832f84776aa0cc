// stored_routing.cc: one key tells whether anything is new; then everything is read.
#include "storage/cluster/stored_routing.h"

#include <utility>

#include "platform/base/clock.h"
#include "platform/base/log.h"

namespace ff::cluster {

namespace {

constexpr int64_t kStoreRefreshNs = kSecond;
constexpr int64_t kStorePauseNs = 50 * kMillisecond;  // minimum interval
constexpr int64_t kStorePollNs = 5 * kSecond;
constexpr int64_t kUtilizationValidNs = 2 * kSecond;  // interval of reading it

}  // namespace

StoredRouting::StoredRouting(kv::Engine& engine, Loop& loop, std::function<void()> changed)
    : store_(engine), loop_(loop), changed_(std::move(changed)), refresh_requested_(loop) {}

Task<Result<void>> StoredRouting::reload() {
  FF_CO_TRY(const uint64_t version, co_await store_.read_version(loop_.now_ns() + kStorePollNs));
  FF_CO_TRY(const bool utilization_changed, co_await reload_utilization());
  if (version == routing_.version) {
    if (utilization_changed) changed_();
    co_return Result<void>();
  }
  FF_CO_TRY(StoredCluster stored, co_await store_.load(loop_.now_ns() + kStorePollNs));
  if (!stored.routing) co_return Result<void>();
  routing_ = std::move(*stored.routing);
  changed_();
  co_return Result<void>();
}

// Returns whether it has changed.
Task<Result<bool>> StoredRouting::reload_utilization() {
  const int64_t now_ns = loop_.now_ns();
  if (utilization_ns_ != INT64_MIN && now_ns - utilization_ns_ < kUtilizationValidNs)
    co_return false;
  FF_CO_TRY(DiskUtilization utilization, co_await store_.read_utilization(now_ns + kStorePollNs));
  utilization_ns_ = now_ns;
  const bool changed = utilization != utilization_;
  utilization_ = std::move(utilization);
  co_return changed;
}

Task<void> StoredRouting::run() {
  std::string logged;
  for (;;) {
    refresh_requested_.reset();
    const int64_t began_ns = loop_.now_ns();
    const auto looked = co_await reload();
    if (looked) refreshed_ns_ = began_ns;
    if (!looked && looked.error().code == Errc::interrupted) co_return;
    const std::string error = looked ? "" : looked.error().message;
    if (!error.empty() && error != logged) {
      log_warning("cannot read the routing", {{"cause", error}});
    }
    logged = error;
    const auto paused = co_await sleep_for(loop_, kStorePauseNs);
    if (!paused) co_return;
    const auto waited = co_await refresh_requested_.wait(loop_.now_ns() + kStoreRefreshNs);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

}  // namespace ff::cluster
