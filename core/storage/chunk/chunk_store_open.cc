// chunk_store_open.cc: creating a disk, and opening it after a clean close, a process crash or a
// power loss.
//
// Synced data is there: the log and the disk guarantee that. Unsynced changes are checked chunk by
// chunk: each chunk with undo rows (chunk_store.cc) is read; if its data does not match its row,
// the chunk is rolled back to the newest undo row whose data does.
#include <algorithm>
#include <array>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"
#include "storage/chunk/aligned_buffer.h"
#include "storage/chunk/chunk_store.h"
#include "storage/chunk/format1.h"
#include "storage/chunk/logged_rows.h"

namespace ff::chunk {
namespace {

constexpr uint64_t kCheckBytes = kMiB;  // bytes read at a time when a chunk is verified

// Chunks of each size class that open() samples, and the number of damaged samples that marks the
// whole file as suspect: a single one is just a damaged chunk.
constexpr uint64_t kSamples = 8;
constexpr uint64_t kSamplesBad = 2;

MetadataOptions metadata_options(const ChunkStoreOptions& options, const DiskIdentity& identity) {
  return {.disk = options.disk,
          .dir = options.dir,
          .disk_id = identity.disk,
          .rng = options.rng,
          .log = options.log};
}

constexpr char kClosed = 'c';
constexpr char kOpen = 'o';

// u8 'c' (closed) or 'o' (open), length of the disk id, disk id, boot id.
std::string make_disk_row(bool closed, const std::string& disk, const std::string& boot) {
  std::string row(1, closed ? kClosed : kOpen);
  row += static_cast<char>(disk.size());
  row += disk;
  row += boot;
  return row;
}

// The numbers of the key of a chunk: numbers_of() without memory, for millions of rows.
std::optional<std::pair<TargetId, ChunkId>> chunk_of(std::string_view key) {
  constexpr size_t kNumbers = 3;
  if (key.size() != 1 + kNumbers * sizeof(uint64_t)) return std::nullopt;
  const auto number = [&](size_t i) {
    return __builtin_bswap64(load_le<uint64_t>(as_bytes(key).data() + 1 + i * sizeof(uint64_t)));
  };
  return std::pair(number(0), ChunkId{.inode = number(1), .index = number(2)});
}

// Whether the folder has metadata with targets: then ff-disk was lost.
Result<bool> has_targets(MetadataOptions options) {
  options.disk_id.clear();
  auto metadata = Metadata::open(options);
  if (!metadata && metadata.error().code == Errc::not_found) return false;
  FF_TRY(const auto opened, std::move(metadata));
  bool targets = false;
  FF_TRY(opened->scan([&](RowKind table, std::string_view, std::string_view) {
    targets |= table == RowKind::target;
    return Result<void>();
  }));
  return targets;
}

// Checksum units that a version has written to its block.
uint64_t filled_by(const VersionRecord& version) {
  return version.block
             ? align_up(version.state.length, checksum_unit_bytes(version.block->size_class)) /
                   checksum_unit_bytes(version.block->size_class)
             : 0;
}

// Results of pending versions come from the rows of their chunks, all others from rows of their
// own.
void keep_newest(std::map<std::pair<uint64_t, uint64_t>, ChannelResult>& channels,
                 std::pair<uint64_t, uint64_t> channel, const ChannelResult& result) {
  const auto [known, is_new] = channels.try_emplace(channel, result);
  if (!is_new && known->second.sequence < result.sequence) known->second = result;
}

uint64_t slots_of(const VersionRecord& version) {
  uint64_t slots = 0;
  for (const Overlay& overlay : version.overlays)
    slots = std::max<uint64_t>(slots, overlay.slot + 1);
  return slots;
}

}  // namespace

// Accepts an empty folder, or one left by an interrupted create().
Result<void> ChunkStore::check_blank(const ChunkStoreOptions& options) {
  FF_TRY(const auto entries, options.disk.list(options.dir));
  for (const io::DirEntry& entry : entries) {
    const bool own = entry.name == "lock" || entry.name == "lost+found" ||
                     entry.name.starts_with("ff-disk") || entry.name.starts_with("chunks.");
    if (own) continue;
    return Error{Errc::refused,
                 fmt::format("{}: the folder is not empty: it contains {}", options.dir,
                             printable(entry.name)),
                 "Use an empty folder, or move its files elsewhere."};
  }
  return {};
}

Result<void> ChunkStore::create(const ChunkStoreOptions& options, const DiskIdentity& identity) {
  FF_TRY(io::make_dirs(options.disk, options.dir));
  FF_TRY(const bool is_disk, io::exists(options.disk, io::join(options.dir, "ff-disk")));
  if (!is_disk) FF_TRY(check_blank(options));  // leaves no files in a folder of someone else
  FF_TRY(const auto lock, lock_disk(options.disk, options.dir));
  auto found = read_identity(options.disk, options.dir);
  if (found) {
    return Error{Errc::exists,
                 fmt::format("{}: this is already disk {} of cluster {}", options.dir, found->disk,
                             found->cluster),
                 "Use another folder, or use this disk as it is."};
  }
  if (found.error().code != Errc::not_found) return std::move(found).error();
  // Leftovers of an interrupted create() are replaced.
  FF_TRY(const bool targets, has_targets(metadata_options(options, identity)));
  FF_TRY(const bool format1, io::exists(options.disk, format1_path(options.dir)));
  if (targets || format1) {
    return Error{
        Errc::refused,
        fmt::format("{}: the folder holds chunks, but the file ff-disk is missing", options.dir),
        "Restore the file ff-disk, or empty the folder if its data is not needed."};
  }
  std::string row;
  const std::string body = make_disk_row(true, identity.disk, options.boot_id);
  append_row(row, {.kind = RowView::Kind::put, .key = key_of(RowKind::disk, {}), .value = body});
  LogRows rows;
  FF_TRY(rows.apply(row));
  FF_TRY(Metadata::create(metadata_options(options, identity), *rows.source()));
  return write_identity(options.disk, options.dir, identity);
}

Task<Result<std::unique_ptr<ChunkStore>>> ChunkStore::open(ChunkStoreOptions options) {
  // Reads the identity before locking: nothing is written to a folder that is not ours.
  FF_CO_TRY(auto identity, read_identity(options.disk, options.dir));
  FF_CO_TRY(check_cluster(identity, options.cluster, options.dir));
  FF_CO_TRY(auto lock, lock_disk(options.disk, options.dir));
  const MetadataOptions of_metadata = metadata_options(options, identity);
  std::optional<db::LogPosition> format1;
  if (identity.format == 1) {
    FF_CO_TRY(format1, upgrade_format1(of_metadata, identity, options.loop.clock()));
  }
  FF_CO_TRY(remove_format1(options.disk, options.dir));
  auto metadata = Metadata::open(of_metadata);
  if (!metadata && metadata.error().code == Errc::not_found) {
    co_return Error{Errc::corrupt,
                    fmt::format("{}: the metadata file is missing, so no chunk can be located",
                                metadata_path(options.dir)),
                    "Restore the file, or replace the targets of the disk: ff admin "
                    "replace-target."};
  }
  FF_CO_TRY(auto opened, std::move(metadata));
  const uint32_t format = std::exchange(identity.format, kDiskFormat);
  std::unique_ptr<ChunkStore> store(
      new ChunkStore(std::move(options), std::move(identity), std::move(lock), std::move(opened)));
  FF_CO_TRY(auto undo, store->load());
  store->compare_with_acked(format1);
  if (format < kDiskFormat) {
    FF_CO_TRY(write_identity(store->options_.disk, store->dir(), store->identity_));
  }
  FF_CO_TRY(co_await store->recover(std::move(undo)).shielded());
  if (store->acked_ != nullptr) {  // what was lost is recorded
    store->acked_->begin(store->metadata_->position());
    store->metadata_->report_to(*store->acked_);
  }
  for (auto& [id, target] : store->targets_) {
    target.chunks.each([&bytes = target.bytes](const ChunkId&, uint64_t length, const auto&, bool) {
      bytes += length;
    });
  }
  store->committer_ = std::make_unique<Committer>(*store->metadata_, store->options_.loop,
                                                  store->queue_, store->options_.commit_on);
  std::vector<TargetId> removed;
  for (const auto& [id, target] : store->targets_) {
    if (target.record.removing) removed.push_back(id);
  }
  for (const TargetId id : removed) {
    FF_CO_TRY(co_await store->remove_chunks(id).shielded());
  }
  store->gate_.spawn(store->run_sync_passes());
  store->checkpoints_.spawn(store->run_checkpoints());
  co_return store;
}

Result<ChunkStore::UndoRows> ChunkStore::load() {
  FF_TRY(blocks_.open());
  UndoRows undo;
  std::string disk;
  FF_TRY(metadata_->scan([&](RowKind table, std::string_view key, std::string_view body) {
    switch (table) {
      case RowKind::disk: disk = body; return Result<void>();
      case RowKind::target: return load_target(key, body);
      case RowKind::chunk: return load_chunk(key, body);
      case RowKind::damage: return load_damage(key);
      case RowKind::logged: return load_logged_unit(key, body);
      case RowKind::owner_record: owner_record_ = body; return Result<void>();
      case RowKind::result: return load_channel_result(key, body);
      case RowKind::undo: return load_undo(key, body, undo);
    }
    return Result<void>(bad_row("row of an unknown kind"));
  }));
  FF_TRY(check_disk_row(disk));
  return undo;
}

Error ChunkStore::bad_row(std::string_view what) const {
  return fail(Errc::corrupt, "{}: {}", metadata_path(dir()), what);
}

std::string ChunkStore::disk_row(bool closed) const {
  return make_disk_row(closed, identity_.disk, options_.boot_id);
}

Result<void> ChunkStore::check_disk_row(const std::string& row) {
  const std::string ours = disk_row(false);
  const size_t ids = 2 + identity_.disk.size();
  if (row.size() < ids || row.substr(1, ids - 1) != ours.substr(1, ids - 1)) {
    return Error{Errc::corrupt,
                 fmt::format("{}: this is not the metadata of disk {}", metadata_path(dir()),
                             identity_.disk),
                 "Restore files that belong together, or empty the folder."};
  }
  if (row[0] == kClosed) {
    last_shutdown_ = ShutdownKind::clean;
  } else {
    last_shutdown_ = row.substr(ids) == options_.boot_id ? ShutdownKind::process_died
                                                         : ShutdownKind::machine_restarted;
  }
  return {};
}

// Finds out what the disk has lost since an earlier process of this boot acknowledged changes.
// `format1`: the end of its SQLite log, if the disk has just been upgraded.
void ChunkStore::compare_with_acked(const std::optional<db::LogPosition>& format1) {
  if (acked_ == nullptr) return;
  const uint64_t now = metadata_->position();
  if (acked_->found() == AckedPosition::State::failed) after_failure_ = true;
  if (format1 ? acked_->is_behind(*format1) : acked_->is_behind(now)) {
    last_shutdown_ = ShutdownKind::writes_lost;
    log_error("a disk has lost acknowledged changes although the machine was not restarted",
              {{"dir", dir()}, {"disk", identity_.disk}});
  }
}

Result<void> ChunkStore::load_target(std::string_view key, std::string_view body) {
  const auto numbers = numbers_of(key, 1);
  if (!numbers) return bad_row("invalid key of a target row");
  FF_TRY(add_target((*numbers)[0]).record, decode_target(body));
  return {};
}

Result<void> ChunkStore::load_chunk(std::string_view key, std::string_view body) {
  const auto numbers = chunk_of(key);
  const auto target = numbers ? targets_.find(numbers->first) : targets_.end();
  if (target == targets_.end()) return bad_row("row of a chunk without a target");
  const ChunkId id = numbers->second;
  auto record = decode_record(body);
  if (!record) return std::move(record).error().with_context(metadata_path(dir()) + ": ");
  ChunkTable& chunks = target->second.chunks;
  if (chunks.can_rest(*record)) return chunks.load_resting(id, *record);
  FF_TRY(auto versions, load_versions(*record, nullptr));
  update_tombstones(target->second, id, versions);
  if (versions.pending) {
    const RequestId& request_id = versions.pending->request_id;
    keep_newest(target->second.channels, {request_id.client, request_id.channel},
                {.sequence = request_id.sequence,
                 .id = id,
                 .state = versions.pending->version.state,
                 .committed = false,
                 .used_ns = options_.loop.clock().wall_ns()});
  }
  chunks.find_or_create(id).versions = std::move(versions);
  return {};
}

// The rows of chunks precede those of damage.
Result<void> ChunkStore::load_damage(std::string_view key) {
  const auto numbers = numbers_of(key, 3);
  if (!numbers) return bad_row("invalid key of a damage row");
  const auto target = targets_.find((*numbers)[0]);
  const ChunkId id{.inode = (*numbers)[1], .index = (*numbers)[2]};
  if (target == targets_.end()) return {};
  const Chunk* const chunk = target->second.chunks.find(id);
  if (chunk == nullptr) return {};
  target->second.damaged.insert(id);
  mark_suspect(chunk->versions);
  return {};
}

// The rows of chunks precede those of their units in the log.
Result<void> ChunkStore::load_logged_unit(std::string_view key, std::string_view body) {
  const auto numbers = numbers_of(key, 4);
  if (!numbers || (*numbers)[3] >= kChecksumUnitsMax) return bad_row("invalid key of a unit");
  const auto target = targets_.find((*numbers)[0]);
  const ChunkId id{.inode = (*numbers)[1], .index = (*numbers)[2]};
  Chunk* const chunk = target == targets_.end() ? nullptr : target->second.chunks.find(id);
  if (chunk == nullptr) return bad_row("row of a unit without a chunk");
  auto unit = decode_logged(static_cast<uint8_t>((*numbers)[3]), body);
  if (!unit) return std::move(unit).error().with_context(metadata_path(dir()) + ": ");
  auto loaded = load_logged(*unit, chunk->versions);
  if (!loaded) return std::move(loaded).error().with_context(metadata_path(dir()) + ": ");
  return {};
}

Result<void> ChunkStore::load_channel_result(std::string_view key, std::string_view body) {
  const auto numbers = numbers_of(key, 3);
  const auto target = numbers ? targets_.find((*numbers)[0]) : targets_.end();
  if (target == targets_.end()) return bad_row("row of a channel without a target");
  const Channel channel((*numbers)[1], (*numbers)[2]);
  FF_TRY(const ChannelResult result, decode_result(body));
  keep_newest(target->second.channels, channel, result);
  return {};
}

Result<void> ChunkStore::load_undo(std::string_view key, std::string_view body, UndoRows& undo) {
  const auto numbers = numbers_of(key, 4);
  if (!numbers) return bad_row("invalid key of an undo row");
  const ChunkId id{.inode = (*numbers)[2], .index = (*numbers)[3]};
  undo[{(*numbers)[1], id}].emplace_back(body);
  return {};
}

// Registers the blocks of a version, except those that versions in `shared` have already.
Result<ChunkVersion> ChunkStore::load_version(const VersionRecord& record,
                                              const std::vector<const ChunkVersion*>& shared) {
  ChunkVersion version{.state = record.state,
                       .block = {},
                       .overlay_block = {},
                       .overlays = record.overlays,
                       .logged = record.logged};
  const auto take = [&](BlockLocation location, uint64_t filled,
                        std::optional<SizeClass> overlays_of) -> Result<BlockRef> {
    for (const ChunkVersion* const other : shared) {
      for (const BlockRef& block : {other->block, other->overlay_block}) {
        if (block.location() != location) continue;
        blocks_.update_filled(*block, filled, overlays_of);
        return block;
      }
    }
    return blocks_.load_block(location, filled, overlays_of);
  };
  if (record.block) {
    FF_TRY(version.block, take(*record.block, filled_by(record), std::nullopt));
  }
  if (record.overlay_block) {
    FF_TRY(version.overlay_block,
           take(*record.overlay_block, slots_of(record), record.block->size_class));
  }
  return version;
}

Result<ChunkVersions> ChunkStore::load_versions(const ChunkRecord& record,
                                                const ChunkVersions* current) {
  std::vector<const ChunkVersion*> shared;
  if (current != nullptr) shared.push_back(&current->committed);
  if (current != nullptr && current->pending) shared.push_back(&current->pending->version);
  ChunkVersions versions;
  FF_TRY(versions.committed, load_version(record.committed, shared));
  versions.chain_version = record.chain_version;
  versions.removed_ns = record.removed_ns;
  if (!record.pending) return versions;
  shared.push_back(&versions.committed);
  FF_TRY(auto version, load_version(record.pending->version, shared));
  versions.pending = std::make_unique<ChunkVersions::Pending>();
  versions.pending->version = std::move(version);
  versions.pending->request_id = record.pending->request_id;
  return versions;
}

// Whether the data matches the checksum of the whole version. Matching CRCs of all units are not
// enough: the last write may be lost together with its CRCs, which leaves older data with matching
// CRCs.
Task<Result<bool>> ChunkStore::verify_version(ChunkVersion version) {
  const AlignedBuffer memory(std::min(kCheckBytes, std::max(version.state.length, uint64_t{1})));
  uint32_t checksum = 0;
  for (uint64_t at = 0; at < version.state.length; at += kCheckBytes) {
    const ByteSpan bytes = memory.span().first(std::min(kCheckBytes, version.state.length - at));
    const auto read = co_await read_version(version, at, bytes, false);
    if (!read && read.error().code != Errc::corrupt) co_return read.error();
    if (!read) co_return false;
    checksum = simd::crc32c(bytes, checksum);
  }
  co_return checksum == version.state.checksum;
}

// Considers only these versions: a newer version that was rolled back may have gone beyond the end
// of the files.
void ChunkStore::reassess_blocks(const Target& target, ChunkId id, const ChunkVersions& versions) {
  const ChunkRecord record = record_of(versions);
  std::vector<std::pair<const ChunkVersion*, const VersionRecord*>> stored_versions{
      {&versions.committed, &record.committed}};
  if (versions.pending)
    stored_versions.emplace_back(&versions.pending->version, &record.pending->version);
  for (const auto& [version, row] : stored_versions) {
    if (version->block) blocks_.clear_suspect(*version->block);
    if (version->overlay_block) blocks_.clear_suspect(*version->overlay_block);
  }
  for (const auto& [version, row] : stored_versions) {
    if (version->block) blocks_.update_filled(*version->block, filled_by(*row), std::nullopt);
    if (version->overlay_block)
      blocks_.update_filled(*version->overlay_block, slots_of(*row), row->block->size_class);
  }
  if (target.damaged.contains(id)) mark_suspect(versions);
}

// Rolls the chunk back as far as necessary; returns whether it changed. `undo`: row bodies, oldest
// first.
Task<Result<bool>> ChunkStore::recover_chunk(Target& target, ChunkId id,
                                             const std::vector<std::string>& undo) {
  bool changed = false;
  for (auto older = undo.rbegin();; ++older) {
    Chunk* const found = target.chunks.find(id);
    if (found == nullptr) co_return changed;
    ChunkVersions& versions = found->versions;
    FF_CO_TRY(const bool sound, co_await verify_version(versions.committed));
    bool pending_sound = true;
    if (sound && versions.pending) {
      FF_CO_TRY(pending_sound, co_await verify_version(versions.pending->version));
    }
    if (sound && !pending_sound && versions.committed.state.version > 0) {
      versions.pending.reset();
      update_tombstones(target, id, versions);
      pending_sound = changed = true;
    }
    if (sound && pending_sound) {
      if (changed) reassess_blocks(target, id, versions);
      co_return changed;
    }
    // Even the durable version does not match: damage that no crash explains.
    if (older == undo.rend()) {
      mark_suspect(versions);
      co_return changed;
    }
    changed = true;
    if (older->empty()) {
      target.chunks.erase(id);
      continue;
    }
    FF_CO_TRY(const ChunkRecord record, decode_record(*older));
    FF_CO_TRY(versions, load_versions(record, &versions));
    update_tombstones(target, id, versions);
  }
}

// Drops results of updates that were rolled back; their clients send them again.
void ChunkStore::roll_back_results(TargetId id, Target& target, ChunkId chunk,
                                   RowChanges& changes) {
  const ChunkState left = target.chunks.state(chunk).value_or(ChunkState());
  const uint64_t committed = left.committed.version;
  for (auto at = target.channels.begin(); at != target.channels.end();) {
    const auto [client, channel] = at->first;
    ChannelResult& result = at->second;
    const uint64_t version = result.state.version;
    if (result.id != chunk || version <= committed) {
      ++at;
      continue;
    }
    const std::string key = key_of(RowKind::result, {id, client, channel});
    if (left.pending && left.pending->state.version == version) {
      result.committed = false;
      changes.push_back({.key = key, .body = encode(result)});
      ++at;
    } else {
      changes.push_back({.key = key, .body = std::nullopt});
      at = target.channels.erase(at);
    }
  }
}

// Detects block files that were swapped: files of the right size may come from another disk or an
// older copy, or be empty. Reads one unit of a few unchanged chunks per size class. When several do
// not match, all chunks of the class are marked suspect.
Task<Result<void>> ChunkStore::detect_replaced_files() {
  // Calls `visit` for each chunk of a block that is not known to be lost.
  const auto each = [&](const auto& visit) {
    for (auto& [id, target] : targets_) {
      target.chunks.each([&](const ChunkId& chunk, uint64_t, const auto& block, bool suspect) {
        if (block && !suspect) visit(target, chunk, block->size_class);
      });
    }
  };
  using Found = std::vector<std::pair<Target*, ChunkId>>;
  std::array<uint64_t, kSizeClasses> sound{};
  each([&](Target&, const ChunkId&, SizeClass size_class) { ++sound[size_class]; });
  std::array<uint64_t, kSizeClasses> seen{};
  std::array<Found, kSizeClasses> samples;
  each([&](Target& target, const ChunkId& id, SizeClass size_class) {
    const uint64_t step = std::max<uint64_t>(1, sound[size_class] / kSamples);
    if (seen[size_class]++ % step == 0) samples[size_class].emplace_back(&target, id);
  });
  std::array<bool, kSizeClasses> strange{};
  for (SizeClass size_class = 0; size_class < kSizeClasses; ++size_class) {
    uint64_t bad = 0;
    for (const auto& [target, id] : samples[size_class]) {
      const ChunkVersion version = target->chunks.find(id)->versions.committed;
      const AlignedBuffer memory(version.unit_bytes());
      const auto read =
          co_await read_version(version, 0, memory.span().first(version.unit_length(0)), false);
      if (read) continue;
      if (read.error().code != Errc::corrupt) co_return read.error();
      ++bad;
      version.set_suspect(true);
    }
    strange[size_class] = bad >= kSamplesBad;
    if (!strange[size_class]) continue;
    log_error("a block file has other content than expected: all its chunks will be verified",
              {{"file", blocks_.data_path(size_class)},
               {"sampled", samples[size_class].size()},
               {"bad", bad}});
  }
  Found doubtful;
  each([&](Target& target, const ChunkId& id, SizeClass size_class) {
    if (strange[size_class]) doubtful.emplace_back(&target, id);
  });
  for (const auto& [target, id] : doubtful) mark_suspect(target->chunks.find(id)->versions);
  co_return Result<void>();
}

// Records suspect chunks as damaged, so that they need not be detected again.
void ChunkStore::record_damage(RowChanges& changes) {
  for (auto& [id, target] : targets_) {
    if (target.record.removing) continue;
    std::erase_if(target.damaged, [&](const ChunkId gone) {
      const Chunk* const found = target.chunks.find(gone);
      if (found != nullptr && found->versions.suspect()) return false;
      changes.push_back(damage_row(id, gone, false));
      return true;
    });
    for (const auto& [chunk_id, chunk] : target.chunks.used()) {
      if (!chunk.versions.suspect() || !target.damaged.insert(chunk_id).second) continue;
      ++damaged_at_open_;
      changes.push_back(damage_row(id, chunk_id, true));
    }
  }
  if (damaged_at_open_ == 0) return;
  log_error("a disk lacks data that its metadata references",
            {{"dir", dir()}, {"chunks", damaged_at_open_}});
}

// Reads the data and CRCs of a version, and writes them to the same places, except those in the
// log, which move to the block.
Task<Result<void>> ChunkStore::write_again(const ChunkVersion& version) {
  if (version.state.length == 0) co_return Result<void>();
  const uint64_t unit_bytes = version.unit_bytes();
  for (const Extent& extent : extents(version, 0, version.units())) {
    if (extent.place == UnitPlace::log) continue;
    const BlockRef block = block_of(version, extent);
    const AlignedBuffer bytes(extent.count * unit_bytes);
    FF_CO_TRY(co_await blocks_.read(block, extent.at * unit_bytes, bytes.span()));
    FF_CO_TRY(co_await blocks_.write(block, extent.at * unit_bytes, bytes.span()));
  }
  FF_CO_TRY(const CrcsRef crcs, co_await blocks_.crcs(version.block));
  co_return co_await blocks_.store_crcs(version.block, crcs, 0, version.units());
}

// Each chunk with undo rows may have data that is not durable (chunk_store.cc). Metadata::start()
// writes the rows again.
Task<Result<void>> ChunkStore::write_all_again(const UndoRows& undo) {
  for (const auto& [which, rows] : undo) {
    const auto target = targets_.find(which.first);
    if (target == targets_.end()) continue;
    const Chunk* const chunk = target->second.chunks.find(which.second);
    if (chunk == nullptr || chunk->versions.suspect()) continue;
    FF_CO_TRY(co_await write_again(chunk->versions.committed));
    if (!chunk->versions.pending) continue;
    FF_CO_TRY(co_await write_again(chunk->versions.pending->version));
  }
  co_return Result<void>();
}

Task<Result<void>> ChunkStore::recover(UndoRows undo) {
  RowChanges changes;
  if (after_failure_) FF_CO_TRY(metadata_->write_again());
  FF_CO_TRY(metadata_->flush());
  for (const auto& [which, rows] : undo) {
    const auto target = targets_.find(which.first);
    if (target == targets_.end()) continue;
    const ChunkId id = which.second;
    FF_CO_TRY(const bool changed, co_await recover_chunk(target->second, id, rows));
    if (!changed) continue;
    ++rolled_back_chunks_;
    roll_back_results(which.first, target->second, id, changes);
    RowChange row{.key = key_of(RowKind::chunk, {which.first, id.inode, id.index}),
                  .body = std::nullopt};
    const Chunk* const left = target->second.chunks.find(id);
    if (left != nullptr) row.body = row_of(left->versions);
    changes.push_back(std::move(row));
  }
  if (after_failure_) FF_CO_TRY(co_await write_all_again(undo));
  if (!undo.empty()) {
    FF_CO_TRY(co_await blocks_.sync_all());
  }
  // Nothing can be rolled back any more, so that blocks may be overwritten.
  RowChanges first;
  FF_CO_TRY(const auto moved, co_await move_found_log(first));
  FF_CO_TRY(co_await detect_replaced_files());
  record_damage(changes);
  changes.push_back({.key = key_of(RowKind::undo, {0}),
                     .body = std::nullopt,
                     .end = key_of(RowKind::undo, {UINT64_MAX})});
  changes.push_back({.key = key_of(RowKind::logged, {0}),
                     .body = std::nullopt,
                     .end = key_of(RowKind::logged, {UINT64_MAX})});
  // Stored with the boot id: the next open on this boot sees a process crash only.
  changes.push_back({.key = key_of(RowKind::disk, {}), .body = disk_row(false)});
  // On the same boot nothing is rolled back unless the disk lost acknowledged writes.
  for (auto& [id, target] : targets_) {
    const bool lost = last_shutdown_ == ShutdownKind::machine_restarted ||
                      last_shutdown_ == ShutdownKind::writes_lost || after_failure_;
    if (!lost && rolled_back_chunks_ == 0) break;
    target.record.power_lost = true;
    changes.push_back({.key = key_of(RowKind::target, {id}), .body = encode(target.record)});
  }
  FF_CO_TRY(metadata_->start(changes, first));
  blocks_.reclaim(blocks_.end_epoch());
  blocks_.punch_unused_groups();
  co_return Result<void>();
}

}  // namespace ff::chunk
