// chain_usage.cc: draws seeds until one is good enough.
#include "storage/meta/chain_usage.h"

#include <algorithm>
#include <utility>

#include "platform/base/rng.h"

namespace ff::meta {

namespace {

constexpr int kDraws = 16;
constexpr int kDrawsOfOne = 256;  // for stripes of one chain

// The class of free space of a chain; 0: full.
int free_step(const ChainUsage& usage, cluster::ChainId chain) {
  const auto found = usage.used.find(chain);
  const uint32_t used = found == usage.used.end() ? 0 : found->second;
  if (used >= cluster::kFullPercent) return 0;
  if (used >= cluster::kNearfullPercent) return 1;
  return 2 + static_cast<int>((99 - used) / 25);
}

}  // namespace

ChainUsage chain_usage_of(const cluster::Routing& routing, const cluster::DiskUtilization& fill) {
  ChainUsage usage;
  for (const auto& [key, table] : routing.tables) usage.tables[key.first] = table.chains;
  for (const auto& [id, chain] : routing.chains) usage.used[id] = chain_utilization(fill, chain);
  return usage;
}

Layout with_free_chains(Layout layout, const ChainUsage& usage) {
  const auto found = usage.tables.find(layout.table);
  if (found == usage.tables.end() || found->second.empty()) return layout;
  const std::vector<cluster::ChainId>& table = found->second;
  int most = 0;
  for (const cluster::ChainId chain : table) most = std::max(most, free_step(usage, chain));
  SeededRng rng(layout.seed);
  Layout best = layout;
  int best_step = -1;
  for (;;) {
    const int draws = layout.stripe <= 1 ? kDrawsOfOne : kDraws;
    for (int i = 0; i < draws && best_step < most; i++) {
      int least = most;
      for (const cluster::ChainId chain : stripe_chains(layout, table)) {
        least = std::min(least, free_step(usage, chain));
      }
      if (least > best_step) {
        best = layout;
        best_step = least;
      }
      layout.seed = rng.next();
    }
    if (best_step > 0 || most == 0 || layout.stripe <= 1) return best;
    layout.stripe /= 2;
  }
}

}  // namespace ff::meta
