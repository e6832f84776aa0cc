// Membership of a node, as a state machine without I/O: what to report, whether its targets may
// serve, and the routing it holds. Every request checks may_read()/may_write() when it starts and
// again before its response; both return false from T/2 after the last answered heartbeat was sent.
//
// The storage daemon sets which targets are usable and which are copied completely; their local
// states follow from that and from the routing. A node that has just started reports no targets
// until the routing shows none of them serving, syncing or waiting: until then chains may still
// rely on the previous process.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "platform/base/result.h"
#include "storage/cluster/heartbeat.h"
#include "storage/cluster/routing.h"

namespace ff::cluster {

class Member {
 public:
  // `self`: description of the node with the generation of this process; `held`: saved routing.
  Member(NodeInfo self, Routing held);

  const NodeInfo& self() const { return self_; }
  const Routing& routing() const { return routing_; }
  void set_addresses(std::vector<std::string> addresses) { self_.addresses = std::move(addresses); }
  void set_disks(std::vector<DiskInfo> disks) { self_.disks = std::move(disks); }
  void set_disk_usage(std::vector<DiskUsage> use) { disk_usage_ = std::move(use); }

  // Targets of this node that do not exist yet: the caller creates them empty, then marks them
  // usable.
  std::vector<TargetId> targets_to_create() const;
  // Whether the data of the target can be read and written. A target that fails while its chain
  // relies on it stays offline until the chain has changed.
  void set_usable(TargetId id, bool usable);
  // The target has all data of its predecessor, under this chain version.
  void set_copied(TargetId id, uint64_t chain_version);
  void set_progress(TargetId id, uint64_t copied, uint64_t to_copy);
  void set_size(TargetId id, TargetSize size);
  // Set while the target cannot reach its successor under this chain version.
  void set_unreachable(TargetId id, std::optional<UnreachableTarget> unreachable_report);

  // The next heartbeat, to be sent now.
  Heartbeat next_heartbeat();
  // Whether the next heartbeat would differ from the last answered one.
  bool has_unreported_changes() const;
  // Whether a target is rejoining a chain of this node: the routing will change soon, repeatedly.
  bool expects_routing_changes() const;
  // Processes the response to the heartbeat sent at `sent_ns` (steady clock). Errc::refused: the
  // response is older than the routing of the node, or of another cluster; it changes nothing.
  Result<void> on_response(const Heartbeat& sent, int64_t sent_ns, const HeartbeatResponse& answer);

  // Whether the manager still considers this node alive at `now_ns`.
  bool has_lease(int64_t now_ns) const;
  // Whether the target may accept writes under the chain version that this node holds, as a serving
  // or syncing target.
  bool may_write(TargetId id, int64_t now_ns) const;
  // Whether the target may answer reads: it serves, and all its predecessors know that.
  bool may_read(TargetId id, int64_t now_ns) const;

  LocalTargetState local_state(TargetId id) const;
  // Chain of a target of this node; nothing when it has no such target.
  std::optional<ChainId> chain_of(TargetId id) const;
  // Whether the states in the routing refer to this process, no longer to the previous one.
  bool has_rejoined() const { return rejoined_; }

 private:
  struct OwnTarget {
    ChainId chain = 0;
    bool usable = false;
    uint64_t copied_version = 0;          // chain version of the complete copy
    uint64_t offline_version = 0;         // chain version under which it was reported offline
    uint64_t serving_since = 0;           // first chain version in which it serves; 0: it does not
    bool predecessors_confirmed = false;  // all serving predecessors know that it serves
    uint64_t copied = 0;                  // bytes
    uint64_t to_copy = 0;
    std::optional<TargetSize> size;
    std::optional<UnreachableTarget> unreachable_report;
  };
  const OwnTarget* own(TargetId id) const;
  // Null: the node has no such target, as far as it knows.
  const Target* target(TargetId id, const Chain*& chain) const;
  void index_own_targets();
  void update_serving_since();
  std::vector<TargetReport> targets() const;
  std::vector<UnreachableTarget> unreachable() const;

  NodeInfo self_;
  Routing routing_;
  std::vector<DiskUsage> disk_usage_;
  std::map<TargetId, OwnTarget> own_targets_;
  bool rejoined_ = false;  // whether it reports its targets
  uint64_t sequence_ = 0;
  bool answered_ = false;
  int64_t lease_start_ns_ = 0;  // sending time of the newest answered heartbeat
  NodeInfo reported_self_;      // as sent in that heartbeat
  std::vector<TargetReport> reported_;
  std::vector<UnreachableTarget> reported_unreachable_;
};

}  // namespace ff::cluster
