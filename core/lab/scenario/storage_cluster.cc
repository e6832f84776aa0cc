// storage_cluster.cc: the formation of the cluster, and running its simulation.
#include "lab/scenario/storage_cluster.h"

#include <fmt/format.h>

#include <utility>

#include "platform/base/clock.h"
#include "storage/cluster/wire.h"

namespace ff::scenario {

namespace {

using chain_parts::kStorageNodes;
using chain_parts::StorageProcess;
using cluster_parts::kManagers;
using cluster_parts::ManagerProcess;

constexpr int64_t kStoragePollNs = 50 * kMillisecond;
constexpr cluster::TableId kTable = 1;

}  // namespace

StorageCluster::StorageCluster(uint64_t seed, Options options)
    : options_(options), simulation_(seed) {
  for (int i = 0; i < kManagers; i++) {
    managers_.push_back(std::make_unique<ManagerProcess>(simulation_, i, options_.files));
  }
  for (cluster::NodeId id = 1; id <= kStorageNodes; id++) {
    nodes_.push_back(
        std::make_unique<StorageProcess>(simulation_, id, seed * 10 + id, options_.disks));
  }
}

bool StorageCluster::formed() const {
  if (routing().chains.size() != options_.chains) return false;
  return !options_.files || routing().table(kTable) != nullptr;
}

Task<Result<void>> StorageCluster::try_to_form() {
  const auto until = [&] { return simulation_.world.now_ns() + 5 * kManagerCallNs; };
  (void)co_await calls_.call(cluster::kInit, cluster::wire::InitRequest(), kManagerCallNs, until(),
                             true);
  routing_.refresh();
  if (routing().nodes.size() < kStorageNodes) co_return fail(Errc::busy, "not all are up");
  if (routing().chains.empty()) {
    cluster::wire::CreateChainsRequest create;
    for (uint64_t i = 0; i < options_.chains; i++) {
      auto& chain = *create.add_chains();
      for (uint64_t at = 0; at < options_.replicas; at++) {
        auto& target = *chain.add_targets();
        target.set_node(1 + (i + at) % kStorageNodes);
        target.set_disk(1 + i % options_.disks);
      }
    }
    FF_CO_TRY(co_await calls_.call(cluster::kCreateChains, std::move(create), kManagerCallNs,
                                   until(), false));
    co_return Result<void>();
  }
  if (formed()) co_return Result<void>();
  cluster::wire::SetTableRequest table;
  table.set_table(kTable);
  for (const auto& [id, chain] : routing().chains) table.add_chains(id);
  FF_CO_TRY(
      co_await calls_.call(cluster::kSetTable, std::move(table), kManagerCallNs, until(), false));
  co_return Result<void>();
}

Task<void> StorageCluster::watch() {
  for (;;) {
    if (!formed()) {
      (void)co_await try_to_form();
    }
    routing_.refresh();
    on_round_();
    const auto waited = co_await sleep_for(simulation_.world.loop(), 500 * kMillisecond);
    if (!waited) co_return;
  }
}

void StorageCluster::form() {
  gate_.spawn(routing_.run());
  gate_.spawn(watch());
  run_until([this] { return formed() && all_serve(); }, kFormNs, "the cluster does not form");
}

void StorageCluster::run_for(int64_t ns) {
  const int64_t until_ns = simulation_.world.now_ns() + ns;
  while (simulation_.world.now_ns() < until_ns && !simulation_.violation) {
    simulation_.world.run_for(kStoragePollNs);
    on_tick_();
  }
}

void StorageCluster::run_until(const std::function<bool()>& condition, int64_t most_ns,
                               std::string_view what) {
  const int64_t end_ns = simulation_.world.now_ns() + most_ns;
  while (!condition() && !simulation_.violation) {
    if (simulation_.world.now_ns() >= end_ns)
      return simulation_.report_violation(
          fmt::format("{}{}", what, cluster_parts::not_serving(routing())));
    run_for(500 * kMillisecond);
  }
}

bool StorageCluster::all_serve() const {
  if (routing().chains.size() != options_.chains) return false;
  for (const auto& [id, chain] : routing().chains) {
    for (const cluster::Target& target : chain.targets) {
      if (target.state != cluster::TargetState::serving) return false;
    }
  }
  return true;
}

}  // namespace ff::scenario
