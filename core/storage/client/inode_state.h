// What all open files of an inode share in one client (client/file_system.h), and what is left of
// it when they are closed: what fsync(2) has to ask about, whoever calls it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "storage/client/error_seq.h"
#include "storage/cluster/routing.h"

namespace ff::client {

// Verifiers of what chains have acknowledged, but not yet said to be durable. They stay until a
// sync that began after them has ended well: whoever else syncs meanwhile asks for them again.
class Unsynced {
 public:
  bool empty() const { return chains_.empty(); }
  // How many writes there were; those of which a sync that begins now can speak.
  uint64_t count() const { return count_; }
  void add(cluster::ChainId chain, uint64_t verifier) { chains_[chain][verifier] = ++count_; }
  std::vector<cluster::ChainId> chains() const {
    std::vector<cluster::ChainId> all;
    for (const auto& [chain, verifiers] : chains_) all.push_back(chain);
    return all;
  }
  // A sync that began behind `count` writes has ended with this verifier. False: it does not speak
  // of all of them, some are lost. They are forgotten, too: who is told of it sees to that.
  bool synced(cluster::ChainId chain, uint64_t verifier, uint64_t count) {
    const auto found = chains_.find(chain);
    if (found == chains_.end()) return true;
    const bool kept = std::erase_if(found->second, [&](const auto& one) {
                        return one.second <= count && one.first != verifier;
                      }) == 0;
    std::erase_if(found->second, [&](const auto& one) { return one.second <= count; });
    if (found->second.empty()) chains_.erase(found);
    return kept;
  }

 private:
  std::map<cluster::ChainId, std::map<uint64_t, uint64_t>> chains_;  // the last write of each
  uint64_t count_ = 0;
};

struct InodeState {
  ErrorSeq errors = {};
  Unsynced unsynced = {};
  std::optional<int64_t> left_ns = {};  // since when no file of it is open
};

}  // namespace ff::client
