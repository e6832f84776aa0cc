// Ballots between hosts (shrink.h): local rank 0 counts the votes of its host, agrees with the
// other hosts (agreement.h), and stores the decisions in the vote table. It passes on what the
// successors (successor.h) that have connected to it report, and sends them the decisions. Used by
// the loop of pipeline.h only; works on after the job has failed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "training/collective/agreement.h"
#include "training/collective/host_ballots.h"
#include "training/collective/successor_links.h"

namespace ff::collective {

class NodeBallots {
 public:
  // Method of frames between nodes; pipeline_state.h has the others.
  static constexpr uint32_t kMethod = 48;  // agreement.h
  struct Links {
    Agreement::Send send;
    std::function<Task<void>()> flush;  // waits, not for long, until all is sent
  };
  // The world outlives this. `listener`: for successors; may be null.
  NodeBallots(Loop& loop, HostGroup& group, const World& world, uint32_t self, Links links,
              std::unique_ptr<net::Listener> listener);

  // Handles what has changed in the vote table, and deadlines.
  void poll();
  // Errc::corrupt: the message is malformed.
  Result<void> handle(uint32_t node, ByteView message);
  // The connection to the node is gone.
  void lose(uint32_t node);
  // Decides nothing any more.
  Task<void> close();

 private:
  // What a successor here knows.
  struct Successor {
    SuccessorReport report = {};
    bool is_ahead = false;  // of the agreement
    bool differs = false;   // its last decision is another one
    uint32_t next = 0;      // decision to send
    uint32_t active = 0;    // ballots that it knows to be active
  };

  void check_deadlines();
  void check_successors();
  Task<void> store_decisions();
  void hear(uint32_t node, const SuccessorReport& report);
  void update_all();
  void update(uint32_t node, Successor& successor);
  void pass_on(uint32_t node, Successor& successor);
  uint64_t mark_before(uint32_t ballot) const;

  Loop& loop_;
  HostGroup& group_;
  const uint32_t self_;
  const uint32_t nodes_;
  const Links links_;
  Agreement agreement_;
  HostBallots host_;
  std::map<uint32_t, Successor> successors_;  // that report here, by node
  bool storing_ = false;                      // store_decisions() runs
  uint32_t timed_ = UINT32_MAX;               // the ballot that the next three are of
  int64_t began_ns_ = 0;
  uint32_t silent_ = 0;                     // coordinators that did not answer
  std::map<uint32_t, int64_t> missing_ns_;  // nodes that lack a successor, since when
  SuccessorLinks successor_links_;
  Gate gate_;
};

}  // namespace ff::collective
