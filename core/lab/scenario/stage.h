// What every part of a story knows: the simulated world, its dice, and what went wrong first.
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

// Virtual time that a cluster may take to form, and that a call to one manager may take.
constexpr int64_t kFormNs = 60 * kSecond;
constexpr int64_t kManagerCallNs = 2 * kSecond;

struct Stage {
  explicit Stage(uint64_t seed) : rng(seed), net(world, seed) {}
  // The first one counts.
  void broken(std::string what);
  // Who speaks: every process of a story holds the same key.
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
