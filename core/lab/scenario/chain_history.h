// What programs have seen of the chunks of a few chains, and whether there is an order of all
// updates that explains it (linearizability). Versions give the order: each is made by one update,
// and what was done before something else began has no later version.
//
// When a chain's last target has lost power, what was not synced may be gone, versions included;
// then a chain's history begins anew from what was synced.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "storage/chunk/chunk.h"
#include "storage/cluster/routing.h"

namespace ff::scenario::chain_parts {

class History {
 public:
  using Key = std::pair<cluster::ChainId, chunk::ChunkId>;
  // Content is known by its token, which one update has; 0: nothing is there.
  using Token = uint64_t;
  // `look`: calls serves() for all that serve.
  History(std::function<void(std::string)> broken, std::function<void()> look)
      : broken_(std::move(broken)), look_(std::move(look)) {}

  // What was known when something began.
  struct Begun {
    uint64_t era = 0;
    uint64_t floor = 0;  // the version that must be seen
  };
  // Damaged chunks are repaired: a version may have the content of the one before it.
  void expect_repairs() { repairs_ = true; }
  Begun begin(const Key& key);
  Token new_token() { return ++tokens_; }
  // Token 0: removed.
  void wrote(const Key& key, const Begun& begun, Token token, uint64_t version, uint64_t verifier);
  // A removal begins, which may then happen at any time until wrote() tells when it has.
  void removal_begins(const Key& key) { chunks_[key].removals++; }
  // A removal has found nothing.
  void removed_nothing(const Key& key, const Begun& begun, uint64_t verifier);
  // Version 0: absent.
  void read(const Key& key, const Begun& begun, Token token, uint64_t version);

  struct SyncBegun {
    uint64_t era = 0;
    std::map<Key, uint64_t> floors = {};
  };
  SyncBegun begin_sync(cluster::ChainId chain);
  void synced(cluster::ChainId chain, const SyncBegun& begun, uint64_t verifier);
  // A target serves with this verifier.
  void serves(cluster::ChainId chain, uint64_t verifier);

  uint64_t updates() const { return updates_; }
  uint64_t reads() const { return reads_; }
  uint64_t losses() const { return losses_; }

 private:
  struct Chunk {
    uint64_t floor = 0;                // the highest version that somebody has seen or made
    uint64_t synced = 0;               // durable
    std::map<uint64_t, Token> tokens;  // by version; 0: removed
    int removals = 0;                  // that may happen still
    std::map<Token, uint64_t> versions;
  };
  struct Chain {
    uint64_t era = 1;
    std::optional<uint64_t> verifier;
    std::map<uint64_t, bool> verifiers;  // that it has had
  };
  void saw(const Key& key, Chunk& chunk, Token token, uint64_t version);
  std::string name(const Key& key) const;

  const std::function<void(std::string)> broken_;
  const std::function<void()> look_;
  std::map<Key, Chunk> chunks_;
  std::map<cluster::ChainId, Chain> chains_;
  bool repairs_ = false;
  Token tokens_ = 0;
  uint64_t updates_ = 0;
  uint64_t reads_ = 0;
  uint64_t losses_ = 0;
};

}  // namespace ff::scenario::chain_parts
