// Checks that metadata and storage are consistent: every dentry has its inode, link counts are
// right, every inode is reachable or queued for collection, and every chunk belongs to a file. It
// reads one snapshot while the cluster works. It repairs problems one by one, each only if nothing
// has changed since the snapshot.
//
// It keeps about 50 bytes of memory per inode: 5 GB for 100 million.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "storage/meta/file_chunks.h"
#include "storage/meta/fsck_report.h"
#include "storage/meta/namespace.h"

namespace ff::meta {

// The directory in the root where repaired inodes without a name get the name "#INODE".
constexpr const char* kLostAndFound = "lost+found";

class Fsck {
 public:
  struct Options {
    bool repair = false;
    // Orphan chunks are removed only if fsck first saw them at least this long ago: they may belong
    // to a file that is missing from a restored backup.
    int64_t orphans_after_ns = 24 * 3600 * kSecond;
  };
  // All outlive it. Owned by one loop.
  Fsck(kv::Engine& engine, chain::ChainClient& storage, FileChunks& chunks,
       const cluster::Routing& routing, InodeIdAllocator& ids, Loop& loop)
      : engine_(engine),
        storage_(storage),
        chunks_(chunks),
        routing_(routing),
        ids_(ids),
        loop_(loop) {}

  Task<Result<FsckReport>> run(Options options);

 private:
  struct StoredInode {
    cluster::ChainId chain = 0;
    InodeId inode = 0;
  };
  Task<Result<std::vector<StoredInode>>> list_stored_inodes();
  Task<Result<bool>> is_old(InodeId inode, Options options);
  Task<Result<void>> repair(FsckProblem& problem);
  Task<Result<InodeId>> lost_and_found();
  Task<Result<void>> reconnect(FsckProblem& problem);
  Task<Result<void>> remove_orphans(FsckProblem& problem, Options options);
  Task<Result<void>> change(FsckProblem& problem, std::function<Task<Result<bool>>(kv::Txn&)> how);

  kv::Engine& engine_;
  chain::ChainClient& storage_;
  FileChunks& chunks_;
  const cluster::Routing& routing_;
  InodeIdAllocator& ids_;
  Loop& loop_;
};

}  // namespace ff::meta
