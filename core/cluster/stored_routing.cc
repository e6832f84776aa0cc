// stored_routing.cc: one key tells whether anything is new; then all of it is read.
#include "cluster/stored_routing.h"

#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace ff::cluster {

namespace {

constexpr int64_t kFollowNs = kSecond;
constexpr int64_t kPauseNs = 50 * kMillisecond;  // between two looks at least
constexpr int64_t kLookNs = 5 * kSecond;

}  // namespace

StoredRouting::StoredRouting(kv::Engine& engine, Loop& loop, std::function<void()> changed)
    : store_(engine), loop_(loop), changed_(std::move(changed)), asked_(loop) {}

Task<Result<void>> StoredRouting::look() {
  auto asking = store_.version(loop_.now_ns() + kLookNs);
  FF_CO_TRY(const uint64_t version, co_await std::move(asking));
  if (version == routing_.version) co_return Result<void>();
  auto loading = store_.load(loop_.now_ns() + kLookNs);
  FF_CO_TRY(Stored stored, co_await std::move(loading));
  if (!stored.routing) co_return Result<void>();
  routing_ = std::move(*stored.routing);
  changed_();
  co_return Result<void>();
}

Task<void> StoredRouting::run() {
  std::string told;
  for (;;) {
    asked_.reset();
    auto looking = look();
    const auto looked = co_await std::move(looking);
    if (!looked && looked.error().code == Errc::interrupted) co_return;
    const std::string trouble = looked ? "" : looked.error().message;
    if (!trouble.empty() && trouble != told) {
      log_warning("cannot read the routing", {{"cause", trouble}});
    }
    told = trouble;
    const auto paused = co_await after(loop_, kPauseNs);
    if (!paused) co_return;
    const auto waited = co_await asked_.wait(loop_.now_ns() + kFollowNs);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

}  // namespace ff::cluster
