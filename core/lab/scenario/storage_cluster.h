// A cluster of managers and storage nodes that stories run on, and its operator, who forms it and
// looks what its chains are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lab/scenario/chain_parts.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/routing_copy.h"

namespace ff::scenario {

class StorageCluster {
 public:
  struct Options {
    uint64_t chains = 2;
    uint64_t replicas = chain_parts::kStorageNodes;
    bool files = false;  // managers serve metadata, and the chains are table 1
  };
  StorageCluster(uint64_t seed, Options options);

  using Managers = std::vector<std::unique_ptr<cluster_parts::ManagerProcess>>;
  using Nodes = std::vector<std::unique_ptr<chain_parts::StorageProcess>>;
  cluster_parts::ClusterStage& stage() { return stage_; }
  Managers& managers() { return managers_; }
  Nodes& nodes() { return nodes_; }
  const cluster::Routing& routing() const { return routing_.routing(); }

  // Called some twenty times a second, and twice a second.
  void on_look(std::function<void()> look) { look_ = std::move(look); }
  void on_round(std::function<void()> round) { round_ = std::move(round); }
  // Until every target serves.
  void form();
  void run_for(int64_t ns);
  // It is a violation if the condition does not hold within `most_ns`.
  void run_until(const std::function<bool()>& condition, int64_t most_ns, std::string_view what);
  bool all_serve() const;

 private:
  Task<Result<void>> try_to_form();
  Task<void> watch();
  bool formed() const;

  const Options options_;
  cluster_parts::ClusterStage stage_;
  Managers managers_;
  Nodes nodes_;
  std::function<void()> look_ = [] {};
  std::function<void()> round_ = [] {};

  // The operator.
  rpc::Senders senders_;
  std::unique_ptr<net::Transport> transport_ = stage_.net.transport("operator");
  rpc::ClientContext context_{stage_.world.loop(), *transport_, senders_,
                              stage_.metrics,      stage_.rng,  stage_.identity("operator")};
  cluster::ManagerClient calls_{context_, cluster_parts::manager_addresses()};
  cluster::RoutingCopy routing_{context_, cluster_parts::manager_addresses(), [] {}};
  Gate gate_{stage_.world.loop()};
};

}  // namespace ff::scenario
