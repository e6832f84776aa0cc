// backoff.cc: from 1 ms, doubled up to 256 ms, each anywhere between its half and its whole.
#include "kv/backoff.h"

#include <algorithm>

#include "base/clock.h"
#include "base/wait.h"

namespace ff::kv {

Task<Result<void>> Backoff::pause() {
  constexpr int kDoublings = 8;
  const auto half = static_cast<uint64_t>(kMillisecond << std::min(attempts_, kDoublings)) / 2;
  const int64_t until_ns = loop_.now_ns() + static_cast<int64_t>(half + rng_.below(half + 1));
  ++attempts_;
  if (until_ns >= deadline_ns_) {
    co_return fail(Errc::deadline, "{} attempts of a transaction met others that came first",
                   attempts_);
  }
  co_return co_await until(loop_, until_ns);
}

}  // namespace ff::kv
