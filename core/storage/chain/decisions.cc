// decisions.cc: parts by the order of a chain's targets, judgements by versions and writers.
#include "storage/chain/decisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ff::chain {

using chunk::ChunkState;
using chunk::VersionState;
using chunk::Writer;

std::optional<Part> part_of(const cluster::Chain& chain, cluster::TargetId id) {
  std::optional<Part> part;
  bool first = true;
  for (const cluster::Target& target : chain.targets) {
    const bool serves = target.state == cluster::State::serving;
    if (!serves && target.state != cluster::State::syncing) continue;
    if (part) {
      part->successor = &target;
      part->successor_serves = serves;
      return part;
    }
    if (target.id == id) part = Part{.head = first, .serves = serves};
    first = false;
  }
  return part;
}

const cluster::Target* reading_tail(const cluster::Chain& chain) {
  const cluster::Target* last = nullptr;
  for (const cluster::Target& target : chain.targets) {
    if (target.state == cluster::State::serving) last = &target;
  }
  return last;
}

namespace {

std::string name(const Writer& writer) {
  return fmt::format("update {} of channel {} of client {:x}", writer.sequence, writer.channel,
                     writer.client);
}

Judgement refuse(std::string why) { return {.verdict = Verdict::refuse, .why = std::move(why)}; }

}  // namespace

Judgement judge_write(const ChunkState& state, const std::optional<chunk::ChannelResult>& result,
                      const Writer& writer) {
  if (result && result->sequence > writer.sequence) {
    return refuse(fmt::format("{} was overtaken by update {}", name(writer), result->sequence));
  }
  const bool known = result && result->sequence == writer.sequence;
  if (known && result->committed) return {.verdict = Verdict::done, .image = result->image};
  if (!state.pending) return {.verdict = Verdict::store};
  const bool its = state.pending->writer == writer;
  return {.verdict = its ? Verdict::carry_on : Verdict::settle};
}

std::optional<chunk::Update> comes_to(chunk::Update update, const VersionState& committed) {
  if (update.only_version && *update.only_version != committed.version) return std::nullopt;
  const bool there = committed.version > 0 && !committed.removed;
  if (update.change == chunk::Change::remove && !there) return std::nullopt;
  if (update.change != chunk::Change::clear) return update;
  if (!there || update.offset >= committed.length) return std::nullopt;
  const uint64_t left = committed.length - update.offset;
  if (update.length == 0) return std::nullopt;
  update.length = std::min(update.length, left);
  const bool all_of_it = update.length == committed.length;
  update.change = all_of_it ? chunk::Change::remove : chunk::Change::write;
  return update;
}

Judgement judge_update(const ChunkState& state, const std::optional<chunk::ChannelResult>& result,
                       const Writer& writer, uint64_t version) {
  const uint64_t committed = state.committed.version;
  if (version > committed + 1) {
    return refuse(fmt::format("version {} follows version {}: an update between them is missing",
                              version, committed));
  }
  if (version == committed + 1) {
    if (!state.pending) return {.verdict = Verdict::store};
    if (state.pending->writer == writer) return {.verdict = Verdict::carry_on};
    return refuse(fmt::format("{} would make version {}, which {} has made pending", name(writer),
                              version, name(state.pending->writer)));
  }
  // The predecessor has forgotten its tombstone already, as old as they are (replica_prune.cc).
  const bool known = result && result->sequence >= writer.sequence;
  if (state.committed.removed && version == 1 && !state.pending && !known) {
    return {.verdict = Verdict::forget};
  }
  if (version < committed) return {.verdict = Verdict::done, .image = {.version = version}};
  // Results are forgotten in the end: then the version alone has to do.
  const bool others = result && result->sequence < writer.sequence;
  if (!others) return {.verdict = Verdict::done, .image = state.committed};
  return refuse(
      fmt::format("{} would make version {}, which another has made", name(writer), version));
}

bool has_replacement(const ChunkState& state, uint64_t version, uint64_t chain_version) {
  // A tombstone that the predecessor has forgotten already is nothing.
  if (state.committed.removed && version == 1) return false;
  return state.chain_version == chain_version && state.committed.version >= version;
}

bool wants_copy(const ChunkState& state, const VersionState& copy, uint64_t copy_chain_version,
                uint64_t chain_version) {
  if (has_replacement(state, copy.version, chain_version)) return false;
  return state.pending || state.chain_version != copy_chain_version || state.committed != copy;
}

bool wants_erase(const ChunkState& state, uint64_t chain_version) {
  return state.committed.version == 0 || state.chain_version != chain_version;
}

}  // namespace ff::chain
