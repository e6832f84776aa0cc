// stop_token.cc: the checks behind StopToken.
#include "platform/base/stop_token.h"

#include <algorithm>

namespace ff {

Result<void> StopToken::check() const {
  if (requested()) return Error{Errc::interrupted, "interrupted", {}};
  if (deadline_ns_ != 0 && clock_.steady_ns() >= deadline_ns_) {
    return Error{Errc::deadline, "the time given with --timeout has passed",
                 "Give a longer --timeout."};
  }
  return {};
}

Result<void> StopToken::sleep_ns(int64_t ns) const {
  constexpr int64_t kSlice = 100 * kMillisecond;
  const int64_t end = clock_.steady_ns() + ns;
  for (int64_t left = ns; left > 0; left = end - clock_.steady_ns()) {
    FF_TRY(check());
    clock_.sleep_ns(std::min(left, kSlice));
  }
  return check();
}

}  // namespace ff
