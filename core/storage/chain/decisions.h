// Decisions of chain replication (CRAQ; storage.md, "Chains") without I/O: the role of a target in
// its chain, and how it handles an update that arrives.
//
// Updates enter at the head and are stored as pending from target to target. The tail commits, and
// then each predecessor on the way back. A syncing target is last in the chain and receives whole
// chunks only, so that it does not matter what the copy has not reached yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "storage/chunk/chunk.h"
#include "storage/cluster/routing.h"

namespace ff::chain {

struct ChainRole {
  bool is_head = false;
  bool serving = false;  // false: it is syncing
  // The next target that receives updates; null: this is the last one.
  const cluster::Target* successor = nullptr;
  bool successor_serving = false;
};
// Nothing when the target receives no updates.
std::optional<ChainRole> role_of(const cluster::Chain& chain, cluster::TargetId id);
// The last serving target: its committed version is the one that reads return. Null: none serves.
const cluster::Target* serving_tail(const cluster::Chain& chain);

enum class UpdateAction : uint8_t {
  store,            // store it as the next version
  resume,           // it is already stored as the pending version
  already_done,     // it is already committed
  resolve_pending,  // another update is pending and must be resolved first
  erase_tombstone,  // the chunk is created again: remove the tombstone first
  reject,
};
struct UpdateDecision {
  UpdateAction action = UpdateAction::reject;
  chunk::VersionState state = {};  // already_done: the chunk after the update
  std::string reason = {};         // why it is rejected
};

// Decides about a client's update at the head. `result`: the last known result of its channel.
UpdateDecision decide_write(const chunk::ChunkState& state,
                            const std::optional<chunk::ChannelResult>& result,
                            const chunk::RequestId& request_id);
// The update to apply to a chunk with this committed version: the update itself; for punch_hole a
// write (of `length` zeros, which the caller must allocate) or a removal; nothing when it would
// change nothing.
std::optional<chunk::Update> effective_update(chunk::Update update,
                                              const chunk::VersionState& committed);
// Decides about a forwarded update that produces `version`, at a serving target.
UpdateDecision decide_forward(const chunk::ChunkState& state,
                              const std::optional<chunk::ChannelResult>& result,
                              const chunk::RequestId& request_id, uint64_t version);

// For a target that syncs under `chain_version`: chunks it already holds are from an earlier
// membership and count only if they were written since then, which means with that chain version.
//
// Whether version `version`, forwarded as a whole chunk, is already there.
bool already_replaced(const chunk::ChunkState& state, uint64_t version, uint64_t chain_version);
// Whether the copy of the predecessor's committed version must be stored.
bool needs_copy(const chunk::ChunkState& state, const chunk::VersionState& copy,
                uint64_t copy_chain_version, uint64_t chain_version);
// Whether a chunk that the predecessor does not have must be erased.
bool needs_erase(const chunk::ChunkState& state, uint64_t chain_version);

}  // namespace ff::chain
