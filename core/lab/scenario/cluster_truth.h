// What is true in the story of cluster/, whatever its processes believe: what is stored, which
// targets hold every acknowledged write, and whether anybody believes what must not be believed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "lab/scenario/cluster_parts.h"

namespace ff::scenario::cluster_parts {

class Truth {
 public:
  using Managers = std::vector<std::unique_ptr<ManagerProcess>>;
  using Nodes = std::vector<std::unique_ptr<NodeProcess>>;
  Truth(ClusterStage& stage, Managers& managers, Nodes& nodes);

  // Everything that must hold now; then writes are tried, here and there.
  void look();
  // The routing as stored.
  const cluster::Routing& stored() const { return stored_; }
  // Whether each target of the cluster serves and reads, and all primaries agree to that.
  bool all_serve() const;
  uint64_t writes() const { return writes_; }

  // Whether the target has been copied in full, under this chain version.
  bool copy(NodeProcess& node, cluster::TargetId target, uint64_t chain_version);

 private:
  struct Believer {
    NodeProcess* node;
    const cluster::Chain* chain;  // as it knows it
    const cluster::Target* target;
  };
  void look_at_store();
  void note_serving(const cluster::Chain& chain);
  void look_at_loss(const cluster::Chain& before, const cluster::Chain& after);
  void look_at_primaries();
  void look_at_nodes();
  void look_at(const Believer& believer);
  void write(cluster::ChainId id);
  NodeProcess* ready(const cluster::Target& target, const cluster::Chain& chain, bool awake) const;

  ClusterStage& stage_;
  Managers& managers_;
  Nodes& nodes_;
  kv::MemoryEngine engine_;
  uint64_t revision_ = 0;  // that was looked at
  cluster::Routing stored_;
  uint64_t epoch_ = 0;                                 // the highest that acted
  std::map<cluster::ChainId, cluster::NodeId> heads_;  // believed, in this look
  std::set<cluster::TargetId> lacking_;                // targets that lack acknowledged writes
  // After so many writes a target served last, as was stored.
  std::map<cluster::TargetId, uint64_t> served_;
  uint64_t writes_ = 0;
};

}  // namespace ff::scenario::cluster_parts
