// State of an inode that all its open files in one client share (client/file_system.h), and that
// outlives them: what fsync(2) must still check.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "storage/client/error_seq.h"
#include "storage/cluster/routing.h"

namespace ff::client {

// Verifiers of writes that chains acknowledged but did not sync yet. An entry stays until a sync
// that started after it succeeds, so that concurrent syncs check it, too.
class UnsyncedWrites {
 public:
  bool empty() const { return chains_.empty(); }
  // Of writes that a predecessor of this process made: no sync tells whether they were lost.
  static constexpr uint64_t kAnyVerifier = UINT64_MAX;
  // The number of writes so far; a sync that starts now covers them.
  uint64_t count() const { return count_; }
  void add(cluster::ChainId chain, uint64_t verifier) { chains_[chain][verifier] = ++count_; }
  std::vector<cluster::ChainId> chains() const {
    std::vector<cluster::ChainId> all;
    for (const auto& [chain, verifiers] : chains_) all.push_back(chain);
    return all;
  }
  // Handles a sync that started after `count` writes and returned `verifier`. False: the chain has
  // lost some of these writes. Their entries are removed in any case; the caller reports the loss.
  bool on_sync(cluster::ChainId chain, uint64_t verifier, uint64_t count) {
    const auto found = chains_.find(chain);
    if (found == chains_.end()) return true;
    const bool kept =
        std::erase_if(found->second, [&](const auto& one) {
          return one.second <= count && one.first != verifier && one.first != kAnyVerifier;
        }) == 0;
    std::erase_if(found->second, [&](const auto& one) { return one.second <= count; });
    if (found->second.empty()) chains_.erase(found);
    return kept;
  }

 private:
  // number of the last write, by chain and verifier
  std::map<cluster::ChainId, std::map<uint64_t, uint64_t>> chains_;
  uint64_t count_ = 0;
};

struct InodeState {
  ErrorSeq errors = {};
  UnsyncedWrites unsynced = {};
  std::optional<int64_t> idle_since_ns = {};  // since when no file of the inode is open
};

}  // namespace ff::client
