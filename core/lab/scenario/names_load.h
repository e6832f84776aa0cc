// A program that changes names in its own directory, and knows what must be there after a sync.
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

// Of all programs: the test's own knowledge.
struct NamesTruth {
  std::function<void(std::string)> broken;
  uint64_t losses = 0;  // how often the store has lost something
  uint64_t changes = 0;
  uint64_t syncs = 0;
  uint64_t told = 0;  // losses that programs were told of
};

class NamesLoad {
 public:
  // All outlive it.
  NamesLoad(rpc::ClientContext& context, const std::vector<net::Address>& servers, std::string name,
            NamesTruth& truth);
  // It ends with a sync that tells everything.
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
  Task<bool> begin();
  Task<void> change();
  Task<Result<meta::Seen>> rename(std::string from, std::string to);
  Task<Result<meta::Seen>> write(File file, uint64_t length);
  void note(const Error& error, const std::string& name);
  Task<bool> sync();
  Task<Result<Files>> list();
  void compare(const Files& found);
  bool may_differ(const std::string& name) const;

  rpc::ClientContext& context_;
  Rng& rng_;
  const std::string name_;
  NamesTruth& truth_;
  std::set<meta::InodeId> lost_;  // that it was told of since it last looked
  meta::MetaClient names_;
  meta::Ref dir_;
  Files files_;                    // as the answers to its calls say
  std::set<std::string> unknown_;  // what calls without an answer may have done
  std::string surprise_;           // an answer that only a loss explains
  uint64_t losses_seen_ = 0;
  bool settled_ = true;  // files_ is durable, but for what it has changed since
  bool working_ = true;
  bool ended_ = false;
  Gate gate_;
};

}  // namespace ff::scenario::names_parts
