// The chunk store of one disk: all operations that replication needs on the chunks of the targets
// of that disk. Each operation applies as a whole or not at all (storage.md, "Chunk store" and
// "Chains").
//
// When the task of an operation has succeeded: - after a process crash the next open() finds the
// change; - after a power loss operations since the last sync() may be lost: each chunk is then in
// its state of that sync or of a later operation, and its data is intact.
//
// A read never returns bytes that do not match their CRC32C.
//
// Changes of one chunk must not overlap (Errc::busy); reads may overlap everything. Belongs to one
// loop; a running operation cannot be cancelled. After an I/O error the store refuses changes,
// reports the failed disk, and continues to read. The owner may open the disk again later, with
// ChunkStoreOptions::after_failure.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/rng.h"
#include "platform/base/task.h"
#include "platform/io/async.h"
#include "platform/io/disk.h"
#include "storage/chunk/acked_position.h"
#include "storage/chunk/aligned_buffer.h"
#include "storage/chunk/block_store.h"
#include "storage/chunk/chunk.h"
#include "storage/chunk/chunk_store_types.h"
#include "storage/chunk/chunk_table.h"
#include "storage/chunk/chunk_version.h"
#include "storage/chunk/committer.h"
#include "storage/chunk/disk_identity.h"
#include "storage/chunk/metadata.h"
#include "storage/chunk/update_plan.h"

namespace ff::chunk {

class ChunkStore {
 public:
  // Creates a disk in the folder. Errors: exists (it is a disk already), refused (the folder holds
  // other files).
  static Result<void> create(const ChunkStoreOptions& options, const DiskIdentity& identity);
  // Errors: not_found, refused (no disk of ff, or of another cluster), newer_format, busy (another
  // process has it open), corrupt; else those of the disk.
  static Task<Result<std::unique_ptr<ChunkStore>>> open(ChunkStoreOptions options);
  // No task may use the store any more. Without close() this equals a process crash.
  ~ChunkStore();
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;
  // Makes everything durable and marks the disk as closed. No operation is possible afterwards.
  Task<Result<void>> close();
  // Ends the tasks of a store that has failed; it may be destroyed then, as after a process crash.
  Task<void> abandon();

  const DiskIdentity& identity() const { return identity_; }
  ShutdownKind last_shutdown() const { return last_shutdown_; }
  // Chunks that open() rolled back to an earlier version.
  uint64_t rolled_back_chunks() const { return rolled_back_chunks_; }
  // Chunks that open() found damaged: the metadata references data, and the block files are
  // missing, too short, or hold other data.
  uint64_t damaged_at_open() const { return damaged_at_open_; }
  // The I/O error after which the store refuses changes.
  Result<void> health() const;
  bool direct() const { return blocks_.direct(); }
  std::vector<SizeClassUsage> usage() const { return blocks_.usage(); }
  const std::string& dir() const { return options_.dir; }
  // A record of the owner, stored beside the chunks: a few MiB at most.
  const std::string& owner_record() const { return owner_record_; }
  Task<Result<void>> set_owner_record(std::string record);
  // Errors of create_target(): exists (the id is in use).
  Task<Result<void>> create_target(TargetId target, uint64_t chain);
  Task<Result<void>> set_target_state(TargetId target, uint64_t state);
  // Removes the target with all its chunks. The next open() continues an interrupted removal.
  // Errors: busy (a chunk of it is being changed).
  Task<Result<void>> remove_target(TargetId target);
  std::vector<TargetInfo> targets() const;

  // Stores an update, as pending unless commit_chain_version is set. Errors: refused (its version
  // is not the successor of the committed one, or another version is pending); usage (it does not
  // fit the chunk); corrupt (the new content does not have the expected checksum); disk_full.
  Task<Result<ChunkState>> write(Update update);
  // Commits the pending version `version`; no-op when it is committed already. Errors: refused (no
  // such pending version).
  Task<Result<ChunkState>> commit(TargetId target, ChunkId id, uint64_t version,
                                  uint64_t chain_version);
  // The same at once, for a caller whose successors have committed: the record of it shares a later
  // write, at most a millisecond from now. If the process dies before, the version is pending
  // again, and the chain settles it.
  Result<ChunkState> commit_soon(TargetId target, ChunkId id, uint64_t version,
                                 uint64_t chain_version);
  // Drops the pending version and its channel result. Call it only when certainly no target has
  // committed that version.
  Task<Result<ChunkState>> drop_pending(TargetId target, ChunkId id, uint64_t version);
  // Replaces the chunk by a committed version.
  Task<Result<ChunkState>> install(ChunkCopy install);
  // Removes the chunk without leaving a tombstone.
  Task<Result<void>> erase(TargetId target, ChunkId id);

