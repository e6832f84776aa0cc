// Whether the metadata is whole, and storage with it: every name has its inode, link counts are
// right, every inode can be reached or is waiting to be collected, and no chunk is without a file.
// One look at one moment, beside everything else that goes on. Repairs are made one by one, each
// only where nothing has changed since the look.
//
// Inodes are held in memory, some 50 bytes each: 100 million take 5 GB.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "storage/meta/chunks.h"
#include "storage/meta/fsck_report.h"
#include "storage/meta/names.h"

namespace ff::meta {

// Where what lost its name is put, in the root directory; names are "#INODE".
constexpr const char* kLostAndFound = "lost+found";

class Fsck {
 public:
  struct Options {
    bool repair = false;
    // Orphan chunks are removed once a look has seen them so long ago: they may be of a file that a
    // restored backup has forgotten.
    int64_t orphans_after_ns = 24 * 3600 * kSecond;
  };
  // All outlive it. Owned by one loop.
  Fsck(kv::Engine& engine, chain::Client& storage, Chunks& chunks, const cluster::Routing& routing,
       InodeIds& ids, Loop& loop)
      : engine_(engine),
        storage_(storage),
        chunks_(chunks),
        routing_(routing),
        ids_(ids),
        loop_(loop) {}

  Task<Result<FsckReport>> run(Options options);

 private:
  struct Stored {
    cluster::ChainId chain = 0;
    InodeId inode = 0;
  };
  Task<Result<std::vector<Stored>>> stored();
  Task<Result<bool>> is_old(InodeId inode, Options options);
  Task<Result<void>> repair(Problem& problem);
  Task<Result<InodeId>> lost_and_found();
  Task<Result<void>> adopt(Problem& problem);
  Task<Result<void>> remove_orphans(Problem& problem, Options options);
  Task<Result<void>> change(Problem& problem, std::function<Task<Result<bool>>(kv::Txn&)> how);

  kv::Engine& engine_;
  chain::Client& storage_;
  Chunks& chunks_;
  const cluster::Routing& routing_;
  InodeIds& ids_;
  Loop& loop_;
};

}  // namespace ff::meta
