// What a chunk store must hold, as plain values: of every chunk all the states it may be found in.
//
// A step that has ended well adds the state it made; one that failed, or that a crash cut off, adds
// the state it would have made as possible. A kill must find the last state or a possible one after
// it, a loss of power any from the last sync on.
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

// A chunk as its readers see it.
struct Seen {
  VersionState committed;
  std::string content;
  std::optional<VersionState> pending;
  std::string pending_content;
  bool operator==(const Seen&) const = default;
};

class ChunkModel {
 public:
  explicit ChunkModel(ChunkWorld& world) : world_(world) {}

  struct Past {
    std::vector<Seen> states{Seen()};  // the last is the one that is acknowledged
    std::vector<Seen> possible;        // made by steps of unknown outcome after it
    size_t durable = 0;                // states before it cannot come back
    bool erased = false;               // once: versions began anew, results may know others
  };

  const Seen& now(ChunkId id) { return past_[id].states.back(); }
  Past& past(ChunkId id) { return past_[id]; }
  std::map<ChunkId, Past>& all() { return past_; }

  void ended(ChunkId id, Seen made, bool well) {
    Past& past = past_[id];
    if (well) {
      past.states.push_back(std::move(made));
    } else {
      past.possible.push_back(std::move(made));
    }
  }

  // The chunk as the store has it now. Content that it calls corrupt is told as such.
  Seen look(ChunkId id) {
    Seen seen;
    const auto state = world_.store->state(kTarget, id);
    if (!state) return seen;
    seen.committed = state->committed;
    if (seen.committed.length > 0) seen.content = content(id, Which::committed, seen.committed);
    if (!state->pending) return seen;
    seen.pending = state->pending->image;
    if (seen.pending->length > 0) {
      seen.pending_content = content(id, Which::pending, *seen.pending);
    }
    return seen;
  }

  // Compares all chunks with what may be there after an end, and goes on from what is.
  void check_after(bool power_lost) {
    for (auto& [id, past] : past_) {
      SCOPED_TRACE("chunk " + to_string(id));
      const Seen seen = look(id);
      bool allowed = std::ranges::find(past.possible, seen) != past.possible.end();
      const size_t first = power_lost ? past.durable : past.states.size() - 1;
      for (size_t i = first; i < past.states.size(); ++i) allowed |= past.states[i] == seen;
      EXPECT_TRUE(allowed) << describe(seen) << " is none of " << describe(past, first);
      past = {.states = {seen}, .possible = {}, .durable = 0, .erased = past.erased};
    }
    check_results();
  }
  // The same while the store goes on.
  void check_now() {
    for (auto& [id, past] : past_) {
      SCOPED_TRACE("chunk " + to_string(id));
      const Seen seen = look(id);
      EXPECT_TRUE(seen == past.states.back())
          << describe(seen) << " is not " << describe(past.states.back());
    }
  }

  static std::string describe(const Seen& seen) {
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
  std::string content(ChunkId id, Which which, const VersionState& state) {
    return world_.read(id, 0, state.length + 1, which);
  }
  static std::string describe(const Past& past, size_t first) {
    std::string text;
    for (size_t i = first; i < past.states.size(); ++i) text += describe(past.states[i]) + "; ";
    for (const Seen& seen : past.possible) text += "possible " + describe(seen) + "; ";
    return text;
  }
  // No channel remembers an update that its chunk has lost.
  void check_results() {
    const auto results = world_.store->results(kTarget);
    if (!results) return;
    for (const ChannelInfo& info : *results) {
      if (past_[info.result.id].erased) continue;
      const auto state = world_.store->state(kTarget, info.result.id);
      ASSERT_TRUE(io::ok(state));
      const bool pending =
          state->pending && state->pending->image.version == info.result.image.version;
      if (info.result.committed) {
        EXPECT_GE(state->committed.version, info.result.image.version);
      } else {
        EXPECT_TRUE(pending || state->committed.version >= info.result.image.version);
      }
    }
  }

  ChunkWorld& world_;
  std::map<ChunkId, Past> past_;
};

}  // namespace ff::chunk
