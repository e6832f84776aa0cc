// store_open.cc: a disk as it is made, and as it is found: closed, or after the process died, or
// after the machine did.
//
// What was synced is there, that is SQLite's promise and the disk's. What was not is settled here,
// chunk by chunk: each that has undo rows (store.cc) is read, and if its bytes are not what its row
// says it goes back to the newest undo row whose bytes are.
#include <algorithm>
#include <array>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"
#include "storage/chunk/aligned_bytes.h"
#include "storage/chunk/store.h"

namespace ff::chunk {
namespace {

constexpr uint64_t kCheckBytes = kMiB;  // read at a time when a chunk is checked

// Chunks of each class that are looked at when a disk is opened, and how many of them are not sound
// in a file that is not what it was: one alone is a damaged chunk.
constexpr uint64_t kSamples = 8;
constexpr uint64_t kSamplesBad = 2;

Result<Metadata> open_metadata(const StoreOptions& options) {
  return Metadata::open(options.disk, metadata_path(options.dir), options.loop.clock(),
                        options.rng);
}

constexpr char kClosed = 'c';
constexpr char kOpen = 'o';

// u8 'c' or 'o', the length of the disk's id, that id, the boot id.
std::string make_disk_row(bool closed, const std::string& disk, const std::string& boot) {
  std::string row(1, closed ? kClosed : kOpen);
  row += static_cast<char>(disk.size());
  row += disk;
  row += boot;
  return row;
}

// Granules that `of` has ever been written to, as far as a version tells.
uint64_t filled_by(const ImageRecord& image) {
  return image.block ? align_up(image.state.length, granule_bytes(image.block->of)) /
                           granule_bytes(image.block->of)
                     : 0;
}

uint64_t slots_of(const ImageRecord& image) {
  uint64_t slots = 0;
  for (const Piece& piece : image.pieces) slots = std::max<uint64_t>(slots, piece.slot + 1);
  return slots;
}

}  // namespace

// A folder with anything but what an interrupted create() leaves is somebody's.
Result<void> Store::check_blank(const StoreOptions& options) {
  FF_TRY(const auto entries, options.disk.list(options.dir));
  for (const io::DirEntry& entry : entries) {
    const bool own = entry.name == "lock" || entry.name == "lost+found" ||
                     entry.name.starts_with("ff-disk") || entry.name.starts_with("chunks.sqlite");
    if (own) continue;
    return Error{Errc::refused,
                 fmt::format("{}: is not empty: there is {}", options.dir, printable(entry.name)),
                 "Give an empty folder, or move what is there away."};
  }
  return {};
}

Result<void> Store::create(const StoreOptions& options, const Identity& identity) {
  FF_TRY(io::make_dirs(options.disk, options.dir));
  FF_TRY(const bool is_disk, io::exists(options.disk, io::join(options.dir, "ff-disk")));
  if (!is_disk) FF_TRY(check_blank(options));  // nothing is left in what is somebody's
  FF_TRY(const auto lock, lock_disk(options.disk, options.dir));
  auto found = read_identity(options.disk, options.dir);
  if (found) {
    return Error{Errc::exists,
                 fmt::format("{}: is disk {} of cluster {} already", options.dir, found->disk,
                             found->cluster),
                 "Give another folder, or use this disk as it is."};
  }
  if (found.error().code != Errc::not_found) return std::move(found).error();
  {
    // What an interrupted create() left is used; what holds targets has lost its identity.
    FF_TRY(auto metadata, open_metadata(options));
    bool targets = false;
    FF_TRY(metadata.scan([&](Table table, std::string_view, std::string_view) {
      targets |= table == Table::target;
      return Result<void>();
    }));
    if (targets) {
      return Error{Errc::refused,
                   fmt::format("{}: there are chunks here, but ff-disk is missing", options.dir),
                   "Restore the file ff-disk, or empty the folder when its data is not needed."};
    }
    RowChanges changes;
    changes.push_back(
        {.key = key_of(Table::disk, {}), .body = make_disk_row(true, identity.disk, options.boot)});
    FF_TRY(metadata.apply(changes));
    FF_TRY(metadata.flush());
  }
  FF_TRY(options.disk.sync_dir(options.dir));
  return write_identity(options.disk, options.dir, identity);
}

Task<Result<std::unique_ptr<Store>>> Store::open(StoreOptions options) {
  // The identity before the lock: a folder that is none of ours is not written to.
  FF_CO_TRY(auto identity, read_identity(options.disk, options.dir));
  FF_CO_TRY(check_cluster(identity, options.cluster, options.dir));
  FF_CO_TRY(auto lock, lock_disk(options.disk, options.dir));
  const std::string path = metadata_path(options.dir);
  FF_CO_TRY(const bool there, io::exists(options.disk, path));
  if (!there) {
    co_return Error{Errc::corrupt,
                    fmt::format("{}: is missing, and with it where each chunk lies", path),
                    "Put it back, or replace the disk's targets: ff admin replace-target."};
  }
  FF_CO_TRY(auto metadata, open_metadata(options));
  std::unique_ptr<Store> store(
      new Store(std::move(options), std::move(identity), std::move(lock), std::move(metadata)));
  FF_CO_TRY(auto undo, store->load());
  auto recovering = store->recover(std::move(undo));
  FF_CO_TRY(co_await std::move(recovering).shielded());
  for (auto& [id, target] : store->targets_) {
    for (const auto& [chunk_id, chunk] : target.chunks) {
      target.bytes += chunk.versions.committed.state.length;
    }
  }
  store->committer_ = std::make_unique<Committer>(store->metadata_, store->options_.loop,
                                                  store->options_.commit_on);
  std::vector<TargetId> removed;
  for (const auto& [id, target] : store->targets_) {
    if (target.record.removing) removed.push_back(id);
  }
  for (const TargetId id : removed) {
    auto removing = store->remove_chunks(id);
    FF_CO_TRY(co_await std::move(removing).shielded());
  }
  store->gate_.spawn(store->run_passes());
  co_return store;
}

Result<Store::UndoRows> Store::load() {
  FF_TRY(blocks_.open());
  UndoRows undo;
  std::string disk;
  FF_TRY(metadata_.scan([&](Table table, std::string_view key, std::string_view body) {
    switch (table) {
      case Table::disk: disk = body; return Result<void>();
      case Table::target: return load_target(key, body);
      case Table::chunk: return load_chunk(key, body);
      case Table::damage: return load_damage(key);
      case Table::note: note_ = body; return Result<void>();
      case Table::result: return load_channel(key, body);
      case Table::undo: return load_undo(key, body, undo);
    }
    return Result<void>(bad_row("a row of no table"));
  }));
  FF_TRY(check_disk_row(disk));
  return undo;
}

Error Store::bad_row(std::string_view what) const {
  return fail(Errc::corrupt, "{}: {}", metadata_.path(), what);
}

std::string Store::disk_row(bool closed) const {
  return make_disk_row(closed, identity_.disk, options_.boot);
}

Result<void> Store::check_disk_row(const std::string& row) {
  const std::string ours = disk_row(false);
  const size_t ids = 2 + identity_.disk.size();
  if (row.size() < ids || row.substr(1, ids - 1) != ours.substr(1, ids - 1)) {
    return Error{
        Errc::corrupt,
        fmt::format("{}: is not the metadata of disk {}", metadata_.path(), identity_.disk),
        "Put back the files that belong together, or empty the folder."};
  }
  if (row[0] == kClosed) {
    last_end_ = LastEnd::closed;
  } else {
    last_end_ = row.substr(ids) == options_.boot ? LastEnd::stopped : LastEnd::other_boot;
  }
  return {};
}

Result<void> Store::load_target(std::string_view key, std::string_view body) {
  const auto numbers = numbers_of(key, 1);
  if (!numbers) return bad_row("a target's key");
  FF_TRY(targets_[(*numbers)[0]].record, decode_target(body));
  return {};
}

Result<void> Store::load_chunk(std::string_view key, std::string_view body) {
  const auto numbers = numbers_of(key, 3);
  const auto target = numbers ? targets_.find((*numbers)[0]) : targets_.end();
  if (target == targets_.end()) return bad_row("a chunk of no target");
  const ChunkId id{.inode = (*numbers)[1], .index = (*numbers)[2]};
  auto record = decode_record(body);
  if (!record) return std::move(record).error().within(metadata_.path() + ": ");
  FF_TRY(auto versions, adopt(*record, nullptr));
  note_tombstone(target->second, id, versions);
  auto& chunks = target->second.chunks;
  chunks.emplace_hint(chunks.end(), id, Chunk{.versions = std::move(versions)});
  return {};
}

// Rows of chunks come before those of damage.
Result<void> Store::load_damage(std::string_view key) {
  const auto numbers = numbers_of(key, 3);
  if (!numbers) return bad_row("the key of a damaged chunk");
  const auto target = targets_.find((*numbers)[0]);
  const ChunkId id{.inode = (*numbers)[1], .index = (*numbers)[2]};
  if (target == targets_.end() || !target->second.chunks.contains(id)) return {};
  target->second.damaged.insert(id);
  doubt(target->second.chunks.at(id).versions);
  return {};
}

Result<void> Store::load_channel(std::string_view key, std::string_view body) {
  const auto numbers = numbers_of(key, 3);
  const auto target = numbers ? targets_.find((*numbers)[0]) : targets_.end();
  if (target == targets_.end()) return bad_row("a channel of no target");
  const Channel channel((*numbers)[1], (*numbers)[2]);
  FF_TRY(target->second.channels[channel], decode_result(body));
  return {};
}

Result<void> Store::load_undo(std::string_view key, std::string_view body, UndoRows& undo) {
  const auto numbers = numbers_of(key, 4);
  if (!numbers) return bad_row("an undo row's key");
  const ChunkId id{.inode = (*numbers)[2], .index = (*numbers)[3]};
  undo[{(*numbers)[1], id}].emplace_back(body);
  return {};
}

// Takes the blocks of a version, but for those that the versions in `shared` have already.
Result<Image> Store::adopt(const ImageRecord& record, const std::vector<const Image*>& shared) {
  Image image{.state = record.state, .block = {}, .piece_block = {}, .pieces = record.pieces};
  const auto take = [&](Place place, uint64_t filled,
                        std::optional<Class> pieces_of) -> Result<BlockRef> {
    for (const Image* const other : shared) {
      for (const BlockRef& block : {other->block, other->piece_block}) {
        if (block.place() != place) continue;
        blocks_.adopted(*block, filled, pieces_of);
        return block;
      }
    }
    return blocks_.adopt(place, filled, pieces_of);
  };
  if (record.block) {
    FF_TRY(image.block, take(*record.block, filled_by(record), std::nullopt));
  }
  if (record.piece_block) {
    FF_TRY(image.piece_block, take(*record.piece_block, slots_of(record), record.block->of));
  }
  return image;
}

Result<Versions> Store::adopt(const Record& record, const Versions* current) {
  std::vector<const Image*> shared;
  if (current != nullptr) shared.push_back(&current->committed);
  if (current != nullptr && current->pending) shared.push_back(&current->pending->image);
  Versions versions;
  FF_TRY(versions.committed, adopt(record.committed, shared));
  versions.chain_version = record.chain_version;
  versions.removed_ns = record.removed_ns;
  if (!record.pending) return versions;
  shared.push_back(&versions.committed);
  FF_TRY(auto image, adopt(record.pending->image, shared));
  versions.pending = std::make_unique<Versions::Pending>();
  versions.pending->image = std::move(image);
  versions.pending->writer = record.pending->writer;
  return versions;
}

// Whether the bytes are those of the version. Granules that match their CRCs are not enough: what
// was written last may be lost together with its CRCs, and what stood there before be found with
// its own.
Task<Result<bool>> Store::intact(Image image) {
  const AlignedBytes memory(std::min(kCheckBytes, std::max(image.state.length, uint64_t{1})));
  uint32_t checksum = 0;
  for (uint64_t at = 0; at < image.state.length; at += kCheckBytes) {
    const ByteSpan bytes = memory.span().first(std::min(kCheckBytes, image.state.length - at));
    const auto read = co_await read_image(image, at, bytes, false);
    if (!read && read.error().code != Errc::corrupt) co_return read.error();
    if (!read) co_return false;
    checksum = simd::crc32c(bytes, checksum);
  }
  co_return checksum == image.state.checksum;
}

// By these versions alone: a newer one, which is gone, may have gone past the ends of the files.
void Store::judge_blocks(const Target& target, ChunkId id, const Versions& versions) {
  const Record record = record_of(versions);
  std::vector<std::pair<const Image*, const ImageRecord*>> images{
      {&versions.committed, &record.committed}};
  if (versions.pending) images.emplace_back(&versions.pending->image, &record.pending->image);
  for (const auto& [image, of] : images) {
    if (image->block) blocks_.trust(*image->block);
    if (image->piece_block) blocks_.trust(*image->piece_block);
  }
  for (const auto& [image, of] : images) {
    if (image->block) blocks_.adopted(*image->block, filled_by(*of), std::nullopt);
    if (image->piece_block) blocks_.adopted(*image->piece_block, slots_of(*of), of->block->of);
  }
  if (target.damaged.contains(id)) doubt(versions);
}

// Takes the chunk back as far as it must be; whether it was. `undo`: bodies of rows, oldest first.
Task<Result<bool>> Store::settle_chunk(Target& target, ChunkId id,
                                       const std::vector<std::string>& undo) {
  bool changed = false;
  for (auto older = undo.rbegin();; ++older) {
    const auto found = target.chunks.find(id);
    if (found == target.chunks.end()) co_return changed;
    Versions& versions = found->second.versions;
    FF_CO_TRY(const bool sound, co_await intact(versions.committed));
    bool pending_sound = true;
    if (sound && versions.pending) {
      FF_CO_TRY(pending_sound, co_await intact(versions.pending->image));
    }
    if (sound && !pending_sound && versions.committed.state.version > 0) {
      versions.pending.reset();
      note_tombstone(target, id, versions);
      pending_sound = changed = true;
    }
    if (sound && pending_sound) {
      if (changed) judge_blocks(target, id, versions);
      co_return changed;
    }
    // Even what was durable does not hold: damage that is not ours.
    if (older == undo.rend()) {
      doubt(versions);
      co_return changed;
    }
    changed = true;
    if (older->empty()) {
      target.chunks.erase(found);
      continue;
    }
    FF_CO_TRY(const Record record, decode_record(*older));
    FF_CO_TRY(versions, adopt(record, &versions));
    note_tombstone(target, id, versions);
  }
}

// Results of updates that the chunk no longer has: their writers send them again.
void Store::take_back_results(TargetId id, Target& target, ChunkId chunk, RowChanges& changes) {
  const auto found = target.chunks.find(chunk);
  const Versions none;
  const Versions& left = found == target.chunks.end() ? none : found->second.versions;
  const uint64_t committed = left.committed.state.version;
  for (auto at = target.channels.begin(); at != target.channels.end();) {
    const auto [client, channel] = at->first;
    ChannelResult& result = at->second;
    const uint64_t version = result.image.version;
    if (result.id != chunk || version <= committed) {
      ++at;
      continue;
    }
    const std::string key = key_of(Table::result, {id, client, channel});
    if (left.pending && left.pending->image.state.version == version) {
      result.committed = false;
      changes.push_back({.key = key, .body = encode(result)});
      ++at;
    } else {
      changes.push_back({.key = key, .body = std::nullopt});
      at = target.channels.erase(at);
    }
  }
}

// What a file holds is what tells it from others: files of the right size may have been put there
// from another disk or another day, or lie empty where there was content. Of each class a few
// chunks that do not change are read, a granule of each; where several do not hold, all of the
// class are to be looked at.
Task<Result<void>> Store::doubt_files() {
  const auto each = [&](const auto& look) {
    for (auto& [id, target] : targets_) {
      for (auto& [chunk_id, chunk] : target.chunks) {
        const Image& image = chunk.versions.committed;
        if (image.block) look(image.block->place.of, chunk.versions);
      }
    }
  };
  std::array<uint64_t, kClasses> sound{};
  each([&](Class of, const Versions& versions) { sound[of] += versions.doubted() ? 0 : 1; });
  std::array<uint64_t, kClasses> seen{};
  std::array<std::vector<Image>, kClasses> samples;
  each([&](Class of, const Versions& versions) {
    const uint64_t step = std::max<uint64_t>(1, sound[of] / kSamples);
    if (versions.doubted() || seen[of]++ % step != 0) return;
    samples[of].push_back(versions.committed);
  });
  std::array<bool, kClasses> strange{};
  for (Class of = 0; of < kClasses; ++of) {
    uint64_t bad = 0;
    for (const Image& image : samples[of]) {
      const AlignedBytes memory(image.granule());
      const auto read =
          co_await read_image(image, 0, memory.span().first(image.bytes_in(0)), false);
      if (read) continue;
      if (read.error().code != Errc::corrupt) co_return read.error();
      ++bad;
      image.set_doubted(true);
    }
    strange[of] = bad >= kSamplesBad;
    if (!strange[of]) continue;
    log_error("a block file is not what it was: all its chunks are to be looked at",
              {{"file", blocks_.data_path(of)}, {"looked_at", samples[of].size()}, {"bad", bad}});
  }
  each([&](Class of, const Versions& versions) {
    if (strange[of]) doubt(versions);
  });
  co_return Result<void>();
}

// Finds what is in doubt, and has it kept as such: nobody shall have to find it again.
void Store::note_damage(RowChanges& changes) {
  for (auto& [id, target] : targets_) {
    if (target.record.removing) continue;
    std::erase_if(target.damaged, [&](const ChunkId gone) {
      const auto found = target.chunks.find(gone);
      if (found != target.chunks.end() && found->second.versions.doubted()) return false;
      changes.push_back(damage_row(id, gone, false));
      return true;
    });
    for (const auto& [chunk_id, chunk] : target.chunks) {
      if (!chunk.versions.doubted() || !target.damaged.insert(chunk_id).second) continue;
      ++found_damaged_;
      changes.push_back(damage_row(id, chunk_id, true));
    }
  }
  if (found_damaged_ == 0) return;
  log_error("a disk does not have what its index says",
            {{"dir", dir()}, {"chunks", found_damaged_}});
}

Task<Result<void>> Store::recover(UndoRows undo) {
  RowChanges changes;
  for (const auto& [which, rows] : undo) {
    const auto target = targets_.find(which.first);
    if (target == targets_.end()) continue;
    const ChunkId id = which.second;
    auto settling = settle_chunk(target->second, id, rows);
    FF_CO_TRY(const bool changed, co_await std::move(settling));
    if (!changed) continue;
    ++rolled_back_;
    take_back_results(which.first, target->second, id, changes);
    RowChange row{.key = key_of(Table::chunk, {which.first, id.inode, id.index}),
                  .body = std::nullopt};
    const auto left = target->second.chunks.find(id);
    if (left != target->second.chunks.end()) row.body = row_of(left->second.versions);
    changes.push_back(std::move(row));
  }
  if (!undo.empty()) {
    FF_CO_TRY(co_await blocks_.sync_all());
  }
  FF_CO_TRY(co_await doubt_files());
  note_damage(changes);
  changes.push_back({.key = key_of(Table::undo, {0}),
                     .body = std::nullopt,
                     .end = key_of(Table::undo, {UINT64_MAX})});
  // Together with the boot: whoever opens the disk next on it finds it stopped, and no more.
  changes.push_back({.key = key_of(Table::disk, {}), .body = disk_row(false)});
  // Nothing is taken back on the same boot, but by a disk that has lost what it had taken.
  for (auto& [id, target] : targets_) {
    if (last_end_ != LastEnd::other_boot && rolled_back_ == 0) break;
    target.record.lossy = true;
    changes.push_back({.key = key_of(Table::target, {id}), .body = encode(target.record)});
  }
  FF_CO_TRY(metadata_.apply(changes));
  FF_CO_TRY(metadata_.flush());
  blocks_.settle(blocks_.end_epoch());
  blocks_.drop_unused();
  co_return Result<void>();
}

}  // namespace ff::chunk
