// chunk_store_update.cc: creation of new versions. Data is written first, to units that no version
// references, or goes to the log; then one entry of the log references it, together with its data.
#include <algorithm>
#include <cstring>
#include <utility>

#include "platform/io/alignment.h"
#include "platform/simd/crc32c.h"
#include "storage/chunk/aligned_buffer.h"
#include "storage/chunk/chunk_store.h"
#include "storage/chunk/chunk_store_claim.h"

namespace ff::chunk {

// Adjacent checksum units that are written with one I/O; those of the log are written with the row.
struct ChunkStore::WriteExtent {
  BlockRef block;
  UnitPlace place = UnitPlace::block;
  SizeClass size_class = 0;
  uint64_t first = 0;
  uint64_t count = 0;
  ByteView bytes;
};

// The units of a new version that are written.
struct ChunkStore::StagedWrite {
  AlignedBuffer own;   // holds `bytes`, unless they are in memory of the caller
  ByteView bytes;      // the units up to the end of the chunk, zero-padded for direct I/O
  CrcsRef block_crcs;  // of the block of the version
  std::vector<WriteExtent> extents;
};

namespace {

// Small updates wait for a checkpoint that is late: without the log they would write more, and the
// disk is busy as it is.
constexpr int64_t kLogRoomNs = kSecond;

// CRC32C of the whole version, computed from the CRCs of its units.
uint32_t whole_checksum(const ChunkVersion& version, const Crcs& crcs) {
  uint32_t checksum = 0;
  for (uint64_t unit = 0; unit < version.units(); ++unit) {
    checksum =
        simd::crc32c_combine(checksum, version.unit_crc(unit, crcs), version.unit_length(unit));
  }
  return checksum;
}

// The same for a version that differs from its base in some units only and is as long. CRC32C is
// linear: the change of each unit, shifted by the bytes behind it, is XORed to the checksum.
uint32_t updated_checksum(const ChunkVersion& base, const ChunkVersion& version,
                          const UpdatePlan& plan, const Crcs& crcs) {
  uint32_t checksum = base.state.checksum;
  for (uint64_t unit = plan.first_unit; unit < plan.end_unit; ++unit) {
    const uint64_t end = std::min((unit + 1) * plan.unit_bytes(), version.state.length);
    checksum ^= simd::crc32c_combine(base.unit_crc(unit, crcs) ^ version.unit_crc(unit, crcs), 0,
                                     version.state.length - end);
  }
  return checksum;
}

// The overlays or units in the log of the base that the new version keeps.
template <class Unit>
std::vector<Unit> kept_units(const std::vector<Unit>& base, const UpdatePlan& plan) {
  const uint64_t units = align_up(plan.length, plan.unit_bytes()) / plan.unit_bytes();
  const auto from = [&](uint64_t unit) {
    return std::ranges::lower_bound(base, std::min(unit, units), {}, &Unit::unit);
  };
  std::vector<Unit> kept;
  kept.reserve(base.size() + plan.replaced_units);
  kept.insert(kept.end(), base.begin(), from(plan.first_unit));
  kept.insert(kept.end(), from(plan.end_unit), from(units));
  return kept;
}

// These, and the new ones.
std::vector<Overlay> overlays_of(const ChunkVersion& base, const UpdatePlan& plan,
                                 uint64_t first_slot) {
  auto overlays = kept_units(base.overlays, plan);
  for (uint64_t i = 0; i < plan.replaced_units && !plan.to_log; ++i) {
    overlays.push_back({.unit = static_cast<uint8_t>(plan.first_unit + i),
                        .slot = static_cast<uint8_t>(first_slot + i)});
  }
  std::ranges::sort(overlays, {}, &Overlay::unit);
  return overlays;
}

// The LSNs of new ones are known when the row is committed.
std::vector<LoggedUnit> logged_of(const ChunkVersion& base, const UpdatePlan& plan) {
  auto logged = kept_units(base.logged, plan);
  if (!plan.to_log) return logged;
  const auto after = std::ranges::lower_bound(logged, plan.first_unit, {}, &LoggedUnit::unit);
  auto at = logged.insert(after, plan.replaced_units, LoggedUnit());
  for (uint64_t i = 0; i < plan.replaced_units; ++i) {
    (at++)->unit = static_cast<uint8_t>(plan.first_unit + i);
  }
  return logged;
}

bool overlaps_damage(const Update& update, uint64_t offset, uint64_t size) {
  return std::ranges::any_of(update.damaged, [&](const DamagedRange& at) {
    return at.offset < offset + size && offset < at.offset + at.length;
  });
}

// Whether the data can be written directly from the memory of the caller.
bool writes_caller_memory(const UpdatePlan& plan, const Update& update) {
  return update.data.size() == plan.end_byte() - plan.begin_byte() &&
         plan.data_end - plan.data_begin == update.data.size() &&
         plan.data_begin == plan.begin_byte() && io::direct_aligned(update.data, 0);
}

}  // namespace

// Assembles the bytes to write: old bytes around the new ones, zeros elsewhere.
Task<Result<void>> ChunkStore::stage_data(const ChunkVersion& base, const Update& update,
                                          const UpdatePlan& plan, StagedWrite& written) {
  const uint64_t begin = plan.begin_byte();
  const uint64_t end = plan.end_byte();
  if (writes_caller_memory(plan, update)) {
    written.bytes = update.data;
  } else {
    written.own = AlignedBuffer(align_up(end - begin, io::kDirectAlign));
    const ByteSpan bytes = written.own.span();
    std::memset(bytes.data(), 0, bytes.size());
    written.bytes = bytes;
    const bool keeps = update.type != UpdateType::replace;
    const uint64_t old_end = keeps ? std::min(base.state.length, end) : 0;
    if (const uint64_t head = std::min(plan.data_begin, old_end); head > begin) {
      FF_CO_TRY(co_await read_version(base, begin, bytes.first(head - begin), false));
    }
    if (const uint64_t tail = std::max(plan.data_end, begin); tail < old_end) {
      FF_CO_TRY(
          co_await read_version(base, tail, bytes.subspan(tail - begin, old_end - tail), false));
    }
    if (!update.data.empty()) {
      std::memcpy(bytes.data() + (plan.data_end - update.data.size() - begin), update.data.data(),
                  update.data.size());
    }
  }
  co_return Result<void>();
}

// Overlay slots or the log first, then units of the block. These count as used from here on, even
// if the update fails.
void ChunkStore::consume_units(const UpdatePlan& plan, ChunkVersion& version,
                               StagedWrite& written) {
  const uint64_t replaced = plan.replaced_units;
  const uint64_t cut = std::min<uint64_t>(replaced * plan.unit_bytes(), written.bytes.size());
  if (plan.to_log) {
    const uint64_t end = std::min(cut, plan.end_byte() - plan.begin_byte());
    written.extents.push_back({.block = {},
                               .place = UnitPlace::log,
                               .size_class = plan.size_class,
                               .first = plan.first_unit,
                               .count = replaced,
                               .bytes = written.bytes.first(end)});
  } else if (replaced > 0) {
    written.extents.push_back({.block = version.overlay_block,
                               .place = UnitPlace::overlay,
                               .size_class = plan.size_class,
                               .first = version.overlay_block->filled,
                               .count = replaced,
                               .bytes = written.bytes.first(cut)});
    version.overlay_block->filled += replaced;
  }
  if (const uint64_t first = plan.first_unit + replaced; first < plan.end_unit) {
    written.extents.push_back({.block = version.block,
                               .size_class = plan.size_class,
                               .first = first,
                               .count = plan.end_unit - first,
                               .bytes = written.bytes.subspan(cut)});
    version.block->filled = plan.end_unit;
  }
}

// Computes the CRCs of the units and of the version, and stores those of the units. Damaged units
// get a CRC that does not match.
Task<Result<void>> ChunkStore::store_checksums(const ChunkVersion& base, const UpdatePlan& plan,
                                               const Update& update, const StagedWrite& written,
                                               ChunkVersion& version) {
  ByteView rest = written.bytes.first(plan.end_byte() - plan.begin_byte());
  uint64_t offset = plan.begin_byte();
  // The new ones are adjacent in the lists of the version.
  auto overlay = std::ranges::lower_bound(version.overlays, plan.first_unit, {}, &Overlay::unit);
  auto logged = std::ranges::lower_bound(version.logged, plan.first_unit, {}, &LoggedUnit::unit);
  for (const WriteExtent& extent : written.extents) {
    for (uint64_t i = 0; i < extent.count; ++i) {
      const ByteView unit = rest.first(std::min<uint64_t>(plan.unit_bytes(), rest.size()));
      const uint32_t crc = simd::crc32c(unit);
      uint32_t& stored = extent.place == UnitPlace::log ? (logged++)->crc
                         : extent.place == UnitPlace::overlay
                             ? (overlay++)->crc
                             : (*written.block_crcs)[extent.first + i];
      stored = overlaps_damage(update, offset, unit.size()) ? ~crc : crc;
      offset += unit.size();
      rest = rest.subspan(unit.size());
    }
  }
  // Replaced units still have their old CRC beside the new one.
  const bool replaced_only =
      plan.first_unit + plan.replaced_units == plan.end_unit && base.state.length == plan.length;
  version.state.checksum = replaced_only
                               ? updated_checksum(base, version, plan, *written.block_crcs)
                               : whole_checksum(version, *written.block_crcs);
  if (!update.damaged.empty()) version.state.checksum = update.checksum.value_or(0);
  if (update.checksum && *update.checksum != version.state.checksum) {
    co_return wrong_checksum(update, version.state.checksum);
  }
  for (const WriteExtent& extent : written.extents) {
    if (extent.place != UnitPlace::block) continue;
    FF_CO_TRY(
        co_await blocks_.store_crcs(extent.block, written.block_crcs, extent.first, extent.count));
  }
  co_return Result<void>();
}

Task<Result<void>> ChunkStore::write_bytes(const StagedWrite& written) {
  for (const WriteExtent& extent : written.extents) {
    if (extent.place == UnitPlace::log) continue;
    const uint64_t offset = extent.first * checksum_unit_bytes(extent.size_class);
    FF_CO_TRY(co_await blocks_.write(extent.block, offset, extent.bytes));
  }
  co_return Result<void>();
}

// Writes the version that `update` produces from `base`; no row references it yet. Errors: usage,
// and those of build_version().
Task<Result<ChunkStore::NewVersion>> ChunkStore::make_version(ChunkVersion base, Update update) {
  const BaseVersion shape{
      .length = base.state.length,
      .size_class = base.block ? std::optional(base.block->location.size_class) : std::nullopt,
      .filled_units = base.block ? base.block->filled : uint64_t{0},
      .used_slots = base.overlay_block ? base.overlay_block->filled : uint64_t{0},
      .log_has_room = metadata_->has_room_for_data()};
  FF_CO_TRY(const UpdatePlan plan, plan_update(shape, update));
  auto version = co_await build_version(std::move(base), update, shape, plan);
  if (version || version.error().code == Errc::corrupt) co_return version;
  co_return record_failure(std::move(version).error());
}

// On a full disk waits until the blocks of removed chunks are free: their removal must be durable.
Task<Result<BlockRef>> ChunkStore::allocate(SizeClass size_class) {
  auto block = blocks_.allocate(size_class);
  const bool full = !block && block.error().code == Errc::disk_full;
  if (!full || !blocks_.has_freed()) co_return block;
  FF_CO_TRY(co_await sync());
  co_return blocks_.allocate(size_class);
}

// Errors: corrupt (the base is damaged, or the checksum differs); else those of the disk.
Task<Result<ChunkStore::NewVersion>> ChunkStore::build_version(ChunkVersion base, Update update,
                                                               BaseVersion shape, UpdatePlan plan) {
  NewVersion made;
  ChunkVersion& version = made.version;
  version.state = {.version = update.version,
                   .length = plan.length,
                   .removed = update.type == UpdateType::remove};
  if (plan.length == 0) {
    if (update.checksum.value_or(0) != 0) co_return wrong_checksum(update, 0);
    co_return made;
  }
  if (!plan.rewrite && (BlockStore::lost(base.block) || BlockStore::lost(base.overlay_block))) {
    co_return fail(Errc::corrupt, "{}: the base of version {} of chunk {} of target {} is lost",
                   dir(), update.version, to_string(update.id), update.target);
  }
  // Holding the CRCs keeps them in the cache until the new ones are added.
  StagedWrite written;
  if (plan.rewrite) {
    FF_CO_TRY(version.block, co_await allocate(plan.size_class));
    written.block_crcs = blocks_.new_crcs(version.block);
  } else {
    FF_CO_TRY(written.block_crcs, co_await blocks_.crcs(base.block));
    version.block = base.block;
    version.overlay_block = base.overlay_block;
    if (plan.replaced_units > 0 && !plan.to_log && !version.overlay_block) {
      FF_CO_TRY(version.overlay_block, co_await allocate(overlay_class(plan.size_class)));
    }
    version.overlays = overlays_of(base, plan, shape.used_slots);
    version.logged = logged_of(base, plan);
  }
  if (plan.first_unit < plan.end_unit) {
    FF_CO_TRY(co_await stage_data(base, update, plan, written));
    consume_units(plan, version, written);
  }
  if (version.overlays.empty()) version.overlay_block = {};
  if (plan.to_log) {
    made.to_log = written.extents.front().bytes;
    made.first_unit = plan.first_unit;
    made.units = plan.replaced_units;
    made.log_only = plan.replaced_units == plan.end_unit - plan.first_unit;
  }
  if (made.log_only) {
    FF_CO_TRY(co_await store_checksums(base, plan, update, written, version));
    made.own = std::move(written.own);
    co_return made;
  }
  // Computes checksums while the disk writes: the task in the gate starts when this one waits. Both
  // have ended when this function returns.
  Result<void> stored;
  Gate beside(options_.loop);
  beside.spawn([](Task<Result<void>> storing, Result<void>& result) -> Task<void> {
    result = co_await std::move(storing);
  }(store_checksums(base, plan, update, written, version), stored));
  auto wrote = co_await write_bytes(written);
  co_await beside.wait_empty();
  FF_CO_TRY(std::move(wrote));
  FF_CO_TRY(std::move(stored));
  made.own = std::move(written.own);
  co_return made;
}

Error ChunkStore::wrong_checksum(const Update& update, uint32_t checksum) const {
  return fail(Errc::corrupt,
              "{}: version {} of chunk {} of target {} would have checksum {:08x}, not {:08x}",
              dir(), update.version, to_string(update.id), update.target, checksum,
              *update.checksum);
}

namespace {

RowChange result_row(TargetId target, const RequestId& request_id,
                     const std::optional<ChannelResult>& result) {
  return {.key = key_of(RowKind::result, {target, request_id.client, request_id.channel}),
          .body = result ? std::optional(encode(*result)) : std::nullopt};
}

}  // namespace

Task<Result<ChunkState>> ChunkStore::do_write(Update update) {
  if (metadata_->will_have_room() && update.type == UpdateType::write &&
      update.data.size() <= kLoggedUpdateMax) {
    (void)co_await checkpoint_ended_.wait(options_.loop.now_ns() + kLogRoomNs);
  }
  FF_CO_TRY(Claim claimed, claim(update.target, update.id));
  const ChunkVersions& now = claimed.versions();
  if (now.pending || update.version != now.committed.state.version + 1) {
    co_return fail(Errc::refused,
                   "{}: chunk {} of target {} has version {}{}; version {} does not follow it",
                   dir(), to_string(update.id), update.target, now.committed.state.version,
                   now.pending ? " and a pending one" : "", update.version);
  }
  FF_CO_TRY(NewVersion made, co_await make_version(now.committed, update));
  ChunkVersion& version = made.version;
  const bool at_once = update.commit_chain_version.has_value();
  const int64_t wall_ns = options_.loop.clock().wall_ns();
  const ChannelResult result{.sequence = update.request_id.sequence,
                             .id = update.id,
                             .state = version.state,
                             .committed = at_once,
                             .used_ns = wall_ns};
  ChunkVersions next;
  if (at_once) {
    next.chain_version = *update.commit_chain_version;
    next.removed_ns = version.state.removed ? wall_ns : 0;
    next.committed = std::move(version);
  } else {
    next.committed = now.committed;
    next.chain_version = now.chain_version;
    next.removed_ns = now.removed_ns;
    next.pending = std::make_unique<ChunkVersions::Pending>();
    next.pending->version = std::move(version);
    next.pending->request_id = update.request_id;
  }
  RowChanges more;
  claimed.lock_channel(update.request_id);
  // The row of a pending version names its update, so a row of its result would say nothing new.
  if (at_once) more.push_back(result_row(update.target, update.request_id, result));
  FF_CO_TRY(co_await commit_versions(claimed, std::move(next), std::move(more), &made));
  claimed.target().channels[{update.request_id.client, update.request_id.channel}] = result;
  co_return state_of(claimed.versions());
}

// The state after a commit; nothing when it is committed already.
struct ChunkStore::PendingCommit {
  std::optional<ChunkVersions> next;
  RequestId request_id;
  std::optional<ChannelResult> result;  // nothing: the channel has a newer one
};

Result<ChunkStore::PendingCommit> ChunkStore::begin_commit(const Claim& claim, uint64_t version,
                                                           uint64_t chain_version) {
  const ChunkVersions& now = claim.versions();
  PendingCommit commit;
  if (version > 0 && now.committed.state.version == version) return commit;
  if (!now.pending || now.pending->version.state.version != version) {
    return fail(Errc::refused, "{}: chunk {} of target {} has no pending version {}", dir(),
                to_string(claim.id()), claim.target_id(), version);
  }
  const int64_t wall_ns = options_.loop.clock().wall_ns();
  commit.request_id = now.pending->request_id;
  ChunkVersions& next = commit.next.emplace();
  next.committed = now.pending->version;
  next.chain_version = chain_version;
  next.removed_ns = next.committed.state.removed ? wall_ns : 0;
  // The channel may have a newer result, when its client gave up on this update.
  const auto& channels = claim.target().channels;
  const auto kept = channels.find({commit.request_id.client, commit.request_id.channel});
  if (kept != channels.end() && kept->second.sequence > commit.request_id.sequence) return commit;
  commit.result = ChannelResult{.sequence = commit.request_id.sequence,
                                .id = claim.id(),
                                .state = next.committed.state,
                                .committed = true,
                                .used_ns = wall_ns};
  return commit;
}

namespace {

void store_result(std::map<std::pair<uint64_t, uint64_t>, ChannelResult>& channels,
                  const RequestId& request_id, const std::optional<ChannelResult>& result) {
  if (result) channels[{request_id.client, request_id.channel}] = *result;
}

}  // namespace

Task<Result<ChunkState>> ChunkStore::do_commit(TargetId target, ChunkId id, uint64_t version,
                                               uint64_t chain_version) {
  FF_CO_TRY(Claim claimed, claim(target, id));
  FF_CO_TRY(PendingCommit commit, begin_commit(claimed, version, chain_version));
  if (!commit.next) co_return state_of(claimed.versions());
  RowChanges more;
  claimed.lock_channel(commit.request_id);
  if (commit.result) more.push_back(result_row(target, commit.request_id, commit.result));
  // Its data needs no undo row: the one of the update is there until the data is durable.
  NewVersion no_data;
  no_data.log_only = true;
  FF_CO_TRY(co_await commit_versions(claimed, std::move(*commit.next), std::move(more), &no_data));
  store_result(claimed.target().channels, commit.request_id, commit.result);
  co_return state_of(claimed.versions());
}

Result<ChunkState> ChunkStore::commit_soon(TargetId target, ChunkId id, uint64_t version,
                                           uint64_t chain_version) {
  FF_TRY(Claim claimed, claim(target, id));
  FF_TRY(PendingCommit commit, begin_commit(claimed, version, chain_version));
  if (!commit.next) return state_of(claimed.versions());
  RowChanges more;
  if (commit.result) more.push_back(result_row(target, commit.request_id, commit.result));
  NewVersion no_data;
  no_data.log_only = true;
  Change change = change_of(claimed, std::move(*commit.next), std::move(more), &no_data);
  committer_->commit_later(change.rows);
  install(claimed, std::move(change));
  store_result(claimed.target().channels, commit.request_id, commit.result);
  return state_of(claimed.versions());
}

Task<Result<ChunkState>> ChunkStore::do_drop_pending(TargetId target, ChunkId id,
                                                     uint64_t version) {
  FF_CO_TRY(Claim claimed, claim(target, id));
  const ChunkVersions& now = claimed.versions();
  if (!now.pending || now.pending->version.state.version != version) {
    co_return fail(Errc::refused, "{}: chunk {} of target {} has no pending version {}", dir(),
                   to_string(id), target, version);
  }
  const RequestId request_id = now.pending->request_id;
  ChunkVersions next;
  next.committed = now.committed;
  next.chain_version = now.chain_version;
  next.removed_ns = now.removed_ns;
  auto& channels = claimed.target().channels;
  const auto kept = channels.find({request_id.client, request_id.channel});
  const bool its = kept != channels.end() && kept->second.sequence == request_id.sequence;
  RowChanges more;
  if (its) more.push_back(result_row(target, request_id, std::nullopt));
  FF_CO_TRY(co_await commit_versions(claimed, std::move(next), std::move(more), nullptr));
  if (its) channels.erase({request_id.client, request_id.channel});
  co_return state_of(claimed.versions());
}

Task<Result<ChunkState>> ChunkStore::do_install(ChunkCopy install) {
  FF_CO_TRY(Claim claimed, claim(install.target, install.id));
  if (install.state.version == 0 || install.state.length != install.data.size() ||
      (install.state.removed && install.state.length > 0)) {
    co_return fail(Errc::usage, "{}: chunk {}: {} bytes for version {} of length {}", dir(),
                   to_string(install.id), install.data.size(), install.state.version,
                   install.state.length);
  }
  const Update update{.target = install.target,
                      .id = install.id,
                      .version = install.state.version,
                      .type = install.state.removed ? UpdateType::remove : UpdateType::replace,
                      .data = install.data,
                      .chunk_size = kChunkMax,
                      .checksum = install.state.checksum,
                      .damaged = install.damaged};
  ChunkVersions next;
  const ChunkVersion none;
  FF_CO_TRY(NewVersion made, co_await make_version(none, update));
  next.committed = std::move(made.version);
  next.chain_version = install.chain_version;
  const int64_t wall_ns = options_.loop.clock().wall_ns();
  next.removed_ns = install.state.removed ? wall_ns : 0;
  ChannelResult result;
  RowChanges more;
  if (install.request_id) {
    result = {.sequence = install.request_id->sequence,
              .id = install.id,
              .state = next.committed.state,
              .committed = true,
              .used_ns = wall_ns};
    claimed.lock_channel(*install.request_id);
    more.push_back(result_row(install.target, *install.request_id, result));
  }
  FF_CO_TRY(co_await commit_versions(claimed, std::move(next), std::move(more), nullptr));
  if (install.request_id) {
    claimed.target().channels[{install.request_id->client, install.request_id->channel}] = result;
  }
  co_return state_of(claimed.versions());
}

Task<Result<void>> ChunkStore::do_erase(TargetId target, ChunkId id) {
  FF_CO_TRY(Claim claimed, claim(target, id));
  if (claimed.versions().absent()) co_return Result<void>();
  ChunkVersions none;
  RowChanges no_more;
  co_return co_await commit_versions(claimed, std::move(none), std::move(no_more), nullptr);
}

// Changes are shielded from cancellation: an interrupted one would leave the chunk in an unknown
// state.

Task<Result<ChunkState>> ChunkStore::write(Update update) {
  co_return co_await do_write(std::move(update)).shielded();
}

Task<Result<ChunkState>> ChunkStore::commit(TargetId target, ChunkId id, uint64_t version,
                                            uint64_t chain_version) {
  co_return co_await do_commit(target, id, version, chain_version).shielded();
}

Task<Result<ChunkState>> ChunkStore::drop_pending(TargetId target, ChunkId id, uint64_t version) {
  co_return co_await do_drop_pending(target, id, version).shielded();
}

Task<Result<ChunkState>> ChunkStore::install(ChunkCopy install) {
  co_return co_await do_install(std::move(install)).shielded();
}

Task<Result<void>> ChunkStore::erase(TargetId target, ChunkId id) {
  co_return co_await do_erase(target, id).shielded();
}

}  // namespace ff::chunk
