// What the primary cluster manager decides, as a state machine without I/O: it is told of
// heartbeats, times and the operator's commands, and proposes changes of the routing. One change at
// a time: it is written down (store.h), then applied(), and only then does anybody hear of it.
//
// A target leaves a serving chain only when it can no longer serve: its node says so, has started
// again under a new generation, or has been silent for T. One that its predecessor cannot reach is
// told to stop, as one that is drained is, and says so itself. While such a change is being written
// the nodes it concerns get no answers (must_wait), so none is told to go on serving meanwhile.
//
// When it meets signs of routing newer than its own (an old database was restored) it halts: no
// more answers, no more changes, and the reason in halted().
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/result.h"
#include "storage/cluster/report.h"
#include "storage/cluster/routing.h"

namespace ff::cluster {

// Records of one change: what fits a KV transaction (kv::kWritesMax) beside the lease.
constexpr size_t kChangeMax = 64;
// Bytes of changes in one answer, of a message's 1 MiB.
constexpr size_t kAnswerBytes = size_t{512} << 10;

// An operator gave up data that only a dead target may have held.
struct Loss {
  ChainId chain = 0;
  uint64_t version = 0;  // of the chain, after
  TargetId promoted = 0;
  TargetId given_up = 0;
  int64_t wall_ns = 0;
  std::string by = {};
  uint64_t chunks = 0;  // that the promoted one did not have, at least
  uint64_t bytes = 0;
  bool operator==(const Loss&) const = default;
};

// What the operator wants to be done about it.
struct LossOrder {
  ChainId chain = 0;
  TargetId promote = 0;  // 0: the manager decides
  std::string by = {};
  int64_t wall_ns = 0;
  uint64_t expect = 0;      // the chain's version; 0: whatever it is
  bool incomplete = false;  // the operator knows that the one to be promoted is
};

// What comes of it.
struct LossPlan {
  Chain after = {};
  Loss loss = {};
  bool incomplete = false;           // the promoted one has less than another that is known
  std::vector<SetAside> aside = {};  // by this decision
};

struct Proposal {
  Changes changes = {};
  std::optional<Loss> loss = {};
  bool empty() const { return changes.size() == 0; }
};

// Where a target lies.
struct Place {
  NodeId node = 0;
  DiskId disk = 0;
  auto operator<=>(const Place&) const = default;
};

// What the primary knows of a node that is not written down.
struct Seen {
  uint64_t generation = 0;
  uint64_t sequence = 0;
  uint64_t restarts = 0;  // of its process since the primary has known it
  int64_t since_ns = 0;   // when this generation was first heard of
  int64_t heard_ns = 0;
  uint64_t routing_version = 0;
  Node node = {};  // as it describes itself
  std::map<TargetId, TargetReport> targets = {};
  std::map<DiskId, DiskUse> disks = {};
};

// The highest number of a target that was given; one that is replaced gets a higher one.
TargetId last_target(const Routing& routing);

class Manager {
 public:
  // A new primary that has loaded `routing`, which belongs to a cluster. Times: steady, of the
  // manager's own clock.
  Manager(Routing routing, int64_t now_ns);

  const Routing& routing() const { return routing_; }
  const std::optional<Error>& halted() const { return halted_; }

  // Whether the node's heartbeat has to wait until the pending change is applied.
  bool must_wait(NodeId node) const { return involved_.contains(node); }
  // Errc::refused: of another cluster, of a process that a newer one has replaced, overtaken by a
  // later one, or without sense; Errc::failed: halted.
  Result<HeartbeatAnswer> heartbeat(Heartbeat beat, int64_t now_ns);
  // Whether a heartbeat since the last call said something new: propose() may find a change.
  bool take_news() { return std::exchange(news_, false); }

  // What follows from what was heard and from the time; empty: nothing. There must be no pending
  // change; what is returned is pending until applied(). When it cannot be written the manager is
  // given up, and a new one made from what is stored.
  Proposal propose(int64_t now_ns);
  void applied();

