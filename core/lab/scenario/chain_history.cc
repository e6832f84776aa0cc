// chain_history.cc: each version has one update, and no operation observes an older version.
#include "lab/scenario/chain_history.h"

#include <fmt/format.h>

#include <algorithm>

namespace ff::scenario::chain_parts {

std::string History::name(const Key& key) const {
  return fmt::format("chunk {} of chain {}", to_string(key.second), key.first);
}

History::Begun History::begin(const Key& key) {
  return {chains_[key.first].era, chunks_[key].floor};
}

void History::observe(const Key& key, Chunk& chunk, Token token, uint64_t version) {
  const auto [at, added] = chunk.tokens.emplace(version, token);
  if (at->second != token) {
    report_violation_(fmt::format("{}: version {} is update {} and update {}", name(key), version,
                                  at->second, token));
  }
  if (token != 0) {
    const auto [of, first] = chunk.versions.emplace(token, version);
    const uint64_t least = std::min(of->second, version), most = std::max(of->second, version);
    bool again = repairs_;  // the same content, version after version
    for (auto it = chunk.tokens.lower_bound(least); again && it != chunk.tokens.end(); ++it) {
      if (it->first > most) break;
      again = it->second == token;
    }
    if (of->second != version && !again) {
      report_violation_(fmt::format("{}: update {} made version {} and version {}", name(key),
                                    token, of->second, version));
    }
  }
  chunk.floor = std::max(chunk.floor, version);
}

void History::on_write(const Key& key, const Begun& begun, Token token, uint64_t version,
                       uint64_t verifier) {
  updates_++;
  on_event_();
  on_serving(key.first, verifier);
  Chunk& chunk = chunks_[key];
  if (begun.era != chains_[key.first].era) return;
  if (token == 0) chunk.removals--;
  if (version <= begun.floor) {
    report_violation_(
        fmt::format("{}: update {} made version {}, and version {} was there before it began",
                    name(key), token, version, begun.floor));
  }
  observe(key, chunk, token, version);
}

void History::on_empty_remove(const Key& key, const Begun& begun, uint64_t verifier) {
  on_event_();
  on_serving(key.first, verifier);
  if (begun.era == chains_[key.first].era) chunks_[key].removals--;
  on_read(key, begun, 0, 0);
}

void History::on_read(const Key& key, const Begun& begun, Token token, uint64_t version) {
  reads_++;
  on_event_();
  if (begun.era != chains_[key.first].era) return;
  Chunk& chunk = chunks_[key];
  if (version == 0) {
    bool may_be = begun.floor == 0 || chunk.removals > 0;
    const auto from = chunk.tokens.lower_bound(begun.floor);
    for (auto at = from; !may_be && at != chunk.tokens.end(); ++at) may_be = at->second == 0;
    if (may_be) return;
    report_violation_(
        fmt::format("{}: nothing was found after version {}", name(key), begun.floor));
    return;
  }
  if (version < begun.floor) {
    report_violation_(
        fmt::format("{}: version {} was read after version {}", name(key), version, begun.floor));
  }
  observe(key, chunk, token, version);
}

History::SyncBegun History::begin_sync(cluster::ChainId chain) {
  SyncBegun begun{.era = chains_[chain].era};
  for (const auto& [key, chunk] : chunks_) {
    if (key.first == chain) begun.floors[key] = chunk.floor;
  }
  return begun;
}

void History::on_sync(cluster::ChainId chain, const SyncBegun& begun, uint64_t verifier) {
  on_serving(chain, verifier);
  if (begun.era != chains_[chain].era) return;
  for (const auto& [key, version] : begun.floors) {
    Chunk& chunk = chunks_[key];
    chunk.synced = std::max(chunk.synced, version);
  }
}

void History::on_serving(cluster::ChainId id, uint64_t verifier) {
  Chain& chain = chains_[id];
  const bool known = !chain.verifiers.emplace(verifier, true).second;
  if (chain.verifier == verifier || known) return;  // an answer of earlier, late
  const bool first = !chain.verifier;
  chain.verifier = verifier;
  if (first) return;
  losses_++;
  chain.era++;
  for (auto& [key, chunk] : chunks_) {
    if (key.first != id) continue;
    chunk.floor = chunk.synced;
    // What is not durable may be there all the same.
    for (auto at = chunk.tokens.upper_bound(chunk.synced); at != chunk.tokens.end(); ++at) {
      chunk.removals += at->second == 0 ? 1 : 0;
    }
    std::erase_if(chunk.tokens, [&](const auto& of) { return of.first > chunk.synced; });
    std::erase_if(chunk.versions, [&](const auto& of) { return of.second > chunk.synced; });
  }
}

}  // namespace ff::scenario::chain_parts
