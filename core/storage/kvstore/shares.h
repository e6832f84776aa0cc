// Which process is to own which partition of a store: all that run have the same number of them,
// or one more. Every process computes it from the same files, the claims and heartbeats of claim.h;
// what keeps two processes from owning a partition are the claims, not that their plans agree.
#pragma once

#include <string>
#include <vector>

namespace ff::kvstore {

// A process that lives.
struct ShareMember {
  std::string id = {};
  std::string host = {};  // Options::host
};

// The ids of those that share: all have the same clients. Those that every client reaches, or,
// where there are none, those of the machine whose processes own most partitions now. `owners`: as
// below.
std::vector<std::string> sharing_members(const std::vector<std::string>& owners,
                                         const std::vector<ShareMember>& members);

// The id of the process that is to own each partition. `owners` has that of the present one; empty:
// nobody owns it. `members`: the ids of all processes that are to have partitions, at least one, in
// any order, maybe twice.
//
// As few partitions as possible change their owners. So a plan that has been carried out stays the
// same. Those of a process with too many that move are its last ones; the first member in the order
// of ids gets the first ones.
std::vector<std::string> plan_shares(const std::vector<std::string>& owners,
                                     std::vector<std::string> members);

}  // namespace ff::kvstore
