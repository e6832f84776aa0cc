// The oracle of the scenario of cluster/: knows the stored routing and which targets have every
// acknowledged write, and checks that no process acts on a contradicting belief.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "lab/scenario/cluster_parts.h"

namespace ff::scenario::cluster_parts {

class ClusterOracle {
 public:
  using Managers = std::vector<std::unique_ptr<ManagerProcess>>;
  using Nodes = std::vector<std::unique_ptr<NodeProcess>>;
  ClusterOracle(ClusterSimulation& simulation, Managers& managers, Nodes& nodes);

  // Checks all invariants, then simulates writes to random chains.
  void check();
  // The stored routing.
  const cluster::Routing& stored() const { return stored_; }
  // Whether every target serves reads, in the stored routing and on its node.
  bool all_serve() const;
  uint64_t writes() const { return writes_; }

  // Simulates the copy to a target under this chain version; returns whether it is complete.
  bool copy(NodeProcess& node, cluster::TargetId target, uint64_t chain_version);

 private:
  struct TargetView {
    NodeProcess* node;
    const cluster::Chain* chain;  // as the node knows it
    const cluster::Target* target;
  };
  void check_store();
  void note_serving(const cluster::Chain& chain);
  void check_loss(const cluster::Chain& before, const cluster::Chain& after);
  void check_primaries();
  void check_nodes();
  void check_target(const TargetView& believer);
  void write(cluster::ChainId id);
  NodeProcess* ready(const cluster::Target& target, const cluster::Chain& chain, bool awake) const;

  ClusterSimulation& simulation_;
  Managers& managers_;
  Nodes& nodes_;
  kv::MemoryEngine engine_;
  uint64_t revision_ = 0;  // last checked store revision
  cluster::Routing stored_;
  uint64_t epoch_ = 0;                                 // highest epoch of any primary
  std::map<cluster::ChainId, cluster::NodeId> heads_;  // acting heads in this check
  std::set<cluster::TargetId> incomplete_;             // targets that lack acknowledged writes
  // After so many writes a target served last, as was stored.
  std::map<cluster::TargetId, uint64_t> served_;
  uint64_t writes_ = 0;
};

}  // namespace ff::scenario::cluster_parts
