// The commit: how a finished index becomes a checkpoint.
//
//   1. every chunk file is synced (the workers did), every folder that gained or lost one is synced
//   2. the index is written to tmp/ and synced
//   3. one rank: it gets its name by exclusive creation (link), the folder is synced
//      several: the shard gets its name; a rank that then finds all shards of its attempt merges
//      and commits them, and removes them: never those of another attempt
//   4. `latest` is replaced
//
// If two attempts save one step, the first that is complete is committed. Each rank of the other
// that saves later is refused, so at least its last one is.
#pragma once

#include <string>
#include <vector>

#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/lease.h"
#include "training/checkpoint/format/store.h"
#include "training/checkpoint/save/save_request.h"

namespace ff::checkpoint {

struct CommitWork {
  Context& context;
  const Store& store;
  const Lease& lease;
  const SaveOptions& options;
  StepName name;
};

// Makes sure that all chunks of a save are stored (restores those that a pruner has moved to the
// trash meanwhile), and syncs their folders.
Result<void> ensure_chunks_durable(CommitWork& work, const std::vector<simd::Digest>& all);

// Publishes the synced index at `index_path`. Errc::refused when the step exists with other
// content and `replace` is off.
Result<SaveOutcome> commit_index(CommitWork& work, const std::string& index_path,
                                 const EndRecord& end);

// Errc::refused, with the name of the attempt that has committed the step.
Error differs_from_committed(const CommitWork& work);

// Publishes a rank's shard and, when it completes the set, merges and commits. `missing` gets the
// number of ranks that have not saved. Errc::refused as above: another attempt has committed.
Result<SaveOutcome> commit_shard(CommitWork& work, const std::string& shard_path,
                                 const EndRecord& end, uint64_t& missing);

// Whether the content of a rank in the committed checkpoint has this digest.
Result<bool> same_rank_content(io::Disk& disk, const std::string& index_path, uint32_t rank,
                               const simd::Digest& content);

}  // namespace ff::checkpoint
