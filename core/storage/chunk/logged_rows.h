// Rows of the checksum units whose data is in the log of the metadata: which rows a change of a
// chunk needs, and what they mean when a disk is opened.
//
// A row has the data of the committed version and, if it differs, that of the pending one, with its
// number. So the commit of a pending version changes no such row.
#pragma once

#include "platform/base/result.h"
#include "storage/chunk/chunk_version.h"
#include "storage/chunk/rows.h"

namespace ff::chunk {

// Adds the changes of rows for a chunk that changes from `before` to `after`.
void append_logged_rows(RowChanges& changes, TargetId target, const ChunkId& id,
                        const ChunkVersions& before, const ChunkVersions& after);
// Erases the rows of the chunks of a target from `first` to before `end`; no `end`: to its last.
RowChange erase_logged_rows(TargetId target, const ChunkId& first,
                            const std::optional<ChunkId>& end);

// Adds the unit to versions that open() has read. Units are loaded in ascending order. Errors:
// corrupt (it does not fit the versions).
Result<void> load_logged(const LoggedRecord& unit, ChunkVersions& versions);

}  // namespace ff::chunk
