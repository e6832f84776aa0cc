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

#include "base/clock.h"
#include "meta/chunks.h"
#include "meta/names.h"

namespace ff::meta {

// Where what lost its name is put, in the root directory; names are "#INODE".
constexpr const char* kLostAndFound = "lost+found";

struct Problem {
  enum class Kind : uint8_t {
    dangling_name,  // of an inode that is not there
    name_nowhere,   // in a directory that is not there
    second_name,    // of a directory
    wrong_kind,     // the name says another than the inode
    wrong_links,    // a link count
    wrong_parent,   // of a directory
    lost,           // neither reached by a name nor to be collected
    not_collected,  // has no name, and nothing says that it is to be collected
    stray_record,   // belongs to an inode that is not there, or needs none
    missing_times,  // of a directory
    wrong_xattrs,   // their number
    orphan_chunks,  // of a file that is not there
    unreadable,     // a record that cannot be read; not repaired
  };
  Kind kind = Kind::lost;
  InodeId inode = 0;
  InodeId dir = 0;        // of a name
  std::string name = {};  // the same; of a record: its key
  uint64_t wanted = 0;    // the right number; the chain of chunks
  std::string text = {};  // for people
  bool repaired = false;
};
std::string_view name_of(Problem::Kind kind);

struct FsckReport {
  uint64_t inodes = 0;
  uint64_t directories = 0;
  uint64_t names = 0;
  uint64_t garbage = 0;   // inodes that wait to be collected
  uint64_t sessions = 0;  // files open for writing
  uint64_t stored = 0;    // files with chunks, counted on each chain
  uint64_t problems = 0;  // all; at most kProblemsMax are told one by one
  bool damaged = false;   // records are; nothing else was looked at
  std::vector<Problem> told = {};
};
constexpr size_t kProblemsMax = 1000;

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
