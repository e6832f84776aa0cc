// metadata_scan.cc: reads each record and checks that all agree.
#include "storage/meta/metadata_scan.h"

#include <algorithm>
#include <utility>

#include "platform/base/text.h"
#include "platform/kv/record_checksum.h"

namespace ff::meta {

const MetadataScan::ScannedInode* MetadataScan::find(InodeId id) const {
  const auto at = std::ranges::lower_bound(inodes_, id, {}, &ScannedInode::id);
  return at != inodes_.end() && at->id == id ? &*at : nullptr;
}

MetadataScan::ScannedInode* MetadataScan::find(InodeId id) {
  return const_cast<ScannedInode*>(std::as_const(*this).find(id));
}

void MetadataScan::add(FsckProblem problem) {
  report_.problems++;
  if (report_.reported.size() < kProblemsMax) report_.reported.push_back(std::move(problem));
}

void MetadataScan::scan_inode(const kv::Entry& entry) {
  const InodeId id = keys::number_at(entry.key, keys::kPrefixBytes);
  const auto inode = parse_inode(entry.value);
  if (!inode || inode->id != id) {
    return add({.kind = FsckProblem::Kind::unreadable,
                .inode = id,
                .text = fmt::format("the record of inode {} is unreadable", id)});
  }
  report_.inodes++;
  if (inode->is(InodeType::directory)) report_.directories++;
  inodes_.push_back({.id = id,
                     .parent = inode->parent,
                     .links = inode->links,
                     .xattrs = inode->xattrs,
                     .kind = inode->kind,
                     .truncating = inode->truncating});
}

void MetadataScan::scan_dentry(const kv::Entry& entry) {
  report_.names++;
  const InodeId dir = keys::number_at(entry.key, keys::kPrefixBytes);
  const std::string name(keys::name_of(entry.key));
  const auto found = parse_dentry(entry);
  FsckProblem problem{.dir = dir, .name = name};
  const auto told = [&](FsckProblem::Kind kind, std::string_view why) {
    problem.kind = kind;
    problem.text = fmt::format("'{}' in directory {} {}", printable(name), dir, why);
    add(problem);
  };
  if (!found) return told(FsckProblem::Kind::unreadable, "is unreadable");
  problem.inode = found->inode;
  ScannedInode* const above = find(dir);
  ScannedInode* const inode = find(found->inode);
  if (inode == nullptr) {
    return told(FsckProblem::Kind::dangling_name,
                fmt::format("names inode {}, which does not exist", found->inode));
  }
  if (above == nullptr || above->kind != InodeType::directory) {
    return told(FsckProblem::Kind::name_nowhere, "is in a directory that does not exist");
  }
  if (inode->kind != found->kind) {
    problem.expected = static_cast<uint64_t>(inode->kind);
    told(FsckProblem::Kind::wrong_kind,
         fmt::format("has kind {}, but its inode {} has kind {}", static_cast<int>(found->kind),
                     found->inode, static_cast<int>(inode->kind)));
  }
  if (inode->kind == InodeType::directory) {
    if (inode->names > 0) {
      return told(FsckProblem::Kind::second_name,
                  fmt::format("is a second name of directory {}", found->inode));
    }
    inode->dentry_dir = dir;
    above->subdirs++;
  }
  inode->names++;
}

void MetadataScan::scan_xattr(const kv::Entry& entry) {
  const InodeId id = keys::number_at(entry.key, keys::kPrefixBytes);
  if (ScannedInode* const inode = find(id)) {
    inode->found_xattrs++;
    return;
  }
  add({.kind = FsckProblem::Kind::stray_record,
       .inode = id,
       .name = entry.key,
       .text = fmt::format("an extended attribute of inode {}, which does not exist", id)});
}

// A record that marks an inode. The inode number is at offset `at` of the key.
void MetadataScan::scan_mark(const kv::Entry& entry, size_t at, bool ScannedInode::*seen) {
  const InodeId id = keys::number_at(entry.key, at);
  const std::string_view prefix = std::string_view(entry.key).substr(0, keys::kPrefixBytes);
  ScannedInode* const inode = find(id);
  // DIRV needs a directory, CUTS a running truncation, the others an inode without links.
  const bool fits =
      inode != nullptr && (seen == &ScannedInode::has_times ? inode->kind == InodeType::directory
                           : seen == &ScannedInode::truncation_queued ? inode->truncating
                                                                      : inode->links == 0);
  if (fits) {
    if (seen == &ScannedInode::removal_queued) report_.garbage++;
    inode->*seen = true;
    return;
  }
  add({.kind = FsckProblem::Kind::stray_record,
       .inode = id,
       .name = entry.key,
       .text = fmt::format("a {} record of inode {}, which {}", prefix, id,
                           inode == nullptr ? "does not exist" : "needs none")});
}

// Checks a session or a lock.
void MetadataScan::scan_session_or_lock(const kv::Entry& entry) {
  const InodeId id = keys::number_at(entry.key, keys::kPrefixBytes);
  const bool lock = entry.key.starts_with(keys::kLock);
  if (!lock) report_.sessions++;
  if (find(id) != nullptr) return;
  add({.kind = FsckProblem::Kind::stray_record,
       .inode = id,
       .name = entry.key,
       .text =
           fmt::format("a {} of inode {}, which does not exist", lock ? "lock" : "session", id)});
}

// The directory to report as unreachable on behalf of this one: itself if it has no name, else the
// first one found of a cycle above it. Null: it is reachable, or that directory is reported
// already.
MetadataScan::ScannedInode* MetadataScan::find_unreachable(ScannedInode& inode) {
  if (inode.dentry_dir == 0) return &inode;
  walks_++;
  for (ScannedInode* at = &inode; at != nullptr && !at->located && at->id != kRoot;
       at = find(at->dentry_dir)) {
    if (at->last_walk == walks_) {
      at->located = true;
      return at;
    }
    at->last_walk = walks_;
    if (at->dentry_dir == 0) break;
  }
  inode.located = true;
  return nullptr;
}

void MetadataScan::check_directory(ScannedInode& inode) {
  if (!inode.has_times) {
    add({.kind = FsckProblem::Kind::missing_times,
         .inode = inode.id,
         .text = fmt::format("directory {} has no times record", inode.id)});
  }
  if (inode.links > 0 && inode.links != 2 + inode.subdirs) {
    add({.kind = FsckProblem::Kind::wrong_links,
         .inode = inode.id,
         .expected = 2 + inode.subdirs,
         .text = fmt::format("directory {} has {} links, but should have {}", inode.id, inode.links,
                             2 + inode.subdirs)});
  }
  if (inode.id == kRoot || inode.links == 0) return;
  if (const ScannedInode* const lost = find_unreachable(inode)) {
    add({.kind = FsckProblem::Kind::lost,
         .inode = lost->id,
         .dir = lost->dentry_dir,
         .text = fmt::format("directory {} cannot be reached from the root", lost->id)});
  } else if (inode.dentry_dir != inode.parent) {
    add({.kind = FsckProblem::Kind::wrong_parent,
         .inode = inode.id,
         .expected = inode.dentry_dir,
         .text = fmt::format("directory {} has parent {}, but is in {}", inode.id, inode.parent,
                             inode.dentry_dir)});
  }
}

void MetadataScan::check_inode(ScannedInode& inode) {
  if (inode.xattrs != inode.found_xattrs) {
    add({.kind = FsckProblem::Kind::wrong_xattrs,
         .inode = inode.id,
         .expected = inode.found_xattrs,
         .text = fmt::format("inode {} has {} extended attributes, but counts {}", inode.id,
                             inode.found_xattrs, inode.xattrs)});
  }
  if (inode.links == 0 && inode.names == 0 && !inode.removal_queued) {
    add({.kind = FsckProblem::Kind::not_collected,
         .inode = inode.id,
         .text = fmt::format("inode {} has no name and is not queued for collection", inode.id)});
  }
  if (inode.truncating && !inode.truncation_queued) {
    add({.kind = FsckProblem::Kind::not_collected,
         .inode = inode.id,
         .text = fmt::format("inode {} is being truncated, but is not queued for it", inode.id)});
  }
  if (inode.kind == InodeType::directory) return check_directory(inode);
  if (inode.names == 0 && inode.links > 0) {
    add({.kind = FsckProblem::Kind::lost,
         .inode = inode.id,
         .text = fmt::format("inode {} has no name, but {} links", inode.id, inode.links)});
  } else if (inode.names != inode.links) {
    add({.kind = FsckProblem::Kind::wrong_links,
         .inode = inode.id,
         .expected = inode.names,
         .text = fmt::format("inode {} has {} links, but {} names", inode.id, inode.links,
                             inode.names)});
  }
}

// Scans the whole store for damaged records. Without those, intact records look inconsistent and
// must not be repaired.
Task<Result<void>> MetadataScan::scan_damaged(kv::Txn& txn) {
  constexpr size_t kPage = 4096;
  for (std::string begin;;) {
    kv::Range range{.begin = begin, .end = "\xff", .limit = kPage};
    FF_CO_TRY(const auto entries,
              co_await txn.range(std::move(range), std::string(kv::kIncludeDamaged)));
    for (const kv::Entry& entry : entries) {
      if (!kv::is_damaged(entry.key)) continue;
      const std::string key(kv::stored_key(entry.key));
      report_.has_damaged_records = true;
      add({.kind = FsckProblem::Kind::unreadable,
           .name = key,
           .text = fmt::format("the record {} is damaged: restore it (ff admin restore --name) "
                               "and run fsck again",
                               kv::key_text(key))});
    }
    if (entries.size() < kPage) co_return Result<void>();
    begin = std::string(kv::stored_key(entries.back().key)) + '\0';
  }
}

Task<Result<void>> MetadataScan::run(kv::Txn& txn) {
  inodes_.clear();
  report_ = {};
  FF_CO_TRY(co_await scan_damaged(txn));
  if (report_.has_damaged_records) co_return Result<void>();
  auto inodes = scan_records(txn, keys::kInode, [this](const auto& entry) { scan_inode(entry); });
  FF_CO_TRY(co_await std::move(inodes));
  auto names = scan_records(txn, keys::kDentry, [this](const auto& entry) { scan_dentry(entry); });
  FF_CO_TRY(co_await std::move(names));
  auto xattrs = scan_records(txn, keys::kXattr, [this](const auto& entry) { scan_xattr(entry); });
  FF_CO_TRY(co_await std::move(xattrs));
  const auto mark = [&](std::string_view prefix, size_t at, bool ScannedInode::*seen) {
    return scan_records(txn, prefix,
                        [this, at, seen](const auto& entry) { scan_mark(entry, at, seen); });
  };
  FF_CO_TRY(co_await mark(keys::kTimes, keys::kPrefixBytes, &ScannedInode::has_times));
  FF_CO_TRY(co_await mark(keys::kGarbage, keys::kPrefixBytes + 8, &ScannedInode::removal_queued));
  FF_CO_TRY(co_await mark(keys::kRemovedTree, keys::kPrefixBytes, &ScannedInode::removal_queued));
  FF_CO_TRY(co_await mark(keys::kTruncation, keys::kPrefixBytes, &ScannedInode::truncation_queued));
  for (const std::string_view held : {keys::kSession, keys::kLock}) {
    auto holders =
        scan_records(txn, held, [this](const auto& entry) { scan_session_or_lock(entry); });
    FF_CO_TRY(co_await std::move(holders));
  }
  if (find(kRoot) == nullptr) {
    add({.kind = FsckProblem::Kind::unreadable,
         .inode = kRoot,
         .text = "the root directory does not exist"});
  }
  for (ScannedInode& inode : inodes_) check_inode(inode);
  co_return Result<void>();
}

}  // namespace ff::meta
