// load_allreduce.cc: an allreduce over one array per core, as data-parallel training sums
// gradients, with the ranks of `ff allreduce`, one pinned to each core. The values are small
// integers, so the exact sum is known.
#include <algorithm>
#include <mutex>

#include "ops/validate/allreduce_rank.h"
#include "ops/validate/load.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::validate {

namespace {

constexpr size_t kRankBytes = 32 * kMiB;  // per rank: larger than its share of the caches
constexpr size_t kValues = kRankBytes / sizeof(float);

// The value of rank `rank` at index `at`: the sum over the maximum number of ranks is below 2^24.
float value_of(size_t rank, size_t at) { return static_cast<float>((rank * 31 + at * 17) % 1009); }

// One rank: its array and the result.
class Rank {
 public:
  static Result<Rank> join(const AllreduceRanks& from, uint32_t rank, uint32_t ranks,
                           const std::string& job, const StopToken& stop) {
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
  Result<void> add_up() { return one_->allreduce(part_, sum_, kValues); }
  void break_sum() const { sum_[0] += 1; }
  // The index of the first wrong value; kValues: all are correct.
  size_t first_wrong() const {
    for (size_t at = 0; at < kValues; at++) {
      float expected = 0;
      for (uint32_t other = 0; other < ranks_; other++) expected += value_of(other, at);
      if (sum_[at] != expected) return at;
    }
    return kValues;
  }

 private:
  Rank(uint32_t rank, uint32_t ranks, std::unique_ptr<AllreduceRank> one, ByteSpan part,
       ByteSpan sum)
      : rank_(rank),
        ranks_(ranks),
        one_(std::move(one)),
        part_(reinterpret_cast<float*>(part.data())),
        sum_(reinterpret_cast<float*>(sum.data())) {}

  uint32_t rank_, ranks_;
  std::unique_ptr<AllreduceRank> one_;
  float *part_, *sum_;
};

// At most the maximum number of ranks, spread over all cores of the machine.
std::vector<unsigned> rank_cpus(size_t most) {
  const std::vector<unsigned> all = allowed_cpus();
  const size_t step = (all.size() + most - 1) / most;
  std::vector<unsigned> some;
  for (size_t i = 0; i < all.size(); i += step) some.push_back(all[i]);
  return some;
}

}  // namespace

void check_collective_reduce(const CheckContext& context) {
  Finding finding{.name = "collective.reduce"};
  if (!context.allreduce_ranks.join) {
    finding.found = "could not run: no allreduce available";
    return context.report(std::move(finding));
  }
  const std::vector<unsigned> cpus = rank_cpus(context.allreduce_ranks.max);
  if (cpus.empty()) {
    finding.found = "no processor that may be used";
    return context.report(std::move(finding));
  }
  const std::string job = "validate-" + context.rng.hex_id();
  const StopToken stop(context.clock);
  TurnTimes spans;
  std::mutex mutex;
  std::vector<std::string> wrong, failed;  // guarded by it
  const int rounds = context.level == RunLevel::quick ? 10 : 50;
  const auto sum = [&](uint32_t rank) -> Result<size_t> {
    FF_TRY(auto one, Rank::join(context.allreduce_ranks, rank, static_cast<uint32_t>(cpus.size()),
                                job, stop));
    one.fill();
    for (int round = 0; round < rounds; round++) {
      FF_TRY(one.barrier());
      const int64_t began_ns = context.clock.steady_ns();
      FF_TRY(one.add_up());
      spans.add(round, began_ns, context.clock.steady_ns());
    }
    if (context.fault == InjectedFault::sum_bit && rank == 0) one.break_sum();
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
  // The algorithm bandwidth of nccl-tests.
  finding.value = static_cast<double>(kRankBytes) / spans.shortest_seconds();
  finding.unit = "B/s";
  finding.better = Better::higher;
  finding.found = fmt::format("{} summed over {} cores, {}", format_size(kRankBytes), cpus.size(),
                              format_rate(*finding.value));
  finding.expected = "the known sum on every core";
  if (!wrong.empty()) {
    finding.found = fmt::format("wrong sums: {}", fmt::join(wrong, ", "));
    finding.value.reset();
    finding.hint = "See cpu.kernels and memory.edac. Do not trust results of this node.";
  }
  context.report(std::move(finding));
}

}  // namespace ff::validate
