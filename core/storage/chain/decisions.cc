// decisions.cc: roles by the order of the targets, decisions by versions and request ids.
#include "storage/chain/decisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ff::chain {

using chunk::ChunkState;
using chunk::RequestId;
using chunk::VersionState;

std::optional<ChainRole> role_of(const cluster::Chain& chain, cluster::TargetId id) {
  std::optional<ChainRole> role;
  bool first = true;
  for (const cluster::Target& target : chain.targets) {
    const bool serves = target.state == cluster::TargetState::serving;
    if (!serves && target.state != cluster::TargetState::syncing) continue;
    if (role) {
      role->successor = &target;
      role->successor_serving = serves;
      return role;
    }
    if (target.id == id) role = ChainRole{.is_head = first, .serving = serves};
    first = false;
  }
  return role;
}

const cluster::Target* serving_tail(const cluster::Chain& chain) {
  const cluster::Target* last = nullptr;
  for (const cluster::Target& target : chain.targets) {
    if (target.state == cluster::TargetState::serving) last = &target;
  }
  return last;
}

namespace {

std::string describe(const RequestId& request_id) {
  return fmt::format("update {} of channel {} of client {:x}", request_id.sequence,
                     request_id.channel, request_id.client);
}

UpdateDecision reject(std::string reason) {
  return {.action = UpdateAction::reject, .reason = std::move(reason)};
}

}  // namespace

UpdateDecision decide_write(const ChunkState& state,
                            const std::optional<chunk::ChannelResult>& result,
                            const RequestId& request_id) {
  if (result && result->sequence > request_id.sequence) {
    return reject(
        fmt::format("{} was superseded by update {}", describe(request_id), result->sequence));
  }
  const bool known = result && result->sequence == request_id.sequence;
  if (known && result->committed)
    return {.action = UpdateAction::already_done, .state = result->state};
  if (!state.pending) return {.action = UpdateAction::store};
  const bool its = state.pending->request_id == request_id;
  return {.action = its ? UpdateAction::resume : UpdateAction::resolve_pending};
}

std::optional<chunk::Update> effective_update(chunk::Update update, const VersionState& committed) {
  if (update.expected_version && *update.expected_version != committed.version) return std::nullopt;
  const bool there = committed.version > 0 && !committed.removed;
  if (update.type == chunk::UpdateType::remove && !there) return std::nullopt;
  if (update.type != chunk::UpdateType::punch_hole) return update;
  if (!there || update.offset >= committed.length) return std::nullopt;
  const uint64_t left = committed.length - update.offset;
  if (update.length == 0) return std::nullopt;
  update.length = std::min(update.length, left);
  const bool all_of_it = update.length == committed.length;
  update.type = all_of_it ? chunk::UpdateType::remove : chunk::UpdateType::write;
  return update;
}

UpdateDecision decide_forward(const ChunkState& state,
                              const std::optional<chunk::ChannelResult>& result,
                              const RequestId& request_id, uint64_t version) {
  const uint64_t committed = state.committed.version;
  if (version > committed + 1) {
    return reject(
        fmt::format("cannot store version {} after version {}: an update between them is missing",
                    version, committed));
  }
  if (version == committed + 1) {
    if (!state.pending) return {.action = UpdateAction::store};
    if (state.pending->request_id == request_id) return {.action = UpdateAction::resume};
    return reject(fmt::format("{} conflicts with pending version {} of {}", describe(request_id),
                              version, describe(state.pending->request_id)));
  }
  // The predecessor has pruned its tombstone already (replica_prune.cc).
  const bool known = result && result->sequence >= request_id.sequence;
  if (state.committed.removed && version == 1 && !state.pending && !known) {
    return {.action = UpdateAction::erase_tombstone};
  }
  if (version < committed)
    return {.action = UpdateAction::already_done, .state = {.version = version}};
  // Channel results are pruned eventually: then only the version decides.
  const bool others = result && result->sequence < request_id.sequence;
  if (!others) return {.action = UpdateAction::already_done, .state = state.committed};
  return reject(
      fmt::format("{} conflicts with version {} of another update", describe(request_id), version));
}

bool already_replaced(const ChunkState& state, uint64_t version, uint64_t chain_version) {
  // A tombstone that the predecessor has pruned already does not count.
  if (state.committed.removed && version == 1) return false;
  return state.chain_version == chain_version && state.committed.version >= version;
}

bool needs_copy(const ChunkState& state, const VersionState& copy, uint64_t copy_chain_version,
                uint64_t chain_version) {
  if (already_replaced(state, copy.version, chain_version)) return false;
  return state.pending || state.chain_version != copy_chain_version || state.committed != copy;
}

bool needs_erase(const ChunkState& state, uint64_t chain_version) {
  return state.committed.version == 0 || state.chain_version != chain_version;
}

}  // namespace ff::chain
