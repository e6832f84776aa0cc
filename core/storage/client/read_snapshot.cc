// read_snapshot.cc: the table of snapshots, in shards by inode.
#include "storage/client/read_snapshot.h"

#include <utility>

namespace ff::client {

ReadSnapshotRef ReadSnapshots::find(meta::InodeId inode) const {
  const Shard& in = shard(inode);
  const std::lock_guard lock(in.mutex);
  const auto found = in.snapshots.find(inode);
  return found == in.snapshots.end() ? nullptr : found->second;
}

void ReadSnapshots::publish(ReadSnapshot snapshot) {
  Shard& in = shard(snapshot.inode);
  const std::lock_guard lock(in.mutex);
  ReadSnapshotRef& published = in.snapshots[snapshot.inode];
  if (published != nullptr && *published == snapshot) return;
  published = std::make_shared<const ReadSnapshot>(std::move(snapshot));
}

void ReadSnapshots::withdraw(meta::InodeId inode) {
  Shard& in = shard(inode);
  const std::lock_guard lock(in.mutex);
  in.snapshots.erase(inode);
}

}  // namespace ff::client
