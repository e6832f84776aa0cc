// chain_usage.cc: draws seeds, compares their chains, and chooses one.
#include "storage/meta/chain_usage.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "platform/base/rng.h"

namespace ff::meta {

namespace {

constexpr int kDraws = 32;
constexpr int kDrawsOfOne = 256;  // at most, to find a chain with free space
// A stripe on disks with a tenth less free space than others is chosen a thirtieth as often. Taking
// the best one always would send all new files to the same few disks until their next report.
double preference(double least_cost, double cost) {
  double share = least_cost / cost;
  for (int i = 0; i < 5; i++) share *= share;  // to the power of 32
  return share;
}

SpaceClass space_class(uint32_t used) {
  if (used >= cluster::kFullPercent) return SpaceClass::full;
  return used >= cluster::kNearfullPercent ? SpaceClass::nearly_full : SpaceClass::free;
}

SpaceClass space_class(const ChainUsage::Chain& chain, const std::vector<uint32_t>& used) {
  SpaceClass worst = SpaceClass::free;
  for (const ChainUsage::DiskIndex disk : chain.disks) {
    worst = std::min(worst, space_class(used[disk]));
  }
  return worst;
}

struct Candidate {
  uint64_t seed = 0;
  SpaceClass space = SpaceClass::free;
  // Sum over the disks: square of the number of chains on the disk, divided by its free space.
  double cost = 1e-9;  // never 0
};

bool has_serving_target(const cluster::Chain& chain) {
  return std::ranges::any_of(chain.targets, [](const cluster::Target& target) {
    return target.state == cluster::TargetState::serving;
  });
}

class StripeSampler {
 public:
  StripeSampler(const ChainUsage& usage, const ChainUsage::Table& table)
      : usage_(usage), chains_(table.chains), order_(chains_.size()), load_(usage.used.size()) {
    std::iota(order_.begin(), order_.end(), uint32_t{0});
  }

  Candidate evaluate(const Layout& layout) {
    const std::vector<size_t> swaps = stripe_swaps(layout, order_.size());
    Candidate candidate{.seed = layout.seed};
    for (size_t i = 0; i < swaps.size(); i++) {
      std::swap(order_[i], order_[swaps[i]]);
      const ChainUsage::Chain& chain = chains_[order_[i]];
      candidate.space = std::min(candidate.space, chain.space);
      for (const ChainUsage::DiskIndex disk : chain.disks) add_load(disk, candidate);
    }
    for (size_t i = swaps.size(); i-- > 0;) {
      for (const ChainUsage::DiskIndex disk : chains_[order_[i]].disks) load_[disk] = 0;
      std::swap(order_[i], order_[swaps[i]]);
    }
    return candidate;
  }

 private:
  void add_load(ChainUsage::DiskIndex disk, Candidate& candidate) {
    const uint32_t used = std::min(usage_.used[disk], cluster::kFullPercent - 1);
    const uint32_t before = load_[disk]++;
    candidate.cost += static_cast<double>(2 * before + 1) / (cluster::kFullPercent - used);
  }

  const ChainUsage& usage_;
  const std::vector<ChainUsage::Chain>& chains_;
  std::vector<uint32_t> order_;  // of the chains
  std::vector<uint32_t> load_;   // chains of the stripe on each disk
};

// Chooses among the candidates of class `space`.
uint64_t choose_seed(const std::vector<Candidate>& candidates, SpaceClass space, Rng& rng) {
  double least = std::numeric_limits<double>::max();
  for (const Candidate& candidate : candidates) {
    if (candidate.space == space) least = std::min(least, candidate.cost);
  }
  std::vector<double> weights;
  for (const Candidate& candidate : candidates) {
    weights.push_back(candidate.space == space ? preference(least, candidate.cost) : 0);
  }
  double drawn = rng.uniform01() * std::accumulate(weights.begin(), weights.end(), 0.0);
  uint64_t seed = candidates.front().seed;
  for (size_t i = 0; i < weights.size(); i++) {
    if (weights[i] <= 0) continue;
    seed = candidates[i].seed;
    drawn -= weights[i];
    if (drawn < 0) break;
  }
  return seed;
}

}  // namespace

ChainUsage chain_usage_of(const cluster::Routing& routing,
                          const cluster::DiskUtilization& utilization) {
  ChainUsage usage;
  std::map<cluster::DiskLocation, ChainUsage::DiskIndex> indices;
  const auto index_of = [&](const cluster::Target& target) {
    const cluster::DiskLocation disk{target.node, target.disk};
    const auto [found, is_new] =
        indices.emplace(disk, static_cast<ChainUsage::DiskIndex>(usage.used.size()));
    if (is_new) {
      const auto known = utilization.find(disk);
      usage.used.push_back(known == utilization.end() ? 0 : known->second);
    }
    return found->second;
  };
  for (const auto& [key, table] : routing.tables) {
    ChainUsage::Table& newest = usage.tables[key.first];  // the last version of its id
    newest = {};
    for (const cluster::ChainId id : table.chains) {
      ChainUsage::Chain& placed = newest.chains.emplace_back();
      const cluster::Chain* const chain = routing.chain(id);
      if (chain == nullptr) continue;
      for (const cluster::Target& target : chain->targets) placed.disks.push_back(index_of(target));
      if (has_serving_target(*chain)) placed.space = space_class(placed, usage.used);
      newest.best = std::max(newest.best, placed.space);
    }
  }
  return usage;
}

bool any_nearly_full(const ChainUsage& usage) {
  return std::ranges::any_of(usage.used,
                             [](uint32_t used) { return space_class(used) != SpaceClass::free; });
}

Layout with_free_chains(Layout layout, const ChainUsage& usage) {
  const auto table = usage.tables.find(layout.table);
  if (table == usage.tables.end() || table->second.chains.empty()) return layout;
  StripeSampler sampler(usage, table->second);
  const SpaceClass wanted = table->second.best;
  SeededRng rng(layout.seed);
  for (;;) {
    std::vector<Candidate> candidates;
    SpaceClass best = SpaceClass::unavailable;
    const auto searching = [&](int draws) {
      return draws < kDraws || (layout.stripe <= 1 && best < wanted && draws < kDrawsOfOne);
    };
    for (int draws = 0; searching(draws); draws++) {
      candidates.push_back(sampler.evaluate(layout));
      best = std::max(best, candidates.back().space);
      layout.seed = rng.next();
    }
    if (best >= wanted || layout.stripe <= 1) {
      layout.seed = choose_seed(candidates, best, rng);
      return layout;
    }
    layout.stripe /= 2;
  }
}

}  // namespace ff::meta
