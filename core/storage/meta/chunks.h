// A file's bytes in storage, as the metadata service needs them: where they end, and how they go.
// Owned by one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "storage/chain/client.h"
#include "storage/cluster/routing.h"
#include "storage/meta/inode.h"

namespace ff::meta {

// Behind the last byte that any chunk of a file has, in the chains of its stripe.
Task<Result<uint64_t>> stored_end(chain::Client& client, Loop& loop, Inode file,
                                  std::vector<cluster::ChainId> chains,
                                  std::string capability = {});

class Chunks {
 public:
  // All outlive it.
  Chunks(chain::Client& client, const cluster::Routing& routing, Loop& loop)
      : client_(client), routing_(routing), loop_(loop) {}

  // stored_end() of a file.
  Task<Result<uint64_t>> end(Inode file);
  // Asked behind each look at what there is: whether it is still to go. What was written later than
  // that look stays in any case.
  using Still = std::function<Task<Result<bool>>()>;
  // Nothing is left of it from byte `length` on, and that is durable; or it is no longer to go.
  Task<Result<void>> cut(Inode file, uint64_t length, Still still);

  // Everything that a chain has of an inode, whatever its layout was.
  Task<Result<void>> remove_all(cluster::ChainId chain, InodeId inode);

 private:
  struct Share;
  using Verifiers = std::set<uint64_t>;  // of looks and changes (chain/service.h)
  Task<Result<void>> cut_share(Share share);
  Task<Result<void>> goes_still(const Share& share, bool& over);
  Task<Result<void>> cut_chunk(const Share& share, chain::Client::Last found, Verifiers& verifiers,
                               bool& over);
  Task<Result<bool>> keep(cluster::ChainId chain, Verifiers& verifiers);

  chain::Client& client_;
  const cluster::Routing& routing_;
  Loop& loop_;
};

}  // namespace ff::meta
