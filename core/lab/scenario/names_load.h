// A load generator that changes names in its own directory and knows the expected state after a
// sync.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "storage/meta/meta_client.h"

namespace ff::scenario::names_parts {

// Shared by all programs of the test.
struct NamesOracle {
  std::function<void(std::string)> report_violation;
  uint64_t losses = 0;  // number of power losses that lost commits
  uint64_t changes = 0;
  uint64_t syncs = 0;
  uint64_t told = 0;  // losses reported to programs
};

class NamesLoad {
 public:
  // All arguments must outlive it.
  NamesLoad(rpc::ClientContext& context, const std::vector<net::Address>& servers, std::string name,
            NamesOracle& oracle);
  // The load ends with a last successful sync.
  void stop() { working_ = false; }
  bool ended() const { return ended_; }

 private:
  struct File {
    meta::InodeId inode = 0;
    uint32_t mode = 0;
    uint64_t length = 0;
    bool operator==(const File&) const = default;
  };
  using Files = std::map<std::string, File>;

  Task<void> work();
  Task<bool> make_dir();
  Task<void> change();
  Task<Result<meta::InodeView>> rename(std::string from, std::string to);
  Task<Result<meta::InodeView>> write(File file, uint64_t length);
  void record_failure(const Error& error, const std::string& name);
  Task<bool> sync();
  Task<Result<Files>> list();
  void compare(const Files& found);
  bool may_differ(const std::string& name) const;

  rpc::ClientContext& context_;
  Rng& rng_;
  const std::string name_;
  NamesOracle& oracle_;
  std::set<meta::InodeId> lost_;  // losses reported since the last sync
  meta::MetaClient names_;
  meta::InodeRef dir_;
  Files files_;                    // expected state according to the answers
  std::set<std::string> unknown_;  // names that unanswered calls may have changed
  std::string unexplained_;        // an answer that only a loss can explain
  uint64_t losses_seen_ = 0;
  bool settled_ = true;  // files_ is durable, except for changes since the last sync
  bool working_ = true;
  bool ended_ = false;
  Gate gate_;
};

}  // namespace ff::scenario::names_parts