  // The operator's commands, all pending changes too. Errc::usage: no such thing, with what is
  // wrong; Errc::refused: not in this state.
  // Chains of new, empty targets, at most kChangeMax.
  Result<Proposal> create_chains(const std::vector<std::vector<Place>>& chains);
  // The next version of the table, or its first.
  Result<Proposal> set_table(TableId id, std::vector<ChainId> chains);
  // Whether the node's targets, or one target, shall leave their chains and stay out. They leave
  // only where another target serves.
  Result<Proposal> drain_node(NodeId id, bool drain);
  Result<Proposal> drain_target(TargetId id, bool drain);
  // Promotes a live target of a chain whose lastsrv is dead, or one that was set aside: what only
  // others held is lost to the chain, but not erased: they are set aside, and new, empty targets
  // take their places. The manager takes the one that has most, if that is complete and no other
  // has more; another only by its number, and never one that was being filled while another, the
  // dead one apart, is known to be complete. Errc::refused: with what would do.
  Result<Proposal> accept_loss(const LossOrder& order, int64_t now_ns);
  Result<LossPlan> plan_loss(const LossOrder& order, int64_t now_ns) const;
  // Has a replica that was set aside removed.
  Result<Proposal> drop_target(TargetId id);
  // Those that were set aside are dropped after so long; 0: never. `wall_ns`: the time now.
  void keep_lost(int64_t keep_ns, int64_t wall_ns) {
    keep_lost_ns_ = keep_ns;
    wall_ns_ = wall_ns;
  }
  // A new, empty target in the place of one that is offline.
  Result<Proposal> replace_target(TargetId id, Place place);

  // For the operator. Null when the node has not been heard of by this primary.
  const Seen* seen(NodeId node) const;
  bool alive(NodeId node, int64_t now_ns) const;
  // Why the target does not serve, or cannot be drained; empty when all is well.
  std::string why(const Chain& chain, const Target& target, int64_t now_ns) const;

 private:
  Result<void> admit(const Heartbeat& beat);
  Result<void> check_newer(const Heartbeat& beat);
  std::vector<Predecessor> predecessors(NodeId node) const;
  void note_chain(const Chain& chain);
  const TargetReport* report(const Target& target) const;
  // Of this chain version; null when there is none.
  const TargetReport* fresh_report(const Chain& chain, const Target& target) const;
  // With what it has now, as far as is known.
  Target with_holding(const Chain& chain, const Target& target) const;
  bool promotable(const Chain& chain, const Target& target) const;
  Result<const Target*> choose_heir(const Chain& chain, TargetId promote) const;
  std::string described(const Chain& chain, const Target& target) const;
  void leave_behind(Chain& chain, const Target& heir, LossPlan& plan, int64_t wall_ns) const;
  Result<LossPlan> plan_return(const Chain& chain, const LossOrder& order, int64_t now_ns) const;
  bool fenced(const Chain& chain, int64_t now_ns) const;
  void age_aside(Chain& chain) const;
  void note_cuts(const Heartbeat& beat, int64_t now_ns);
  bool held_out(TargetId id) const;
  Local local_of(const Chain& chain, const Target& target, int64_t now_ns) const;
  bool wanted_out(const Target& target) const;
  void set_stops(Chain& chain) const;
  Chain next(const Chain& chain, int64_t now_ns) const;
  void propose_nodes(Changes& changes) const;
  Proposal pend(Proposal proposal, bool replaces = false);
  Result<Chain> chain_of(TargetId id) const;
  Result<void> check_idle() const;

  Routing routing_;
  const int64_t since_ns_;
  // Which have, or once had, a target on the node: each heartbeat looks at those only.
  std::map<NodeId, std::set<ChainId>> chains_of_;
  std::map<NodeId, Seen> seen_;
  std::optional<Proposal> pending_;
  std::set<NodeId> involved_;  // nodes with targets that the pending change moves
  std::optional<Error> halted_;
  bool news_ = false;
  std::map<TargetId, Size> sizes_;  // as last told
  int64_t keep_lost_ns_ = 0;
  int64_t wall_ns_ = 0;
  // Targets that the one before them could not reach: out until then.
  struct Cut {
    TargetId from = 0;
    int64_t until_ns = 0;
    uint64_t times = 0;
    bool out = true;
  };
  std::map<TargetId, Cut> cuts_;
};

}  // namespace ff::cluster
