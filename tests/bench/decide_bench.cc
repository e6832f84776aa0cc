// Speed of one decision of the scheduler over a full cluster, every node held by a task that can be
// interrupted, while tasks of higher levels wait: nodes, and tasks that wait. `interrupted` is how
// many have to stop in that one pass.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>

#include "ops/scheduler/decide.h"
#include "platform/base/rng.h"

namespace ff::scheduler {
namespace {

constexpr int64_t kNow = 1'000'000 * kSecond;

uint32_t gang_size(Rng& rng, uint32_t most) {
  const double powers = std::log2(most) + 1;
  return static_cast<uint32_t>(std::exp2(std::floor(rng.uniform01() * powers)));
}

ClusterSnapshot full_cluster(uint32_t nodes, uint32_t waiting, uint32_t largest) {
  SeededRng rng(1);
  ClusterSnapshot snapshot;
  for (uint32_t node = 0; node < nodes; node++) {
    snapshot.nodes.push_back({.zone = node < nodes / 2 ? 0u : 1u, .leaf = node / 32});
  }
  for (uint32_t node = 0; node < nodes;) {
    Gang gang{.order = snapshot.tasks.size(), .phase = GangPhase::running};
    const uint32_t limit = node < nodes / 2 ? nodes / 2 : nodes;
    const uint32_t size = std::min(gang_size(rng, largest), limit - node);
    gang.request.nodes = size;
    gang.charged_level = static_cast<PriorityLevel>(rng.below(3));
    gang.started_ns = kNow - static_cast<int64_t>(rng.below(86'400)) * kSecond;
    gang.saved_ns =
        std::max(gang.started_ns, kNow - static_cast<int64_t>(rng.below(600)) * kSecond);
    for (uint32_t i = 0; i < size; i++, node++) {
      snapshot.nodes[node].task = static_cast<uint32_t>(snapshot.tasks.size());
      gang.nodes.push_back(node);
    }
    snapshot.tasks.push_back(std::move(gang));
  }
  for (uint32_t i = 0; i < waiting; i++) {
    Gang gang{.order = snapshot.tasks.size(), .user = static_cast<uint32_t>(rng.below(50))};
    gang.request.nodes = gang_size(rng, largest);
    gang.level = static_cast<PriorityLevel>(rng.below(kPriorityLevels));
    if (rng.below(2) == 0) gang.limit_ns = static_cast<int64_t>(rng.below(86'400)) * kSecond;
    snapshot.tasks.push_back(std::move(gang));
  }
  return snapshot;
}

void decide_full(benchmark::State& state) {
  const auto nodes = static_cast<uint32_t>(state.range(0));
  const ClusterSnapshot snapshot =
      full_cluster(nodes, static_cast<uint32_t>(state.range(1)), nodes / 16);
  size_t interrupted = 0;
  for (auto _ : state) interrupted = decide(snapshot, kNow).preemptions.size();
  state.counters["interrupted"] = static_cast<double>(interrupted);
  state.SetComplexityN(state.range(0));
}
BENCHMARK(decide_full)->Args({1250, 5000})->Args({10'000, 15'000})->Unit(benchmark::kMillisecond);

// Everybody has one node: as many interruptions as can be.
void decide_single_nodes(benchmark::State& state) {
  const ClusterSnapshot snapshot =
      full_cluster(static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1)), 1);
  size_t interrupted = 0;
  for (auto _ : state) interrupted = decide(snapshot, kNow).preemptions.size();
  state.counters["interrupted"] = static_cast<double>(interrupted);
}
BENCHMARK(decide_single_nodes)
    ->Args({1250, 5000})
    ->Args({10'000, 15'000})
    ->Unit(benchmark::kMillisecond);
// How the cost grows: tasks in proportion to nodes.
BENCHMARK(decide_full)
    ->Args({1000, 2000})
    ->Args({2000, 4000})
    ->Args({4000, 8000})
    ->Args({8000, 16'000})
    ->Args({16'000, 32'000})
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oNLogN);

}  // namespace
}  // namespace ff::scheduler
