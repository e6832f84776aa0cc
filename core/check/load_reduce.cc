// load_reduce.cc: the sum of one array of each core, which every core then has, as data-parallel
// training sums gradients (reduce-scatter, then all-gather, through memory that all share). The
// values are small integers, so that the sum is known to the bit.
#include <algorithm>
#include <barrier>
#include <mutex>

#include "base/text.h"
#include "base/units.h"
#include "check/load.h"
#include "simd/reduce.h"

namespace ff::check {

namespace {

constexpr size_t kBytes = 32 * kMiB;  // of a rank: more than the caches keep of it
constexpr size_t kValues = kBytes / sizeof(float);

// What rank `rank` has at `at`: below 2^24 when summed over as many ranks as there may be cores.
float value_of(size_t rank, size_t at) { return static_cast<float>((rank * 31 + at * 17) % 1009); }

// Each rank's own array, and the sum that it has got.
class Reduction {
 public:
  explicit Reduction(size_t ranks) : ranks_(ranks), memory_(2 * ranks * kBytes) {}
  bool there() const { return memory_.there(); }
  float* part(size_t rank) const { return memory_.as<float>(2 * rank * kBytes); }
  float* sum(size_t rank) const { return memory_.as<float>((2 * rank + 1) * kBytes); }

  void fill(size_t rank) const {
    for (size_t at = 0; at < kValues; at++) part(rank)[at] = value_of(rank, at);
    std::fill_n(sum(rank), kValues, 0.0F);  // touched by who works on it, as NUMA wants it
  }
  void reduce_scatter(size_t rank) const {
    const auto [first, last] = share(rank);
    std::vector<const void*> parts;
    for (size_t other = 0; other < ranks_; other++) parts.push_back(part(other) + first);
    void* const to = sum(rank) + first;
    simd::reduce_arrays({.type = simd::DataType::f32}, {parts, {&to, 1}, last - first});
  }
  void all_gather(size_t rank) const {
    for (size_t other = 0; other < ranks_; other++) {
      if (other == rank) continue;
      const auto [first, last] = share(other);
      std::copy(sum(other) + first, sum(other) + last, sum(rank) + first);
    }
  }
  // The first value that is not the sum; kValues: all are.
  size_t first_wrong(size_t rank) const {
    for (size_t at = 0; at < kValues; at++) {
      float expected = 0;
      for (size_t other = 0; other < ranks_; other++) expected += value_of(other, at);
      if (sum(rank)[at] != expected) return at;
    }
    return kValues;
  }

 private:
  // [first, last) of the sum is this rank's to make.
  std::pair<size_t, size_t> share(size_t rank) const {
    return {kValues * rank / ranks_, kValues * (rank + 1) / ranks_};
  }

  const size_t ranks_;
  const LargePages memory_;
};

}  // namespace

void check_collective_reduce(const Context& context) {
  const std::vector<unsigned> cpus = allowed_cpus();
  Finding finding{.name = "collective.reduce"};
  const Reduction reduction(cpus.size());
  if (cpus.empty() || !reduction.there()) {
    finding.found = cpus.empty() ? "no processor that may be used" : "no memory for its arrays";
    return context.report(std::move(finding));
  }
  std::barrier together(static_cast<ptrdiff_t>(cpus.size()));
  Spans spans;
  std::mutex mutex;
  std::vector<std::string> wrong;  // guarded by it
  const int rounds = context.level == Level::quick ? 10 : 50;
  on_each(cpus, [&](size_t rank) {
    reduction.fill(rank);
    for (int round = 0; round < rounds; round++) {
      together.arrive_and_wait();
      const int64_t began_ns = context.clock.steady_ns();
      reduction.reduce_scatter(rank);
      if (context.fault == Fault::sum_bit && rank == 0) reduction.sum(0)[0] += 1;
      together.arrive_and_wait();
      reduction.all_gather(rank);
      spans.add(round, began_ns, context.clock.steady_ns());
    }
    together.arrive_and_wait();
    const size_t at = reduction.first_wrong(rank);
    if (at == kValues) return;
    const std::lock_guard lock(mutex);
    wrong.push_back(fmt::format("core {} from value {}", cpus[rank], at));
  });
  finding.verdict = wrong.empty() ? Verdict::pass : Verdict::fail;
  // What nccl-tests call the algorithm's bandwidth.
  finding.value = static_cast<double>(kBytes) / spans.shortest_seconds();
  finding.unit = "B/s";
  finding.better = Better::higher;
  finding.found = fmt::format("{} summed over {} cores, {}", format_size(kBytes), cpus.size(),
                              format_rate(*finding.value));
  finding.expected = "the known sum on every core";
  if (!wrong.empty()) {
    finding.found = fmt::format("wrong sums: {}", fmt::join(wrong, ", "));
    finding.value.reset();
    finding.hint = "Look at cpu.kernels and memory.edac. Do not trust this node's results.";
  }
  context.report(std::move(finding));
}

}  // namespace ff::check
