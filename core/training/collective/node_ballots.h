// Ballots between hosts (shrink.h): local rank 0 counts the votes of its host, agrees with the
// other hosts (agreement.h), and stores the decisions in the vote table. Used by the loop of
// pipeline.h only; works on after the job has failed.
#pragma once

#include <functional>
#include <string>

#include "platform/base/gate.h"
#include "training/collective/agreement.h"
#include "training/collective/host_group.h"

namespace ff::collective {

class NodeBallots {
 public:
  // Method of frames between nodes; pipeline_state.h has the others.
  static constexpr uint32_t kMethod = 48;  // agreement.h
  struct Links {
    Agreement::Send send;
    std::function<Task<void>()> flush;  // waits, not for long, until all is sent
  };
  NodeBallots(Loop& loop, HostGroup& group, uint32_t nodes, uint32_t self, Links links);

  // Handles what has changed in the vote table, and deadlines.
  void poll();
  // Errc::corrupt: the message is malformed.
  Result<void> handle(uint32_t node, ByteView message);
  // The connection to the node is gone.
  void lose(uint32_t node);
  // Decides nothing any more.
  Task<void> close();

 private:
  bool has_local_vote() const;
  void vote(bool is_over);
  void check_deadlines();
  Task<void> store_decisions();
  void store(uint32_t ballot);

  Loop& loop_;
  HostGroup& group_;
  const uint32_t self_;
  const Links links_;
  Agreement agreement_;
  RankSet members_;              // of this host
  uint32_t stored_ = 0;          // decisions
  bool storing_ = false;         // store_decisions() runs
  uint32_t timed_ = UINT32_MAX;  // the ballot that began_ns_ is of
  int64_t began_ns_ = 0;
  uint32_t silent_ = 0;  // coordinators of it that did not answer
  Gate gate_;
};

}  // namespace ff::collective
