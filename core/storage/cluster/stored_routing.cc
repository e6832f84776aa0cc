// stored_routing.cc: one key tells whether anything is new; then all of it is read.
#include "storage/cluster/stored_routing.h"

#include <utility>

#include "platform/base/clock.h"
#include "platform/base/log.h"

namespace ff::cluster {

namespace {

constexpr int64_t kStoreFollowNs = kSecond;
constexpr int64_t kStorePauseNs = 50 * kMillisecond;  // between two looks at least
constexpr int64_t kStorePollNs = 5 * kSecond;
constexpr int64_t kFillValidNs = 5 * kSecond;  // for so long it is believed

}  // namespace

StoredRouting::StoredRouting(kv::Engine& engine, Loop& loop, std::function<void()> changed)
    : store_(engine), loop_(loop), changed_(std::move(changed)), asked_(loop) {}

Task<Result<void>> StoredRouting::look() {
  auto asking = store_.version(loop_.now_ns() + kStorePollNs);
  FF_CO_TRY(const uint64_t version, co_await std::move(asking));
  auto filling = look_at_fill();
  FF_CO_TRY(const bool filled, co_await std::move(filling));
  if (version == routing_.version) {
    if (filled) changed_();
    co_return Result<void>();
  }
  auto loading = store_.load(loop_.now_ns() + kStorePollNs);
  FF_CO_TRY(Stored stored, co_await std::move(loading));
  if (!stored.routing) co_return Result<void>();
  routing_ = std::move(*stored.routing);
  changed_();
  co_return Result<void>();
}

// Whether it is another.
Task<Result<bool>> StoredRouting::look_at_fill() {
  const int64_t now_ns = loop_.now_ns();
  if (fill_ns_ != INT64_MIN && now_ns - fill_ns_ < kFillValidNs) co_return false;
  auto asking = store_.fill(now_ns + kStorePollNs);
  FF_CO_TRY(Fill fill, co_await std::move(asking));
  fill_ns_ = now_ns;
  const bool changed = fill != fill_;
  fill_ = std::move(fill);
  co_return changed;
}

Task<void> StoredRouting::run() {
  std::string told;
  for (;;) {
    asked_.reset();
    const int64_t began_ns = loop_.now_ns();
    auto looking = look();
    const auto looked = co_await std::move(looking);
    if (looked) looked_ns_ = began_ns;
    if (!looked && looked.error().code == Errc::interrupted) co_return;
    const std::string trouble = looked ? "" : looked.error().message;
    if (!trouble.empty() && trouble != told) {
      log_warning("cannot read the routing", {{"cause", trouble}});
    }
    told = trouble;
    const auto paused = co_await after(loop_, kStorePauseNs);
    if (!paused) co_return;
    const auto waited = co_await asked_.wait(loop_.now_ns() + kStoreFollowNs);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

}  // namespace ff::cluster
