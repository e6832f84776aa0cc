// Progress counters that a long action updates and a progress bar reads at any time.
#pragma once

#include <atomic>
#include <cstdint>

namespace ff {

struct Progress {
  std::atomic<uint64_t> done{0};   // bytes finished
  std::atomic<uint64_t> total{0};  // bytes expected; 0 while unknown
};

}  // namespace ff
