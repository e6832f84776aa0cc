// What forget and prune share: a lock each, so that only one of a kind runs at a time, and the
// names of what they put into the trash beside chunks.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "platform/io/disk.h"
#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

// Takes the exclusive lock tmp/ACTION.lock; the open file is the lock. The kernel gives it back
// when its holder ends, however it ends (a cluster: some 30 s after one that was killed); the empty
// file stays. Errc::refused when another holds it, or the store is read-only.
Result<std::unique_ptr<io::File>> lock_store(io::Disk& disk, const Store& store,
                                             std::string_view action);
constexpr std::string_view kLockSuffix = ".lock";

// Folders in the trash: a forgotten step, the shards of an abandoned attempt, what an overdue lease
// had unfinished.
constexpr std::string_view kTrashedStep = ".step";
constexpr std::string_view kTrashedShards = ".shards";
constexpr std::string_view kTrashedUnfinished = ".unfinished";
// A fresh path trash/ID.SUFFIX.
std::string new_trash_path(Context& context, const Store& store, std::string_view suffix);

// Success also when it was gone already.
Result<void> gone_is_success(Result<void> result);

}  // namespace ff::checkpoint
