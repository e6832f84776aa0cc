// Reads all metadata records in one snapshot, each key range once and in order, and adds what is
// inconsistent to the report of fsck.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "storage/meta/fsck_report.h"
#include "storage/meta/records.h"

namespace ff::meta {

class MetadataScan {
 public:
  explicit MetadataScan(FsckReport& report) : report_(report) {}

  // Reads the whole store. Call it inside one view (kv/engine.h).
  Task<Result<void>> run(kv::Txn& txn);
  // After run(): whether the snapshot has this inode.
  bool contains(InodeId id) const { return find(id) != nullptr; }

 private:
  struct ScannedInode {
    InodeId id = 0;
    InodeId parent = 0;      // stored in the inode
    InodeId dentry_dir = 0;  // of a directory: where its dentry was found
    uint32_t links = 0;      // stored in the inode
    uint32_t names = 0;      // dentries found
    uint32_t subdirs = 0;    // dentries of directories found in it
    uint32_t xattrs = 0;     // stored in the inode
    uint32_t found_xattrs = 0;
    InodeType kind = InodeType::file;
    bool removal_queued = false;  // has a GARB or TREE record
    bool truncating = false;
    bool truncation_queued = false;  // has a CUTS record
    bool has_times = false;          // has a DIRV record
    bool located = false;            // reachable, or already reported (find_unreachable())
    uint32_t last_walk = 0;          // the last walk that visited it
  };

  const ScannedInode* find(InodeId id) const;
  ScannedInode* find(InodeId id);
  void add(FsckProblem problem);
  Task<Result<void>> scan_damaged(kv::Txn& txn);
  void scan_inode(const kv::Entry& entry);
  void scan_dentry(const kv::Entry& entry);
  void scan_xattr(const kv::Entry& entry);
  void scan_mark(const kv::Entry& entry, size_t at, bool ScannedInode::*seen);
  void scan_session_or_lock(const kv::Entry& entry);
  void check_inode(ScannedInode& inode);
  void check_directory(ScannedInode& inode);
  ScannedInode* find_unreachable(ScannedInode& inode);

  FsckReport& report_;
  std::vector<ScannedInode> inodes_;  // by id
  uint32_t walks_ = 0;
};

}  // namespace ff::meta