  // Errors: not_found (no such version, or removed); corrupt; unsupported (zero_copy of a range
  // that is not whole checksum units, or into memory that is not aligned for direct I/O); refused
  // with EFAULT (zero_copy memory was unmapped).
  Task<Result<ReadResult>> read(ReadRequest request, ByteSpan into);
  // Reads the committed version without checks and returns its damaged units. The size of `into`
  // must equal the length of the version.
  Task<Result<std::vector<DamagedRange>>> salvage(TargetId target, ChunkId id, ByteSpan into);
  // An absent chunk has version 0.
  Result<ChunkState> state(TargetId target, ChunkId id) const;
  // Chunks from `from` on, including tombstones, at most `limit`.
  Result<std::vector<ChunkInfo>> list(TargetId target, ChunkId from, size_t limit) const;
  // The last chunk of a file that exists or has a pending version that creates it; nothing when
  // there is none.
  Result<std::optional<ChunkInfo>> last_chunk(TargetId target, uint64_t inode) const;
  // Scans a bounded number of chunks, tombstones included: a page may be short when there are many
  // tombstones.
  Result<ChunkRangePage> list_range(TargetId target, ChunkRangeQuery asked) const;
  // Inodes from `from` on that have chunks (pending ones count); at most `limit`.
  Result<std::vector<uint64_t>> list_inodes(TargetId target, uint64_t from, size_t limit) const;

  Result<std::optional<ChannelResult>> channel_result(TargetId target, uint64_t client,
                                                      uint64_t channel) const;
  Result<std::vector<ChannelInfo>> channel_results(TargetId target) const;
  Task<Result<void>> install_channel_results(TargetId target, std::vector<ChannelInfo> results);
  // Removes all channel results of the target.
  Task<Result<void>> clear_channel_results(TargetId target);

  // Returns when all operations that have finished before are durable. Concurrent callers share one
  // sync pass.
  Task<Result<void>> sync();
  // Channel results and tombstones are kept for kRetentionNs at least; then the owner has them
  // pruned. prune_results(): removes a bounded number; returns whether more may be left.
  Task<Result<bool>> prune_results(int64_t now_ns);
  // Tombstones older than kRetentionNs at `now_ns` (wall clock), at most `limit`.
  std::vector<ChunkId> expired_tombstones(TargetId target, int64_t now_ns, size_t limit) const;
  // Removes those of `ids` that are still tombstones and not being changed.
  Task<Result<void>> prune_tombstones(TargetId target, std::vector<ChunkId> ids);
  // Known damage is stored with the chunks until the chunk is rewritten. verify() reads the whole
  // chunk, and clears the damage mark when all data is intact; returns whether it is.
  void mark_damaged(TargetId target, ChunkId id);
  Task<Result<bool>> verify(TargetId target, ChunkId id);
  bool is_damaged(TargetId target, ChunkId id) const;
  std::vector<ChunkId> list_damaged(TargetId target, ChunkId from, size_t limit) const;
  // Reads `limit` chunks from `from` on and verifies their checksums.
  Task<Result<ScrubPage>> scrub(TargetId target, ChunkId from, size_t limit);

 private:
  using Channel = std::pair<uint64_t, uint64_t>;  // client, channel
  struct Target {
    Target(BlockStore& blocks, size_t used_max) : chunks(blocks, used_max) {}
    TargetRecord record;
    ChunkTable chunks;
    std::set<ChunkId> tombstones;  // chunks that are tombstones without a pending version
    uint64_t bytes = 0;            // total length of the committed versions
    std::set<ChunkId> damaged;
    std::map<Channel, ChannelResult> channels;
    std::multiset<Channel> busy_channels;  // channels whose result is being changed
    uint64_t busy = 0;                     // number of chunks that are being changed
  };
  // Bodies of the undo rows of each chunk, oldest first.
  using UndoRows = std::map<std::pair<TargetId, ChunkId>, std::vector<std::string>>;
  class Claim;
  struct StagedWrite;
  struct WriteExtent;
  // A version that no row references yet.
  struct NewVersion {
    ChunkVersion version;
    AlignedBuffer own;  // holds to_log, unless that is memory of the caller
    ByteView to_log;    // data of `units` units from first_unit on, to be committed with the row
    uint64_t first_unit = 0;
    uint64_t units = 0;
    // Nothing was written to blocks, so the row needs no undo row: it is durable together with its
    // data.
    bool log_only = false;
  };
  // Sets an event when its last holder is gone.
  struct Phase {
    Phase() = default;
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;
    ~Phase() {
      if (when_ended != nullptr) when_ended->set();
    }
    Event* when_ended = nullptr;
  };
  struct CarriedUnit {
    LoggedUnit unit;
    std::string bytes;
  };
  // What left the log: units of the committed version that were written to the block, and data of
  // the pending version that goes to the end of the log.
  struct MovedChunk {
    TargetId target = 0;
    ChunkId id;
    std::vector<LoggedUnit> written;
    std::vector<CarriedUnit> carried;
  };
  using ChunkIds = std::vector<std::pair<TargetId, ChunkId>>;
  ChunkStore(ChunkStoreOptions options, DiskIdentity identity, std::unique_ptr<io::File> lock,
             std::unique_ptr<Metadata> metadata);

