// Common parts of forget and prune: a lock for each action, so that only one of a kind runs at a
// time, and the names of folders in the trash.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "platform/io/disk.h"
#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

// Locks tmp/ACTION.lock exclusively; the open file is the lock. The kernel releases it when the
// process ends in any way (in a cluster: about 30 s after a kill); the empty file stays.
// Errc::refused: another process has the lock, or the store is read-only.
Result<std::unique_ptr<io::File>> lock_store(io::Disk& disk, const Store& store,
                                             std::string_view action);
constexpr std::string_view kLockSuffix = ".lock";

// Folders in the trash: a forgotten step, the shards of an abandoned attempt, unfinished files of
// an overdue lease.
constexpr std::string_view kTrashedStep = ".step";
constexpr std::string_view kTrashedShards = ".shards";
constexpr std::string_view kTrashedUnfinished = ".unfinished";
// A fresh path trash/ID.SUFFIX.
std::string new_trash_path(Context& context, const Store& store, std::string_view suffix);

// Success also when the path does not exist.
Result<void> ignore_not_found(Result<void> result);

}  // namespace ff::checkpoint
