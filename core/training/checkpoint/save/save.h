// Saving a checkpoint: files, directories and standard input into a store, as content-addressed
// chunks and one index (paper section VII-A: tensors divided into chunks, each with its index and
// offset). Every chunk is durable before the index that refers to it, the index before it gets its
// name.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/lease.h"
#include "training/checkpoint/format/store.h"
#include "training/checkpoint/save/save_request.h"

namespace ff::checkpoint {

// Errors: usage, not_found, refused (the step exists and differs; not a store; no permission; a
// later attempt of the same task saves into the run, attempt_fence.h), disk_full, corrupt, failed
// (an input that does not have the format of its name, or that changed meanwhile), interrupted,
// deadline. After an error the store has its old checkpoints, and chunks that `prune` removes.
Result<SaveReport> save(Context& context, const std::string& store_path, const SaveInputs& inputs,
                        const SaveOptions& options);

// The step of the options, or the one that save() would choose.
Result<StepName> choose_step(Context& context, const Store& store, const SaveOptions& options);

// Cuts the files as save() does and stores those of their chunks that are in `wanted` and damaged
// or missing; returns their number. With `opaque` all files are cut as plain bytes. Errors as
// above.
Result<uint64_t> store_chunks(Context& context, const Store& store, Lease& lease,
                              const std::vector<std::string>& paths,
                              const std::set<simd::Digest>& wanted, bool opaque);

}  // namespace ff::checkpoint
