// The simulated world of a scenario: clock, network, random numbers, metrics and the first
// violation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "platform/base/clock.h"
#include "platform/base/metrics.h"
#include "platform/base/rng.h"
#include "platform/rpc/handshake.h"
#include "platform/sim/sim_net.h"
#include "platform/sim/sim_world.h"

namespace ff::scenario {

// Virtual time limits for the formation of a cluster and for a call to one manager.
constexpr int64_t kFormNs = 60 * kSecond;
constexpr int64_t kManagerCallNs = 2 * kSecond;

struct Simulation {
  explicit Simulation(uint64_t seed) : rng(seed), net(world, seed) {}
  // Records the violation; only the first one is kept.
  void report_violation(std::string what);
  // The identity of a process; all processes of a scenario have the same key.
  rpc::Identity identity(std::string name);

  sim::SimWorld world;
  SeededRng rng;
  sim::SimNet net;
  Metrics metrics;
  std::optional<Error> violation;
  uint64_t steps = 0;
  uint64_t faults = 0;
};

}  // namespace ff::scenario
