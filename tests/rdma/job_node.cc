// job_node.cc: sums and broadcasts whose results are known.
#include "rdma/job_node.h"

#include <fmt/format.h>

#include <vector>

#include "platform/base/clock.h"
#include "platform/base/stop_token.h"
#include "training/collective/communicator.h"

namespace ff::collective {

namespace {

constexpr uint32_t kNodes = 2;
constexpr uint64_t kCount = 3'000'001;  // more pieces than a channel has slots
constexpr int32_t kRounds = 3;

// What rank `rank` has at the start of a round.
int32_t value(uint32_t rank, int32_t round, uint64_t at) {
  return static_cast<int32_t>(at * (rank + 3)) + round;
}

Result<void> run_round(Communicator& ranks, int32_t round) {
  std::vector<int32_t> memory(kCount);
  for (uint64_t i = 0; i < kCount; i++) memory[i] = value(ranks.rank(), round, i);
  Operation operation{
      .type = simd::DataType::i32, .count = kCount, .in = memory.data(), .out = memory.data()};
  FF_TRY(ranks.run(operation));
  for (uint64_t i = 0; i < kCount; i++) {
    const int32_t sum = value(0, round, i) + value(1, round, i);
    if (memory[i] == sum) continue;
    return fail(Errc::corrupt, "sum {} is {} instead of {}", i, memory[i], sum);
  }
  memory.assign(kCount, static_cast<int32_t>(ranks.rank()) + round);
  operation.kind = Collective::broadcast;
  operation.root = static_cast<uint32_t>(round) % kNodes;
  FF_TRY(ranks.run(operation));
  for (const int32_t one : memory) {
    const int32_t wanted = static_cast<int32_t>(operation.root) + round;
    if (one != wanted) return fail(Errc::corrupt, "broadcast {} instead of {}", one, wanted);
  }
  return {};
}

}  // namespace

Result<void> run_node(const JobNode& node) {
  SystemClock clock;
  const StopToken stop(clock);
  Network network{.ranks = kNodes, .at = {node.host, node.port, ""}};
  network.transport.mode = net::NetMode::verbs;
  network.key = auth::Key{};
  const HostRank self{.first_rank = node.node, .job = fmt::format("guest-{}", node.node)};
  FF_TRY(const auto ranks, Communicator::join(self, stop, {}, network));
  for (int32_t round = 0; round < kRounds; round++) FF_TRY(run_round(*ranks, round));
  fmt::print("ok: {} sums and broadcasts\n", kRounds);
  return {};
}

}  // namespace ff::collective
