// Injects random faults into the processes of a storage cluster and the links between them. Each
// fault has a random duration, from unnoticeably short to longer than every timeout.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/chain_parts.h"

namespace ff::scenario::chain_parts {

class FaultInjector {
 public:
  using Managers = std::vector<std::unique_ptr<ManagerProcess>>;
  using Nodes = std::vector<std::unique_ptr<StorageProcess>>;
  using Programs = std::vector<Program*>;
  // All arguments must outlive it.
  FaultInjector(ClusterSimulation& simulation, Managers& managers, Nodes& nodes, Programs& programs)
      : simulation_(simulation), managers_(managers), nodes_(nodes), programs_(programs) {}

  // The managers' current routing. With it, offline nodes sometimes lose block files.
  void set_routing(std::function<const cluster::Routing&()> routing) {
    routing_ = std::move(routing);
  }
  // Injects one random fault.
  void inject();
  // Blocks all links between the program and the storage nodes.
  void isolate(const Program& program, int64_t for_ns);
  // Blocks the link between two random nodes, in one or both directions.
  void partition_two(int64_t for_ns);
  void end_all() { end_due(INT64_MAX); }
  // Ends all faults whose duration is over.
  void end_expired();
  // Ends all faults and restarts every node, since a store with a failed disk accepts no changes.
  void heal();

 private:
  using Direction = std::pair<std::string, std::string>;  // from, to
  int64_t random_duration_ns();
  void end_after(int64_t for_ns, std::function<void()> end);
  void end_due(int64_t now_ns);
  std::vector<std::string> names() const;
  static bool same_machine(const std::string& a, const std::string& b);
  void block(const std::string& from, const std::string& to, int64_t for_ns);
  void unblock(const Direction& link);
  void inject_manager_fault(ManagerProcess& manager);
  void inject_node_fault(StorageProcess& node);
  void inject_link_fault();
  void partition();
  void slow_links();
  void power_loss_everywhere();
  static void start(StorageProcess& node);
  void restart(StorageProcess& node);

  ClusterSimulation& simulation_;
  Managers& managers_;
  Nodes& nodes_;
  Programs& programs_;
  std::function<const cluster::Routing&()> routing_;
  std::map<Direction, int> blocked_;  // number of faults that block the direction
  std::multimap<int64_t, std::function<void()>> ends_;
};

}  // namespace ff::scenario::chain_parts
