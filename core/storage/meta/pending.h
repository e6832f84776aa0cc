// What servers have answered a client before it was durable. Their store may lose that with its
// power: then the fsync(2) of whoever relies on it is not to say otherwise. So every answer to a
// change has the store's mark (kv/mark.h), as in NFS a write has the verifier of its server (RFC
// 8881, 18.32), and an answer to kSync says up to where what was committed is durable.
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

#include "platform/kv/mark.h"
#include "storage/meta/names.h"

namespace ff::meta {

class Pending {
 public:
  // What a writer has told, which he can tell again.
  struct Told {
    InodeId inode = 0;
    SessionId session = {};
    Names::Written written = {};
    std::string capability = {};
  };
  // What a change did, kept as it is until an error tells of it.
  struct Action {
    const char* verb = "";
    std::string name = {};
    std::string to = {};  // of a rename
    std::optional<uint64_t> bytes = {};
  };
  struct Change {
    kv::Mark mark = {};
    Action action = {};                // as errors call it
    std::vector<InodeId> inodes = {};  // by whose fsync(2) it is durable
    std::unique_ptr<const Told> told = {};
  };

  bool empty() const { return changes_.empty(); }
  // How many there were; a sync that begins now speaks of those.
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
    // Nothing is known of more than so many, and of the oldest first.
    if (all.size() > kv::kGenerationsMax) all.erase(all.begin(), all.end() - kv::kGenerationsMax);
    return all;
  }
  // A sync that began behind `count` changes says up to where each generation is durable. Those
  // that are lost; all of them are forgotten.
  std::vector<Change> settle(uint64_t count, const std::map<uint64_t, uint64_t>& durable) {
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
  uint64_t first_ = 0;  // the number of the first one
  std::deque<Change> changes_;
};

}  // namespace ff::meta
