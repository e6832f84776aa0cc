// Model of a chunk store: for each chunk all states in which it may be found after a crash.
//
// A successful operation adds the state it produced. A failed or interrupted one adds its state as
// possible. After a kill the store must have the last state or a possible later one; after a power
// loss any state since the last sync.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "platform/simd/crc32c.h"
#include "storage/chunk/chunk_world.h"

namespace ff::chunk {

// A chunk as readers see it.
struct ChunkSnapshot {
  VersionState committed;
  std::string content;
  std::optional<VersionState> pending;
  std::string pending_content;
  bool operator==(const ChunkSnapshot&) const = default;
};

class ChunkModel {
 public:
  explicit ChunkModel(ChunkWorld& world) : world_(world) {}

  struct Past {
    std::vector<ChunkSnapshot> states{ChunkSnapshot()};  // the last one is acknowledged
    std::vector<ChunkSnapshot> possible;  // of operations with unknown outcome after it
    size_t durable = 0;                   // index of the oldest state that may be found
    bool unrecorded = false;  // the last state was made by commit_soon(): a kill may undo it
    bool erased = false;  // erased once: versions started again, results may refer to older ones
  };

  const ChunkSnapshot& now(ChunkId id) { return past_[id].states.back(); }
  Past& past(ChunkId id) { return past_[id]; }
  std::map<ChunkId, Past>& all() { return past_; }

  void ended(ChunkId id, ChunkSnapshot made, bool well) {
    Past& past = past_[id];
    past.unrecorded &= !well;
    if (well) {
      past.states.push_back(std::move(made));
    } else {
      past.possible.push_back(std::move(made));
    }
  }

  // The current state in the store. Corrupt content appears as "(corrupt)".
  ChunkSnapshot look(ChunkId id) {
    ChunkSnapshot seen;
    const auto state = world_.store->state(kTarget, id);
    if (!state) return seen;
    seen.committed = state->committed;
    if (seen.committed.length > 0)
      seen.content = content(id, VersionKind::committed, seen.committed);
    if (!state->pending) return seen;
    seen.pending = state->pending->state;
    if (seen.pending->length > 0) {
      seen.pending_content = content(id, VersionKind::pending, *seen.pending);
    }
    return seen;
  }

  // Compares all chunks with the allowed states after a crash, and continues from the found ones.
  void check_after(bool power_lost) {
    for (auto& [id, past] : past_) {
      SCOPED_TRACE("chunk " + to_string(id));
      const ChunkSnapshot seen = look(id);
      bool allowed = std::ranges::find(past.possible, seen) != past.possible.end();
      const size_t last = past.states.size() - (past.unrecorded ? 2 : 1);
      const size_t first = power_lost ? past.durable : last;
      for (size_t i = first; i < past.states.size(); ++i) allowed |= past.states[i] == seen;
      EXPECT_TRUE(allowed) << describe(seen) << " is none of " << describe(past, first);
      past = {.states = {seen},
              .possible = {},
              .durable = 0,
              .unrecorded = false,
              .erased = past.erased};
    }
    check_results();
  }
  // Compares all chunks with the acknowledged states, without a crash.
  void check_now() {
    for (auto& [id, past] : past_) {
      SCOPED_TRACE("chunk " + to_string(id));
      const ChunkSnapshot seen = look(id);
      EXPECT_TRUE(seen == past.states.back())
          << describe(seen) << " is not " << describe(past.states.back());
    }
  }

  static std::string describe(const ChunkSnapshot& seen) {
    std::string text = fmt::format("v{}{} {} B crc {:08x}", seen.committed.version,
                                   seen.committed.removed ? " removed" : "", seen.committed.length,
                                   seen.committed.checksum);
    if (seen.content.starts_with("(")) text += seen.content;
    if (seen.pending) {
      text += fmt::format(" + v{} {} B crc {:08x}", seen.pending->version, seen.pending->length,
                          seen.pending->checksum);
      if (seen.pending_content.starts_with("(")) text += seen.pending_content;
    }
    return text;
  }

 private:
  std::string content(ChunkId id, VersionKind which, const VersionState& state) {
    return world_.read(id, 0, state.length + 1, which);
  }
  static std::string describe(const Past& past, size_t first) {
    std::string text;
    for (size_t i = first; i < past.states.size(); ++i) text += describe(past.states[i]) + "; ";
    for (const ChunkSnapshot& seen : past.possible) text += "possible " + describe(seen) + "; ";
    return text;
  }
  // No channel result refers to an update that its chunk has lost.
  void check_results() {
    const auto results = world_.store->channel_results(kTarget);
    if (!results) return;
    for (const ChannelInfo& info : *results) {
      if (past_[info.result.id].erased) continue;
      const auto state = world_.store->state(kTarget, info.result.id);
      ASSERT_TRUE(io::ok(state));
      const bool pending =
          state->pending && state->pending->state.version == info.result.state.version;
      if (info.result.committed) {
        EXPECT_GE(state->committed.version, info.result.state.version);
      } else {
        EXPECT_TRUE(pending || state->committed.version >= info.result.state.version);
      }
    }
  }

  ChunkWorld& world_;
  std::map<ChunkId, Past> past_;
};

}  // namespace ff::chunk
