// The node's side of membership, as a state machine without I/O: what to report, whether it may
// serve, and the routing it holds. Whoever serves a request asks here first, and again before the
// answer leaves; the answer is "no" from T/2 after the last answered heartbeat was sent.
//
// The storage daemon tells which targets are usable and which have been copied in full; the local
// states follow from that and from the routing. A node that has just started reports no target
// before routing shows none of its targets serving, syncing or waiting: nobody counts on it then.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "platform/base/result.h"
#include "storage/cluster/report.h"
#include "storage/cluster/routing.h"

namespace ff::cluster {

class Member {
 public:
  // What the node says of itself, with the generation of this process, and the routing it had kept.
  Member(Node self, Routing held);

  const Node& self() const { return self_; }
  const Routing& routing() const { return routing_; }
  void set_addresses(std::vector<std::string> addresses) { self_.addresses = std::move(addresses); }
  void set_use(std::vector<DiskUse> use) { use_ = std::move(use); }

  // Targets of this node that nobody has made yet: to be made empty, then usable.
  std::vector<TargetId> to_make() const;
  // Whether the target's data can be read and written. One that fails while its chain counts on it
  // stays offline until the chain has changed.
  void set_usable(TargetId id, bool usable);
  // The target has all data that its predecessor had, under this chain version.
  void set_copied(TargetId id, uint64_t chain_version);
  void set_progress(TargetId id, uint64_t copied, uint64_t to_copy);
  void set_size(TargetId id, Size size);
  // Whether the target has called the one after it in vain, under this version of the chain.
  void set_unreachable(TargetId id, std::optional<Unreachable> cut);

  // The next heartbeat, sent now.
  Heartbeat report();
  // Whether it would say something that the last answered one did not.
  bool has_news() const;
  // Whether a target comes back into a chain of this node's: routing changes soon, and again.
  bool expects_changes() const;
  // The heartbeat that was sent at `sent_ns` (steady) has this answer. Errc::refused: the answer is
  // older than what the node holds, or of another cluster; it changes nothing.
  Result<void> answered(const Heartbeat& sent, int64_t sent_ns, const HeartbeatAnswer& answer);

  // Whether the manager counts on this node still being alive at `now_ns`.
  bool has_lease(int64_t now_ns) const;
  // Whether the target may take part in writes under its chain's version that this node holds, as
  // one that serves or is being copied to.
  bool may_write(TargetId id, int64_t now_ns) const;
  // Whether it may answer reads: it serves, and all before it know.
  bool may_read(TargetId id, int64_t now_ns) const;

  Local local(TargetId id) const;
  // Of a target of this node; nothing when it is none.
  std::optional<ChainId> chain_of(TargetId id) const;
  // Whether the states in the routing speak of this process, no longer of the one before it.
  bool returned() const { return returned_; }

 private:
  struct Own {
    ChainId chain = 0;
    bool usable = false;
    uint64_t copied_version = 0;   // copied in full under it
    uint64_t offline_version = 0;  // reported offline under it
    uint64_t serving_since = 0;    // the chain version that first showed it serving; 0: does not
    bool joined = false;           // all that serve before it know
    uint64_t copied = 0;           // bytes
    uint64_t to_copy = 0;
    std::optional<Size> size;
    std::optional<Unreachable> cut;
  };
  const Own* own(TargetId id) const;
  // Null: the node is not in the target's chain, as far as it knows.
  const Target* target(TargetId id, const Chain*& chain) const;
  void find_own();
  void note_states();
  std::vector<TargetReport> targets() const;
  std::vector<Unreachable> unreachable() const;

  Node self_;
  Routing routing_;
  std::vector<DiskUse> use_;
  std::map<TargetId, Own> own_;
  bool returned_ = false;  // reports its targets
  uint64_t sequence_ = 0;
  bool answered_ = false;
  int64_t lease_from_ns_ = 0;  // when the newest answered heartbeat was sent
  Node told_self_;             // by that heartbeat, as are
  std::vector<TargetReport> told_;
  std::vector<Unreachable> told_cuts_;
};

}  // namespace ff::cluster
