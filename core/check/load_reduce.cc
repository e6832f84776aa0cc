// load_reduce.cc: the sum of one array of each core, which every core then has, as data-parallel
// training sums gradients (reduce-scatter, then all-gather, through memory that all share). The
// values are small integers, so that the sum is known to the bit.
#include <algorithm>
#include <barrier>
#include <mutex>

#include "base/text.h"
#include "base/units.h"
#include "check/load.h"

namespace ff::check {

namespace {

constexpr size_t kValues = 4 * kMiB / sizeof(float);

// What rank `rank` has at `at`: below 2^24 when summed over as many ranks as there may be cores.
float value_of(size_t rank, size_t at) { return static_cast<float>((rank * 31 + at * 17) % 1009); }

struct Reduction {
  explicit Reduction(size_t ranks) : parts(ranks), sums(ranks) {}
  std::vector<std::vector<float>> parts;  // of each rank
  std::vector<std::vector<float>> sums;   // that each rank has got
  size_t ranks() const { return parts.size(); }

  // [first, last) of the sum is this rank's to make.
  std::pair<size_t, size_t> share(size_t rank) const {
    return {kValues * rank / ranks(), kValues * (rank + 1) / ranks()};
  }
  void reduce_scatter(size_t rank) {
    const auto [first, last] = share(rank);
    float* const sum = sums[rank].data();
    std::copy(parts[0].begin() + static_cast<ptrdiff_t>(first),
              parts[0].begin() + static_cast<ptrdiff_t>(last), sum + first);
    for (size_t other = 1; other < ranks(); other++) {
      const float* const from = parts[other].data();
      for (size_t at = first; at < last; at++) sum[at] += from[at];
    }
  }
  void all_gather(size_t rank) {
    for (size_t other = 0; other < ranks(); other++) {
      if (other == rank) continue;
      const auto [first, last] = share(other);
      std::copy(sums[other].begin() + static_cast<ptrdiff_t>(first),
                sums[other].begin() + static_cast<ptrdiff_t>(last),
                sums[rank].begin() + static_cast<ptrdiff_t>(first));
    }
  }
  // The first value that is not the sum; kValues: all are.
  size_t first_wrong(size_t rank) const {
    for (size_t at = 0; at < kValues; at++) {
      float expected = 0;
      for (size_t other = 0; other < ranks(); other++) expected += value_of(other, at);
      if (sums[rank][at] != expected) return at;
    }
    return kValues;
  }
};

}  // namespace

void check_collective_reduce(const Context& context) {
  const std::vector<unsigned> cpus = allowed_cpus();
  Finding finding{.name = "collective.reduce"};
  if (cpus.empty()) {
    finding.found = "no processor that may be used";
    return context.report(std::move(finding));
  }
  Reduction reduction(cpus.size());
  std::barrier together(static_cast<ptrdiff_t>(cpus.size()));
  Spans spans;
  std::mutex mutex;
  std::vector<std::string> wrong;  // guarded by it
  const int rounds = context.level == Level::quick ? 5 : 50;
  on_each(cpus, [&](size_t rank) {
    reduction.parts[rank].resize(kValues);
    reduction.sums[rank].resize(kValues);
    for (size_t at = 0; at < kValues; at++) reduction.parts[rank][at] = value_of(rank, at);
    for (int round = 0; round < rounds; round++) {
      together.arrive_and_wait();
      const int64_t began_ns = context.clock.steady_ns();
      reduction.reduce_scatter(rank);
      if (context.fault == Fault::sum_bit && rank == 0) reduction.sums[0][0] += 1;
      together.arrive_and_wait();
      reduction.all_gather(rank);
      spans.add(round, began_ns, context.clock.steady_ns());
    }
    const size_t at = reduction.first_wrong(rank);
    if (at == kValues) return;
    const std::lock_guard lock(mutex);
    wrong.push_back(fmt::format("core {} from value {}", cpus[rank], at));
  });
  finding.verdict = wrong.empty() ? Verdict::pass : Verdict::fail;
  // What nccl-tests call the algorithm's bandwidth.
  finding.value = static_cast<double>(kValues * sizeof(float)) / spans.shortest_seconds();
  finding.unit = "B/s";
  finding.better = Better::higher;
  finding.found = fmt::format("{} summed over {} cores, {}", format_size(kValues * sizeof(float)),
                              cpus.size(), format_rate(*finding.value));
  finding.expected = "the known sum on every core";
  if (!wrong.empty()) {
    finding.found = fmt::format("wrong sums: {}", fmt::join(wrong, ", "));
    finding.value.reset();
    finding.hint = "Look at cpu.kernels and memory.edac. Do not trust this node's results.";
  }
  context.report(std::move(finding));
}

}  // namespace ff::check
