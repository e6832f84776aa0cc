// What a batch of delegated changes (namespace_delegations.cc) reads, so that it takes a few round
// trips to the store instead of some for each change.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "platform/kv/engine.h"
#include "storage/meta/inode.h"
#include "storage/meta/meta.pb.h"

namespace ff::meta {

class BatchPrefetch {
 public:
  explicit BatchPrefetch(const wire::BatchRequest& batch);

  // What it reads whatever the store contains: its lease, directories, names, inodes.
  std::vector<std::string> first_keys() const { return {keys_.begin(), keys_.end()}; }
  // Once these are prefetched, prefetches what depends on them: the inodes of names that go away,
  // and whether directories among these are empty. At most three round trips.
  Task<Result<void>> prefetch_rest(kv::Txn& txn) const;

 private:
  struct Name {
    InodeId dir = 0;
    std::string name;
  };
  static std::vector<Name> names_in(const wire::BatchOperation& operation);
  size_t erased_from(InodeId dir) const;

  std::set<std::string> keys_;
  std::vector<Name> changed_names_;         // of removals and renames
  std::vector<InodeId> changed_inodes_;     // whose attributes change
  std::map<InodeId, size_t> erased_names_;  // by directory, at most
  std::vector<InodeId> made_dirs_;
  bool removes_dirs_ = false;
};

}  // namespace ff::meta