  // chunk_store_open.cc
  static Result<void> check_blank(const ChunkStoreOptions& options);
  Result<UndoRows> load();
  Error bad_row(std::string_view what) const;
  Result<void> load_target(std::string_view key, std::string_view body);
  Result<void> load_chunk(std::string_view key, std::string_view body);
  Result<void> load_damage(std::string_view key);
  Result<void> load_channel_result(std::string_view key, std::string_view body);
  Result<void> load_undo(std::string_view key, std::string_view body, UndoRows& undo);
  Result<void> check_disk_row(const std::string& row);
  std::string disk_row(bool closed) const;
  Result<ChunkVersion> load_version(const VersionRecord& record,
                                    const std::vector<const ChunkVersion*>& shared);
  Result<ChunkVersions> load_versions(const ChunkRecord& record, const ChunkVersions* current);
  void compare_with_acked(const std::optional<db::LogPosition>& format1);
  Task<Result<void>> recover(UndoRows undo);
  Task<Result<void>> write_again(const ChunkVersion& version);
  Task<Result<void>> write_all_again(const UndoRows& undo);
  Result<void> load_logged_unit(std::string_view key, std::string_view body);
  void reassess_blocks(const Target& target, ChunkId id, const ChunkVersions& versions);
  Task<Result<bool>> recover_chunk(Target& target, ChunkId id,
                                   const std::vector<std::string>& undo);
  Task<Result<bool>> verify_version(ChunkVersion version);
  Task<Result<void>> detect_replaced_files();
  void record_damage(RowChanges& changes);
  void roll_back_results(TargetId id, Target& target, ChunkId chunk, RowChanges& changes);
  Task<Result<void>> remove_chunks(TargetId id);

  // chunk_store.cc
  Error unknown_target(TargetId target) const;
  Result<Target*> find(TargetId target);
  Result<const Target*> find(TargetId target) const;
  static const Chunk* find(Target& target, ChunkId id);
  Target& add_target(TargetId id);
  Result<Claim> claim(TargetId target, ChunkId id);
  Error record_failure(Error error);
  Task<Result<void>> commit_rows(RowChanges changes);
  static void update_tombstones(Target& target, ChunkId id, const ChunkVersions& versions);
  static bool has_content(const ChunkState& state);
  static void mark_suspect(const ChunkVersions& versions);
  // `made`: the new version in `next`; null: the change writes no data.
  struct Change {
    ChunkVersions next;
    RowChanges rows;
    uint64_t epoch = 0;
    bool undo = false;
    bool renewed = false;
  };
  Change change_of(Claim& claim, ChunkVersions next, RowChanges more, const NewVersion* made);
  void install(Claim& claim, Change change);
  Task<Result<void>> commit_versions(Claim& claim, ChunkVersions next, RowChanges more,
                                     const NewVersion* made);
  Task<Result<void>> keep_durable();
  Task<Result<void>> sync_pass();
  Task<void> run_sync_passes();

