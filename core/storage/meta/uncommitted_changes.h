// Changes that servers acknowledged before they were durable. If the store loses them in a power
// failure, the next fsync(2) must report that. So every reply to a change carries the commit
// position of the store (kv/commit_position.h), like the write verifier of NFS (RFC 8881, 18.32),
// and the reply to kSync says up to which position commits are durable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/kv/commit_position.h"
#include "storage/meta/namespace.h"

namespace ff::meta {

class UncommittedChanges {
 public:
  // A length report, kept so that it can be sent again.
  struct SentLength {
    InodeId inode = 0;
    SessionId session = {};
    Namespace::LengthReport report = {};
    std::string capability = {};
  };
  // What a change did, for the error message if it is lost.
  struct Action {
    const char* verb = "";
    std::string name = {};
    std::string to = {};  // of a rename
    std::optional<uint64_t> bytes = {};
  };
  struct Change {
    kv::CommitPosition mark = {};
    Action action = {};                // for error messages
    std::vector<InodeId> inodes = {};  // fsync(2) of any of these makes it durable
    std::unique_ptr<const SentLength> sent = {};
  };

  bool empty() const { return changes_.empty(); }
  // The number of changes so far; a sync that starts now covers them.
  uint64_t count() const { return first_ + changes_.size(); }
  void add(Change change) {
    if (change.mark.generation != 0) changes_.push_back(std::move(change));
  }
  std::vector<uint64_t> generations() const {
    std::vector<uint64_t> all;
    for (const Change& change : changes_) {
      const uint64_t generation = change.mark.generation;
      if (std::ranges::find(all, generation) == all.end()) all.push_back(generation);
    }
    // Servers know no more generations than this; they forget the oldest first.
    if (all.size() > kv::kGenerationsMax) all.erase(all.begin(), all.end() - kv::kGenerationsMax);
    return all;
  }
  // Handles the reply of a sync that started after `count` changes: `durable` has the durable
  // position of each generation. Forgets these changes and returns those that are lost.
  std::vector<Change> commit(uint64_t count, const std::map<uint64_t, uint64_t>& durable) {
    std::vector<Change> lost;
    for (; first_ < count; first_++) {
      Change change = std::move(changes_.front());
      changes_.pop_front();
      const auto known = durable.find(change.mark.generation);
      const bool kept = known != durable.end() && change.mark.position <= known->second;
      if (!kept) lost.push_back(std::move(change));
    }
    return lost;
  }

 private:
  uint64_t first_ = 0;  // the number of the first change in the queue
  std::deque<Change> changes_;
};

}  // namespace ff::meta
