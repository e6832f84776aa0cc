// The environment of a rank: the variables that the task was submitted with, then its place in the
// gang, by the names of torchrun, and the variables of ff (schedule.md). Tokens of the user and the
// path of the cluster key are left out: no task inherits them.
//
// Where the task was submitted without HOME, USER, LOGNAME, SHELL or PATH, the node sets them, as
// cron(8) and `su -` do: from its user database, and PATH to a default. The agent's own environment
// never reaches a rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/scheduler/attempt_record.h"
#include "platform/auth/key.h"

namespace ff::scheduler {

struct RankInfo {
  std::string scheduler = {};
  uint64_t task = 0;
  uint32_t attempt = 0;
  uint32_t nodes = 1;
  uint32_t node_rank = 0;
  uint32_t processes = 1;  // of a node
  uint32_t local_rank = 0;
  std::string first_address = {};  // of the first node
  uint32_t port = 0;               // MASTER_PORT
  std::string zone = {};           // of this node; empty: none
  std::string task_dir = {};
  std::optional<std::string> key_file = {};
  std::optional<LoginAccount> login = {};  // of the user, on this node

  uint32_t rank() const { return node_rank * processes + local_rank; }
};

std::vector<std::string> rank_environment(const std::vector<std::string>& submitted,
                                          const RankInfo& place);
// "FF_TASK_RANK_OF=SCHEDULER.TASK.ATTEMPT.RANK": unique for each rank (shim/launch.h), also where
// agents of several schedulers share a machine.
std::string rank_marker(const RankInfo& place);

// The key of an attempt, the same on all of its nodes; it reveals nothing about the cluster key:
//   HMAC-SHA256(cluster key, "ff job|" task:u64 attempt:u32 scheduler id), little-endian
struct AttemptIdentity {
  std::string scheduler;
  uint64_t task = 0;
  uint32_t attempt = 0;
};
auth::Key attempt_key(const auth::Key& cluster, const AttemptIdentity& job);

}  // namespace ff::scheduler
