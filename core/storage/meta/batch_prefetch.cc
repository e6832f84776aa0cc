// batch_prefetch.cc: what each kind of change reads.
#include "storage/meta/batch_prefetch.h"

#include <optional>
#include <utility>

#include "storage/meta/records.h"

namespace ff::meta {

namespace {

// The inode that an operation names by its number.
std::optional<InodeId> named_inode(const wire::BatchOperation& operation) {
  switch (operation.what_case()) {
    case wire::BatchOperation::kLink: return operation.link().inode().inode();
    case wire::BatchOperation::kSetAttributes: return operation.set_attributes().inode().inode();
    case wire::BatchOperation::kWrote: return operation.wrote().inode();
    case wire::BatchOperation::kOpen: return operation.open().inode().inode();
    case wire::BatchOperation::kGiveBack: return operation.give_back();
    default: return std::nullopt;
  }
}

}  // namespace

std::vector<BatchPrefetch::Name> BatchPrefetch::names_in(const wire::BatchOperation& operation) {
  const auto name_at = [](const wire::Place& place) {
    return Name{place.dir().inode(), place.name()};
  };
  switch (operation.what_case()) {
    case wire::BatchOperation::kMake: return {name_at(operation.make().place())};
    case wire::BatchOperation::kLink: return {name_at(operation.link().place())};
    case wire::BatchOperation::kUnlink: return {name_at(operation.unlink().place())};
    case wire::BatchOperation::kRmdir: return {name_at(operation.rmdir().place())};
    case wire::BatchOperation::kRename:
      return {name_at(operation.rename().from()), name_at(operation.rename().to())};
    default: return {};
  }
}

BatchPrefetch::BatchPrefetch(const wire::BatchRequest& batch)
    : keys_({keys::of(keys::kLease, batch.lease()), keys::inode(kRoot)}) {
  std::set<InodeId> made;  // by an operation before: the transaction knows them
  const auto add_inode = [&](InodeId id) {
    if (!made.contains(id)) keys_.insert(keys::inode(id));
  };
  for (const wire::BatchOperation& operation : batch.operations()) {
    const bool removes = operation.has_unlink() || operation.has_rmdir();
    const std::vector<Name> names = names_in(operation);
    for (const Name& one : names) {
      add_inode(one.dir);
      keys_.insert(keys::dentry(one.dir, one.name));
      if (removes || operation.has_rename()) changed_names_.push_back(one);
    }
    if (removes || operation.has_rename()) erased_names_[names[0].dir]++;
    if (const auto id = named_inode(operation)) {
      add_inode(*id);
      if (operation.has_set_attributes() && !made.contains(*id)) changed_inodes_.push_back(*id);
    }
    removes_dirs_ = removes_dirs_ || operation.has_rmdir();
    if (!operation.has_make()) continue;
    made.insert(operation.make().inode());
    if (operation.make().kind() == static_cast<uint32_t>(InodeType::directory)) {
      made_dirs_.push_back(operation.make().inode());
    }
  }
}

size_t BatchPrefetch::erased_from(InodeId dir) const {
  const auto found = erased_names_.find(dir);
  return found == erased_names_.end() ? 0 : found->second;
}

Task<Result<void>> BatchPrefetch::prefetch_rest(kv::Txn& txn) const {
  if (!txn.reads_take_round_trips()) co_return Result<void>();
  std::vector<std::string> inodes;  // and times of directories
  std::set<InodeId> removed;
  for (const Name& one : changed_names_) {
    FF_CO_TRY(const auto entry, co_await find_dentry(txn, one.dir, one.name));
    if (!entry) continue;
    removed.insert(entry->inode);
    inodes.push_back(keys::inode(entry->inode));
  }
  for (const InodeId id : changed_inodes_) {
    FF_CO_TRY(const auto inode, co_await find_inode(txn, id));
    if (inode && inode->is(InodeType::directory)) inodes.push_back(keys::times(id));
  }
  FF_CO_TRY(co_await txn.prefetch(std::move(inodes)));
  std::vector<std::string> leases;
  std::vector<kv::GuardedRange> ranges;
  // A directory is empty if it has no more names than the batch erases before.
  const auto add_names_of = [&](InodeId dir) {
    ranges.push_back({keys::range_of(keys::kDentry, dir, 1 + erased_from(dir)), keys::times(dir)});
  };
  for (const InodeId dir : made_dirs_) {
    if (removes_dirs_) add_names_of(dir);
  }
  for (const InodeId id : removed) {
    FF_CO_TRY(const auto inode, co_await find_inode(txn, id));
    if (!inode || inode->is(InodeType::file)) continue;
    if (inode->delegate != 0) leases.push_back(keys::of(keys::kLease, inode->delegate));
    if (inode->xattrs > 0) {
      ranges.push_back({keys::range_of(keys::kXattr, id, kXattrsMax + 1), keys::inode(id)});
    }
    if (inode->is(InodeType::directory)) add_names_of(id);
  }
  FF_CO_TRY(co_await txn.prefetch(std::move(leases)));
  co_return co_await txn.prefetch_ranges(std::move(ranges));
}

}  // namespace ff::meta
