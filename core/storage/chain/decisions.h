// The decisions of chain replication (CRAQ; storage.md, "Chains"), without I/O: which part a target
// plays in its chain, and what becomes of an update where it arrives.
//
// Updates enter at the head and are stored as pending from target to target; the tail commits, and
// on the way back every target does. A target that is being copied to is written to last, whole
// chunks at once, so that what the copy has not reached yet does no harm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "storage/chunk/chunk.h"
#include "storage/cluster/routing.h"

namespace ff::chain {

struct Part {
  bool head = false;
  bool serves = false;  // else it is being copied to
  // The next that is written to; null: this is the tail.
  const cluster::Target* successor = nullptr;
  bool successor_serves = false;
};
// Nothing when the target is not written to.
std::optional<Part> part_of(const cluster::Chain& chain, cluster::TargetId id);
// The last that serves: its committed version is the chain's, to whom reads. Null: nobody serves.
const cluster::Target* reading_tail(const cluster::Chain& chain);

enum class Verdict : uint8_t {
  store,     // it makes the next version
  carry_on,  // it is stored as the pending version already
  done,      // it is committed already
  settle,    // another update is pending: first to its end
  forget,    // it begins anew: first the tombstone goes
  refuse,
};
struct Judgement {
  Verdict verdict = Verdict::refuse;
  chunk::VersionState image = {};  // done: what it made of the chunk
  std::string why = {};            // refuse
};

// A client's update at the head. `result`: the last one of its channel that the target knows of.
Judgement judge_write(const chunk::ChunkState& state,
                      const std::optional<chunk::ChannelResult>& result,
                      const chunk::Writer& writer);
// What a client's update comes to, at a chunk with this committed version: itself, what a clear
// makes there (as a write: of `length` zeros, which are still to be laid out), or nothing, when it
// would change nothing. Nothing is stored for what changes nothing.
std::optional<chunk::Update> comes_to(chunk::Update update, const chunk::VersionState& committed);
// The update that makes `version`, forwarded to a target that serves.
Judgement judge_update(const chunk::ChunkState& state,
                       const std::optional<chunk::ChannelResult>& result,
                       const chunk::Writer& writer, uint64_t version);

// What a target that is being copied to under `chain_version` holds is from an earlier life, and
// means nothing, unless it was written since: then it has that chain version.
//
// Whether version `version`, forwarded whole, is there already.
bool has_replacement(const chunk::ChunkState& state, uint64_t version, uint64_t chain_version);
// Whether a copy of its predecessor's committed version is to be stored.
bool wants_copy(const chunk::ChunkState& state, const chunk::VersionState& copy,
                uint64_t copy_chain_version, uint64_t chain_version);
// Whether a chunk that its predecessor does not have is to go.
bool wants_erase(const chunk::ChunkState& state, uint64_t chain_version);

}  // namespace ff::chain
