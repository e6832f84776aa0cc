// sim_loop.cc: time passes only when nothing is ready.
#include "sim/sim_loop.h"

#include <algorithm>

#include "base/fd_watch.h"

namespace ff::sim {

Result<std::unique_ptr<FdWatch>> SimLoop::watch(int) {
  return fail(Errc::unsupported, "a simulated loop watches no descriptors");
}

void SimLoop::run() { run_until(INT64_MAX); }

void SimLoop::run_until(int64_t until_ns) {
  for (;;) {
    turn();
    if (take_stop()) return;
    if (busy()) continue;
    const auto next = next_timer_ns();
    if (!next || *next > until_ns) {
      if (until_ns != INT64_MAX) sim_clock_.advance(until_ns - now_ns());
      return;
    }
    sim_clock_.advance(*next - now_ns());
  }
}

}  // namespace ff::sim
