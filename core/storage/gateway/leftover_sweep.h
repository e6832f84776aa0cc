// Removes the pages of collections that are gone, in the background. Their heads are leftovers of
// the store (kvstore/store.h): a head that has expired, or the record that a command leaves when it
// removes the last key of a collection (StoreView::commit()).
#pragma once

#include "platform/base/task.h"
#include "storage/gateway/key_locks.h"
#include "storage/gateway/store_view.h"

namespace ff::gateway {

// Goes over all partitions that this process serves, again and again, until it is cancelled. Both
// outlive it.
Task<void> sweep_leftovers(const StoreAccess& access, KeyLocks& locks);

// One round: what the store finds in one call for each partition.
Task<Result<void>> sweep_leftovers_once(const StoreAccess& access, KeyLocks& locks);

}  // namespace ff::gateway
