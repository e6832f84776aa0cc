// The decisions of the primary cluster manager, as a state machine without I/O. Inputs are
// heartbeats, times and commands of the operator; outputs are changes of the routing. One change at
// a time: the caller stores it (cluster_store.h), calls applied(), and only then publishes it.
//
// A target leaves a serving chain only when it can no longer serve: its node reports it offline,
// has restarted with a new generation, or has been silent for T. A target that its predecessor
// cannot reach, or that is drained, is told to stop and then reports itself offline. While such a
// change is being stored, the affected nodes get no heartbeat responses (must_wait), so that none
// is told to continue serving meanwhile.
//
// When the manager learns of routing newer than its own (an old database was restored), it halts:
// no responses, no changes, and the reason in halted().
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/result.h"
#include "storage/cluster/heartbeat.h"
#include "storage/cluster/routing.h"

namespace ff::cluster {

// Maximum number of records per change: fits a KV transaction (kv::kWritesMax) together with the
// lease.
constexpr size_t kChangeMax = 64;
// Maximum size of the routing delta in one response; a message has at most 1 MiB.
constexpr size_t kAnswerBytes = size_t{512} << 10;

// Record of an accepted data loss: the operator gave up data that only a dead target may have held.
struct DataLoss {
  ChainId chain = 0;
  uint64_t version = 0;  // chain version after the decision
  TargetId promoted = 0;
  TargetId abandoned = 0;
  int64_t wall_ns = 0;
  std::string requested_by = {};
  uint64_t chunks = 0;  // chunks that the promoted target lacks, at least
  uint64_t bytes = 0;
  bool operator==(const DataLoss&) const = default;
};

// Command of the operator to accept a data loss.
struct AcceptLossOptions {
  ChainId chain = 0;
  TargetId promote = 0;  // target to promote; 0: the manager chooses
  std::string requested_by = {};
  int64_t wall_ns = 0;
  uint64_t expect = 0;      // required chain version; 0: any
  bool incomplete = false;  // the operator confirms that the promoted target is incomplete
};

// The effects of such a command.
struct DataLossPlan {
  Chain after = {};
  DataLoss loss = {};
  bool incomplete = false;           // another known replica has more data than the promoted one
  std::vector<SetAside> aside = {};  // replicas that this decision sets aside
};

struct Proposal {
  RoutingDelta changes = {};
  std::optional<DataLoss> loss = {};
  bool empty() const { return changes.size() == 0; }
};

// Location of a target.
struct DiskLocation {
  NodeId node = 0;
  DiskId disk = 0;
  auto operator<=>(const DiskLocation&) const = default;
};

// Volatile state of a node, known to the primary from heartbeats.
struct NodeStatus {
  uint64_t generation = 0;
  uint64_t sequence = 0;
  uint64_t restarts = 0;            // restarts of the process since this primary knows the node
  int64_t generation_since_ns = 0;  // first heartbeat of this generation
  int64_t last_heartbeat_ns = 0;
  uint64_t routing_version = 0;
  NodeInfo node = {};  // as reported by the node
  std::map<TargetId, TargetReport> targets = {};
  std::map<DiskId, DiskUsage> disks = {};
};

// The highest target id that was ever assigned; a replacement gets a higher one.
TargetId last_target(const Routing& routing);

class Manager {
 public:
  // Starts as a new primary with the stored `routing`, which belongs to a cluster. All times are
  // from the steady clock of the manager.
  Manager(Routing routing, int64_t now_ns);

  const Routing& routing() const { return routing_; }
  const std::optional<Error>& halted() const { return halted_; }

  // Whether heartbeats of the node must wait until the pending change is applied.
  bool must_wait(NodeId node) const { return waiting_nodes_.contains(node); }
  // Errc::refused: another cluster, a process that was replaced by a newer one, out of order, or
  // invalid; Errc::failed: halted.
  Result<HeartbeatResponse> heartbeat(Heartbeat beat, int64_t now_ns);
  // Whether a heartbeat since the last call reported something new, so that propose() may return a
  // change.
  bool take_changed() { return std::exchange(changed_, false); }

  // The next change that follows from reports and time; empty: none. There must be no pending
  // change; the returned one is pending until applied(). If it cannot be stored, discard the
  // manager and create a new one from the stored routing.
  Proposal propose(int64_t now_ns);
  void applied();

