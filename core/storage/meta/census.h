// The look that fsck takes at the metadata: all records of one moment, each range once, in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "storage/meta/fsck_report.h"
#include "storage/meta/records.h"

namespace ff::meta {

class Census {
 public:
  explicit Census(FsckReport& report) : report_(report) {}

  // Inside one view.
  Task<Result<void>> take(kv::Txn& txn);
  // After it: whether such an inode was there.
  bool has(InodeId id) const { return find(id) != nullptr; }

 private:
  struct Node {
    InodeId id = 0;
    InodeId parent = 0;    // as the inode says
    InodeId named_in = 0;  // a directory: where its name was found
    uint32_t links = 0;    // as the inode says
    uint32_t names = 0;    // that were found
    uint32_t subdirs = 0;  // names of directories in it
    uint32_t xattrs = 0;   // as the inode says
    uint32_t xattrs_found = 0;
    Kind kind = Kind::file;
    bool collected = false;  // GARB or TREE has it
    bool cutting = false;
    bool cut = false;     // CUTS has it
    bool timed = false;   // DIRV has it
    bool placed = false;  // known to have its place, or told of (find_lost())
    uint32_t walk = 0;    // the last that has come by
  };

  const Node* find(InodeId id) const;
  Node* find(InodeId id);
  void add(Problem problem);
  Task<Result<void>> take_damaged(kv::Txn& txn);
  void take_inode(const kv::Entry& entry);
  void take_name(const kv::Entry& entry);
  void take_xattr(const kv::Entry& entry);
  void take_mark(const kv::Entry& entry, size_t at, bool Node::*seen);
  void take_holder(const kv::Entry& entry);
  void judge(Node& node);
  void judge_directory(Node& node);
  Node* find_lost(Node& node);

  FsckReport& report_;
  std::vector<Node> nodes_;  // by id
  uint32_t walk_ = 0;
};

}  // namespace ff::meta
