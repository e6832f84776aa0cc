// The chunks of a file on storage nodes, as the metadata service uses them: it asks where they end
// and removes them. Owned by one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "platform/base/wait.h"
#include "storage/chain/chain_client.h"
#include "storage/cluster/routing.h"
#include "storage/meta/inode.h"

namespace ff::meta {

// The offset behind the last byte stored in any chunk of the file, over the chains of its stripe.
Task<Result<uint64_t>> stored_length(chain::ChainClient& client, Loop& loop, Inode file,
                                     std::vector<cluster::ChainId> chains,
                                     std::string capability = {});

class FileChunks {
 public:
  // All outlive it.
  FileChunks(chain::ChainClient& client, const cluster::Routing& routing, Loop& loop)
      : client_(client), routing_(routing), loop_(loop) {}

  // stored_length() of a file.
  Task<Result<uint64_t>> stored_length(Inode file);
  // Called after each listing of chunks: false cancels the removal. Chunk versions written after
  // that listing are never removed.
  using StillNeeded = std::function<Task<Result<bool>>()>;
  // Removes all bytes from `length` on, durably. Returns early if `still_needed` returns false.
  Task<Result<void>> truncate(Inode file, uint64_t length, StillNeeded still_needed);

  // Removes all bytes of files that nobody has open, durably. Returns the result of each file, in
  // their order: one that cannot be removed does not hold up the others. Each chain is synced once
  // for all of them.
  Task<std::vector<Result<void>>> remove(std::vector<Inode> files);
  // Removes all chunks of an inode on one chain, whatever its layout was.
  Task<Result<void>> remove_all(cluster::ChainId chain, InodeId inode);

 private:
  struct ChainShare;
  struct Removal;
  using Verifiers = std::set<uint64_t>;  // of listings and updates (chain/service.h)
  Task<Result<void>> truncate_share(ChainShare share);
  Task<Result<void>> truncate_unsynced(const ChainShare& share, Verifiers& verifiers, bool& over);
  Task<Result<void>> remove_on_chain(std::vector<Removal> removals, Semaphore& listings);
  Task<Result<void>> check_still_needed(const ChainShare& share, bool& over);
  Task<Result<void>> truncate_chunk(const ChainShare& share, chain::ChainClient::FoundChunk found,
                                    Verifiers& verifiers, bool& over);
  Task<Result<bool>> sync_chain(cluster::ChainId chain, const Verifiers& seen);

  chain::ChainClient& client_;
  const cluster::Routing& routing_;
  Loop& loop_;
};

}  // namespace ff::meta