  // Commands of the operator; each returns a pending change. Errc::usage: invalid, with the reason;
  // Errc::refused: not in this state.
  //
  // Creates chains of new, empty targets, at most kChangeMax.
  Result<Proposal> create_chains(const std::vector<std::vector<DiskLocation>>& chains);
  // Creates the next version of the table, or its first.
  Result<Proposal> set_table(TableId id, std::vector<ChainId> chains);
  // Starts or ends the draining of a node or of one target. Drained targets leave their chains only
  // where another target serves.
  Result<Proposal> drain_node(NodeId id, bool drain);
  Result<Proposal> drain_target(TargetId id, bool drain);
  // Promotes a live target of a chain whose lastsrv is dead, or one that was set aside. Data that
  // only other replicas have is lost to the chain but not erased: those replicas are set aside, and
  // new, empty targets replace them. By default the manager promotes the replica with the most
  // data, if it is complete and no other has more. The operator can choose another one by its id,
  // but not one that was syncing while another replica, apart from the dead one, is known to be
  // complete. Errc::refused: with a hint what would work.
  Result<Proposal> accept_loss(const AcceptLossOptions& options, int64_t now_ns);
  Result<DataLossPlan> plan_loss(const AcceptLossOptions& options, int64_t now_ns) const;
  // Lets the node of a set-aside replica remove it.
  Result<Proposal> drop_target(TargetId id);
  // Drops set-aside replicas after this time; 0: never. `wall_ns`: the current wall clock.
  void set_lost_retention(int64_t retention_ns, int64_t wall_ns) {
    lost_retention_ns_ = retention_ns;
    wall_ns_ = wall_ns;
  }
  // Replaces an offline target by a new, empty one.
  Result<Proposal> replace_target(TargetId id, DiskLocation location);

  // Null when this primary has no heartbeat of the node.
  const NodeStatus* node_status(NodeId node) const;
  bool alive(NodeId node, int64_t now_ns) const;
  // Why the target does not serve, or cannot be drained; empty when nothing is wrong. Shown to
  // operators.
  std::string not_serving_reason(const Chain& chain, const Target& target, int64_t now_ns) const;

 private:
  Result<void> validate(const Heartbeat& beat);
  Result<void> halt_if_newer(const Heartbeat& beat);
  std::vector<Predecessor> predecessors(NodeId node) const;
  void index_chain(const Chain& chain);
  const TargetReport* report(const Target& target) const;
  // Report under the current chain version; null when there is none.
  const TargetReport* current_report(const Chain& chain, const Target& target) const;
  // The target with the data it has now, as far as known.
  Target with_current_data(const Chain& chain, const Target& target) const;
  bool promotable(const Chain& chain, const Target& target) const;
  Result<const Target*> choose_candidate(const Chain& chain, TargetId promote) const;
  std::string describe(const Chain& chain, const Target& target) const;
  void set_aside_others(Chain& chain, const Target& candidate, DataLossPlan& plan,
                        int64_t wall_ns) const;
  Result<DataLossPlan> plan_restore(const Chain& chain, const AcceptLossOptions& options,
                                    int64_t now_ns) const;
  bool fenced(const Chain& chain, int64_t now_ns) const;
  void expire_set_aside(Chain& chain) const;
  void record_unreachable(const Heartbeat& beat, int64_t now_ns);
  bool is_isolated(TargetId id) const;
  LocalTargetState local_state_of(const Chain& chain, const Target& target, int64_t now_ns) const;
  bool is_draining(const Target& target) const;
  void update_stop_flags(Chain& chain) const;
  Chain next_chain(const Chain& chain, int64_t now_ns) const;
  void propose_nodes(RoutingDelta& changes) const;
  Proposal set_pending(Proposal proposal, bool replaces = false);
  Result<Chain> chain_of(TargetId id) const;
  Result<void> check_idle() const;

  Routing routing_;
  const int64_t since_ns_;
  // Chains that have, or once had, a target on the node: a heartbeat checks only those.
  std::map<NodeId, std::set<ChainId>> chains_by_node_;
  std::map<NodeId, NodeStatus> node_status_;
  std::optional<Proposal> pending_;
  std::set<NodeId> waiting_nodes_;  // nodes whose targets the pending change moves
  std::optional<Error> halted_;
  bool changed_ = false;
  std::map<TargetId, TargetSize> sizes_;  // as last reported
  int64_t lost_retention_ns_ = 0;
  int64_t wall_ns_ = 0;
  // Targets that their predecessor could not reach; they stay out of the chain until then.
  struct Isolation {
    TargetId from = 0;
    int64_t until_ns = 0;
    uint64_t times = 0;
    bool out = true;
  };
  std::map<TargetId, Isolation> isolations_;
};

}  // namespace ff::cluster
