// load_reduce.cc: the sum of one array of each core, which every core then has, as data-parallel
// training sums gradients: by the ranks of `ff allreduce`, one pinned to each core. The values are
// small integers, so that the sum is known to the bit.
#include <algorithm>
#include <mutex>

#include "ops/validate/load.h"
#include "ops/validate/sum_rank.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::validate {

namespace {

constexpr size_t kRankBytes = 32 * kMiB;  // of a rank: more than the caches keep of it
constexpr size_t kValues = kRankBytes / sizeof(float);

// What rank `rank` has at `at`: below 2^24 when summed over as many ranks as there may be cores.
float value_of(size_t rank, size_t at) { return static_cast<float>((rank * 31 + at * 17) % 1009); }

// One rank: its array, and the sum that it gets.
class Rank {
 public:
  static Result<Rank> join(const SumRanks& from, uint32_t rank, uint32_t ranks,
                           const std::string& job, const Stop& stop) {
    FF_TRY(auto one, from.join(rank, ranks, job, stop));
    FF_TRY(const ByteSpan part, one->allocate(kRankBytes));
    FF_TRY(const ByteSpan sum, one->allocate(kRankBytes));
    return Rank(rank, ranks, std::move(one), part, sum);
  }

  void fill() const {
    for (size_t at = 0; at < kValues; at++) part_[at] = value_of(rank_, at);
    std::fill_n(sum_, kValues, 0.0F);
  }
  Result<void> barrier() { return one_->barrier(); }
  Result<void> add_up() { return one_->sum(part_, sum_, kValues); }
  void break_sum() const { sum_[0] += 1; }
  // The first value that is not the sum; kValues: all are.
  size_t first_wrong() const {
    for (size_t at = 0; at < kValues; at++) {
      float expected = 0;
      for (uint32_t other = 0; other < ranks_; other++) expected += value_of(other, at);
      if (sum_[at] != expected) return at;
    }
    return kValues;
  }

 private:
  Rank(uint32_t rank, uint32_t ranks, std::unique_ptr<SumRank> one, ByteSpan part, ByteSpan sum)
      : rank_(rank),
        ranks_(ranks),
        one_(std::move(one)),
        part_(reinterpret_cast<float*>(part.data())),
        sum_(reinterpret_cast<float*>(sum.data())) {}

  uint32_t rank_, ranks_;
  std::unique_ptr<SumRank> one_;
  float *part_, *sum_;
};

// As many of them as a host has ranks, from all parts of the machine.
std::vector<unsigned> rank_cpus(size_t most) {
  const std::vector<unsigned> all = allowed_cpus();
  const size_t step = (all.size() + most - 1) / most;
  std::vector<unsigned> some;
  for (size_t i = 0; i < all.size(); i += step) some.push_back(all[i]);
  return some;
}

}  // namespace

void check_collective_reduce(const Context& context) {
  Finding finding{.name = "collective.reduce"};
  if (!context.sum_ranks.join) {
    finding.found = "could not be run: nothing here sums";
    return context.report(std::move(finding));
  }
  const std::vector<unsigned> cpus = rank_cpus(context.sum_ranks.max);
  if (cpus.empty()) {
    finding.found = "no processor that may be used";
    return context.report(std::move(finding));
  }
  const std::string job = "validate-" + context.rng.hex_id();
  const Stop stop(context.clock);
  Spans spans;
  std::mutex mutex;
  std::vector<std::string> wrong, failed;  // guarded by it
  const int rounds = context.level == Level::quick ? 10 : 50;
  const auto sum = [&](uint32_t rank) -> Result<size_t> {
    FF_TRY(auto one,
           Rank::join(context.sum_ranks, rank, static_cast<uint32_t>(cpus.size()), job, stop));
    one.fill();
    for (int round = 0; round < rounds; round++) {
      FF_TRY(one.barrier());
      const int64_t began_ns = context.clock.steady_ns();
      FF_TRY(one.add_up());
      spans.add(round, began_ns, context.clock.steady_ns());
    }
    if (context.fault == Fault::sum_bit && rank == 0) one.break_sum();
    return one.first_wrong();
  };
  on_each(cpus, [&](size_t rank) {
    const auto at = sum(static_cast<uint32_t>(rank));
    if (at && *at == kValues) return;
    const std::lock_guard lock(mutex);
    if (at) {
      wrong.push_back(fmt::format("core {} from value {}", cpus[rank], *at));
    } else {
      failed.push_back(fmt::format("core {}: {}", cpus[rank], at.error().message));
    }
  });
  if (!failed.empty()) {
    finding.found = fmt::format("could not be run: {}", failed.front());
    return context.report(std::move(finding));
  }
  finding.verdict = wrong.empty() ? Verdict::pass : Verdict::fail;
  // What nccl-tests call the algorithm's bandwidth.
  finding.value = static_cast<double>(kRankBytes) / spans.shortest_seconds();
  finding.unit = "B/s";
  finding.better = Better::higher;
  finding.found = fmt::format("{} summed over {} cores, {}", format_size(kRankBytes), cpus.size(),
                              format_rate(*finding.value));
  finding.expected = "the known sum on every core";
  if (!wrong.empty()) {
    finding.found = fmt::format("wrong sums: {}", fmt::join(wrong, ", "));
    finding.value.reset();
    finding.hint = "Look at cpu.kernels and memory.edac. Do not trust this node's results.";
  }
  context.report(std::move(finding));
}

}  // namespace ff::validate
