// The changes that a client has answered under its delegations, in the recovery table: a successor
// of the process sends those that no server has applied, in their order and each once, and answers
// a request that the kernel repeats as its predecessor did. Without a table it keeps nothing.
//
// A record is written before the program gets its answer. One word says up to which change servers
// have applied them; a batch under way is found by its slot (meta::MetaClient::restored_batch()).
//
// Owned by one loop.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "storage/client/recovery_table.h"
#include "storage/meta/meta.pb.h"

namespace ff::client {

class ChangeJournal {
 public:
  using Operation = meta::wire::BatchOperation;
  struct Change {
    uint64_t number = 0;  // ascending
    uint64_t origin = 0;  // meta::Caller::origin
    // What it changes; the inode that its answer describes is the last one.
    std::vector<meta::InodeId> inodes = {};
    Operation operation = {};
  };

  explicit ChangeJournal(RecoveryTable* table) : table_(table) {}

  // Whether the records of one more change fit.
  bool has_room() const { return table_ == nullptr || table_->room() >= kRoom; }
  // A lease begins. False: there is no room.
  bool begin_lease(uint64_t lease);
  // The lease has ended, and with it what was not applied.
  void end_lease();
  void add(const Change& change);
  // Servers have applied all changes up to this one.
  void applied(uint64_t number);
  // The request was answered and cannot come again.
  void end_origin(uint64_t origin);
  void end_restored_origins();

  // What the predecessor left. Call it once, before any other call.
  struct Left {
    uint64_t lease = 0;  // 0: none
    uint64_t applied = 0;
    std::vector<Change> changes = {};  // not applied, in their order
  };
  Left take();
  // A change of the predecessor whose request may come again.
  struct Answered {
    meta::InodeId inode = 0;
    uint64_t session = 0;  // that it opens or keeps
    int64_t now_ns = 0;
  };
  std::optional<Answered> answered(uint64_t origin, Operation::WhatCase what) const;
  // The session of the restored request of this origin; 0: none.
  uint64_t session_of(uint64_t origin) const;
  bool awaits(uint64_t session) const;

 private:
  // More than the records of the longest change.
  static constexpr size_t kRoom = 64;
  struct Entry {
    uint64_t origin = 0;  // 0: cannot come again
    std::vector<RecoveryTable::Record> records = {};
  };
  struct Restored {
    Operation::WhatCase what = Operation::WHAT_NOT_SET;
    Answered answer = {};
  };

  RecoveryTable* table_;
  RecoveryTable::Record lease_;
  uint64_t applied_ = 0;
  std::map<uint64_t, Entry> entries_;  // by number
  std::unordered_multimap<uint64_t, uint64_t> by_origin_;
  std::unordered_multimap<uint64_t, Restored> restored_;  // by origin
};

}  // namespace ff::client