  // chunk_store_update.cc
  Task<Result<ChunkState>> do_write(Update update);
  struct PendingCommit;
  Result<PendingCommit> begin_commit(const Claim& claim, uint64_t version, uint64_t chain_version);
  Task<Result<ChunkState>> do_commit(TargetId target, ChunkId id, uint64_t version,
                                     uint64_t chain_version);
  Task<Result<ChunkState>> do_drop_pending(TargetId target, ChunkId id, uint64_t version);
  Task<Result<ChunkState>> do_install(ChunkCopy install);
  Task<Result<void>> do_erase(TargetId target, ChunkId id);
  Task<Result<NewVersion>> make_version(ChunkVersion base, Update update);
  Task<Result<NewVersion>> build_version(ChunkVersion base, Update update, BaseVersion shape,
                                         UpdatePlan plan);
  Task<Result<BlockRef>> allocate(SizeClass size_class);
  Error wrong_checksum(const Update& update, uint32_t checksum) const;
  Task<Result<void>> stage_data(const ChunkVersion& base, const Update& update,
                                const UpdatePlan& plan, StagedWrite& written);
  static void consume_units(const UpdatePlan& plan, ChunkVersion& version, StagedWrite& written);
  Task<Result<void>> store_checksums(const ChunkVersion& base, const UpdatePlan& plan,
                                     const Update& update, const StagedWrite& written,
                                     ChunkVersion& version);
  Task<Result<void>> write_bytes(const StagedWrite& written);

  // chunk_store_log.cc
  Task<Result<void>> read_log(uint64_t lsn, ByteSpan into);
  Task<Result<void>> wait_for_reads();
  Task<Result<void>> make_all_durable();
  ChunkIds chunks_in_log(uint64_t end) const;
  Task<Result<void>> write_units(ChunkVersion version, uint64_t end, ByteSpan memory,
                                 MovedChunk& moved);
  Task<Result<void>> read_pending_units(ChunkVersion version, uint64_t end, MovedChunk& moved);
  Task<Result<MovedChunk>> move_units(TargetId target, ChunkId id, uint64_t end, ByteSpan memory);
  Chunk* find_moved(const MovedChunk& moved);
  void release_units(const MovedChunk& moved, Chunk& chunk);
  Task<Result<void>> release_all(const std::vector<MovedChunk>& all);
  static ChunkVersions with_carried(const ChunkVersions& now, const MovedChunk& moved,
                                    uint64_t next_lsn, RowChanges& data);
  Task<Result<void>> carry_units(const MovedChunk& moved);
  Task<Result<void>> move_log(uint64_t end);
  Task<Result<std::vector<MovedChunk>>> move_found_log(RowChanges& first);
  Task<Result<void>> checkpoint();
  Task<void> run_checkpoints();

  Task<Result<uint32_t>> read_version(ChunkVersion version, uint64_t offset, ByteSpan into,
                                      bool zero_copy);
  struct ReadBuffer;
  static const BlockRef& block_of(const ChunkVersion& version, const Extent& extent) {
    return extent.place == UnitPlace::overlay ? version.overlay_block : version.block;
  }
  Task<Result<void>> read_units(ChunkVersion version, Extent extent, ByteSpan into);
  Task<Result<void>> read_scattered(const ChunkVersion& version, const ReadBuffer& buffer,
                                    const std::vector<Extent>& extents, const Crcs& crcs);
  Result<void> verify_extent(const ChunkVersion& version, Extent extent, const Crcs& crcs,
                             ByteView bytes) const;
  Task<Result<void>> read_extent(const ChunkVersion& version, Extent extent, const Crcs& crcs,
                                 uint64_t offset, ByteSpan into, bool zero_copy);

  const ChunkStoreOptions options_;
  const DiskIdentity identity_;
  const std::unique_ptr<io::File> lock_;
  const std::unique_ptr<Metadata> metadata_;
  std::unique_ptr<AckedPosition> acked_;  // null: there is no such directory
  bool after_failure_;                    // as in ChunkStoreOptions
  ShutdownKind last_shutdown_ = ShutdownKind::clean;
  uint64_t rolled_back_chunks_ = 0;
  uint64_t damaged_at_open_ = 0;
  io::AsyncQueue queue_;
  BlockStore blocks_;
  std::map<TargetId, Target> targets_;
  std::string owner_record_;
  std::optional<Error> failure_;

  uint64_t changed_epoch_ = 0;  // epoch of the last finished change
  uint64_t durable_epoch_ = 0;
  Result<void> last_pass_result_;
  Event changed_;  // set when something changed since the last sync pass
  std::vector<std::pair<TargetId, ChunkId>>
      unrecorded_damage_;              // damage to be recorded by the next sync pass
  std::shared_ptr<Phase> read_phase_;  // held by each read that begins, until it ends
  Event checkpoint_ended_;
  Event sync_requested_;  // set by sync()
  Event pass_finished_;
  std::unique_ptr<Committer> committer_;
  Gate gate_;
  Gate checkpoints_;  // has run_checkpoints(), which needs the tasks in gate_
};

}  // namespace ff::chunk
