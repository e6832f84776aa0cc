// What a rank finds in its environment: what its task was submitted with, then its place in the
// gang, by the names that torchrun uses, and what is ff's own (schedule.md). The user's own tokens
// and a cluster key's path are left out: no task inherits them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/auth/key.h"

namespace ff::scheduler {

struct RankPlace {
  std::string scheduler = {};
  uint64_t task = 0;
  uint32_t attempt = 0;
  uint32_t nodes = 1;
  uint32_t node_rank = 0;
  uint32_t processes = 1;  // of a node
  uint32_t local = 0;
  std::string first_address = {};  // of the first node
  uint32_t port = 0;               // free there
  std::string task_dir = {};
  std::optional<std::string> key_file = {};

  uint32_t rank() const { return node_rank * processes + local; }
};

std::vector<std::string> rank_environment(const std::vector<std::string>& submitted,
                                          const RankPlace& place);
// "FF_TASK_RANK=TASK.ATTEMPT.RANK": of one rank alone (shim/launch.h).
std::string rank_marker(const RankPlace& place);

// The key of an attempt, the same on all of its nodes; who has it learns nothing of the cluster's:
//   HMAC-SHA256(cluster key, "ff job|" task:u64 attempt:u32 scheduler's id), little-endian
struct JobName {
  std::string scheduler;
  uint64_t task = 0;
  uint32_t attempt = 0;
};
auth::Key job_key(const auth::Key& cluster, const JobName& job);

}  // namespace ff::scheduler
