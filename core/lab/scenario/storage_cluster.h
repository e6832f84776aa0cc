// A cluster of managers and storage nodes for several scenarios, and its operator, who creates the
// chains and watches the routing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lab/scenario/chain_parts.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/routing_cache.h"

namespace ff::scenario {

class StorageCluster {
 public:
  struct Options {
    uint64_t chains = 2;
    uint64_t replicas = chain_parts::kStorageNodes;
    size_t disks = 1;    // of each node; the chains are divided among them
    bool files = false;  // managers serve metadata, and all chains form table 1
  };
  StorageCluster(uint64_t seed, Options options);

  using Managers = std::vector<std::unique_ptr<cluster_parts::ManagerProcess>>;
  using Nodes = std::vector<std::unique_ptr<chain_parts::StorageProcess>>;
  cluster_parts::ClusterSimulation& simulation() { return simulation_; }
  Managers& managers() { return managers_; }
  Nodes& nodes() { return nodes_; }
  const cluster::Routing& routing() const { return routing_.routing(); }

  // Called every 50 ms, and every 500 ms.
  void set_on_tick(std::function<void()> on_tick) { on_tick_ = std::move(on_tick); }
  void set_on_round(std::function<void()> on_round) { on_round_ = std::move(on_round); }
  // Runs until every target serves.
  void form();
  void run_for(int64_t ns);
  // Runs until the condition holds; reports a violation after `most_ns`.
  void run_until(const std::function<bool()>& condition, int64_t most_ns, std::string_view what);
  bool all_serve() const;

 private:
  Task<Result<void>> try_to_form();
  Task<void> watch();
  bool formed() const;

  const Options options_;
  cluster_parts::ClusterSimulation simulation_;
  Managers managers_;
  Nodes nodes_;
  std::function<void()> on_tick_ = [] {};
  std::function<void()> on_round_ = [] {};

  // The operator.
  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport_ = simulation_.net.transport("operator");
  rpc::ClientContext context_{
      simulation_.world.loop(), *transport_,     grants_,
      simulation_.metrics,      simulation_.rng, simulation_.identity("operator")};
  cluster::ManagerClient calls_{context_, cluster_parts::manager_addresses()};
  cluster::RoutingCache routing_{context_, cluster_parts::manager_addresses(), [] {}};
  Gate gate_{simulation_.world.loop()};
};

}  // namespace ff::scenario
