// Records what programs observe of the chunks of some chains, and checks linearizability. Versions
// give the order of updates: each version comes from one update, and an operation that ended before
// another began has no later version.
//
// When the last serving target of a chain loses power, unsynced updates and their versions may be
// lost; the history of the chain then restarts from the synced state (a new era).
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
  // Identifies the content of one update; 0: no chunk.
  using Token = uint64_t;
  // `on_event` must call on_serving() for all serving replicas.
  History(std::function<void(std::string)> report_violation, std::function<void()> on_event)
      : report_violation_(std::move(report_violation)), on_event_(std::move(on_event)) {}

  // The state when an operation began.
  struct Begun {
    uint64_t era = 0;
    uint64_t floor = 0;  // the operation must observe at least this version
  };
  // Repairs of damaged chunks are expected: a version may have the content of its predecessor.
  void expect_repairs() { repairs_ = true; }
  Begun begin(const Key& key);
  Token new_token() { return ++tokens_; }
  // Token 0: the chunk was removed.
  void on_write(const Key& key, const Begun& begun, Token token, uint64_t version,
                uint64_t verifier);
  // A removal begins. It may take effect at any time until on_write() or on_empty_remove().
  void begin_remove(const Key& key) { chunks_[key].removals++; }
  // A removal found no chunk.
  void on_empty_remove(const Key& key, const Begun& begun, uint64_t verifier);
  // Version 0: no chunk.
  void on_read(const Key& key, const Begun& begun, Token token, uint64_t version);

  struct SyncBegun {
    uint64_t era = 0;
    std::map<Key, uint64_t> floors = {};
  };
  SyncBegun begin_sync(cluster::ChainId chain);
  void on_sync(cluster::ChainId chain, const SyncBegun& begun, uint64_t verifier);
  // A replica serves with this verifier.
  void on_serving(cluster::ChainId chain, uint64_t verifier);

  uint64_t updates() const { return updates_; }
  uint64_t reads() const { return reads_; }
  uint64_t losses() const { return losses_; }

 private:
  struct Chunk {
    uint64_t floor = 0;                // highest version observed or written
    uint64_t synced = 0;               // highest durable version
    std::map<uint64_t, Token> tokens;  // by version; 0: removed
    int removals = 0;                  // removals that may still take effect
    std::map<Token, uint64_t> versions;
  };
  struct Chain {
    uint64_t era = 1;
    std::optional<uint64_t> verifier;
    std::map<uint64_t, bool> verifiers;  // all verifiers so far
  };
  void observe(const Key& key, Chunk& chunk, Token token, uint64_t version);
  std::string name(const Key& key) const;

  const std::function<void(std::string)> report_violation_;
  const std::function<void()> on_event_;
  std::map<Key, Chunk> chunks_;
  std::map<cluster::ChainId, Chain> chains_;
  bool repairs_ = false;
  Token tokens_ = 0;
  uint64_t updates_ = 0;
  uint64_t reads_ = 0;
  uint64_t losses_ = 0;
};

}  // namespace ff::scenario::chain_parts
