// The chunks of one disk, for the targets on it: every step that replication needs, each whole or
// not at all (storage.md, "Chunk store" and "Chains").
//
// What a step promises when its task has ended well:
// - the process may die: the step is there when the disk is opened again;
// - the machine may lose power: steps since the last sync() may be gone, each chunk back to what it
//   was at that sync, or at some later step; what is there is what was written.
// A read never returns bytes that do not match their CRC32C.
//
// Steps on one chunk come one at a time (Errc::busy), reads at any time. Belongs to one loop; steps
// are not cancelled once they have begun. After an I/O error the store takes no more changes, says
// which disk has failed, and goes on reading.
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
#include "storage/chunk/blocks.h"
#include "storage/chunk/chunk.h"
#include "storage/chunk/committer.h"
#include "storage/chunk/identity.h"
#include "storage/chunk/image.h"
#include "storage/chunk/metadata.h"
#include "storage/chunk/plan.h"
#include "storage/chunk/steps.h"

namespace ff::chunk {

class Store {
 public:
  // Makes the folder a disk. Errors: exists when it is one already, refused when it holds anything
  // else.
  static Result<void> create(const StoreOptions& options, const Identity& identity);
  // Errors: not_found, refused (foreign, or another cluster's), newer_format, busy (another
  // process has it), corrupt; else the disk's.
  static Task<Result<std::unique_ptr<Store>>> open(StoreOptions options);
  // No task may use it any more. Without close() as if the process had died.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  // Makes all durable and marks the disk as closed; then nothing goes any more.
  Task<Result<void>> close();

  const Identity& identity() const { return identity_; }
  LastEnd last_end() const { return last_end_; }
  // Chunks that the last end took back.
  uint64_t rolled_back() const { return rolled_back_; }
  // Chunks whose bytes were gone when the disk was opened, or seemed to be: the index names them,
  // and the block files are missing, too short, or not what they were.
  uint64_t found_damaged() const { return found_damaged_; }
  // The I/O error after which no more changes are taken.
  Result<void> health() const;
  bool direct() const { return blocks_.direct(); }
  std::vector<ClassUsage> usage() const { return blocks_.usage(); }
  const std::string& dir() const { return options_.dir; }
  // What its owner keeps here beside the chunks: a few MiB at most.
  const std::string& note() const { return note_; }
  Task<Result<void>> set_note(std::string note);
  // Targets. create: exists when the id is taken.
  Task<Result<void>> create_target(TargetId target, uint64_t chain);
  Task<Result<void>> set_target_state(TargetId target, uint64_t state);
  // With all chunks; goes on at the next open when it is interrupted. Errc::busy while one of them
  // changes.
  Task<Result<void>> remove_target(TargetId target);
  std::vector<TargetInfo> targets() const;

  // Stores an update, as pending if it does not say otherwise. Errors: refused when its version is
  // not the committed one's successor, or one is pending; usage when it does not fit; corrupt when
  // the new content has another checksum than the update says; disk_full.
  Task<Result<ChunkState>> write(Update update);
  // Makes the pending version `version` the committed one; done already is success. Errors: refused
  // when there is no such version.
  Task<Result<ChunkState>> commit(TargetId target, ChunkId id, uint64_t version,
                                  uint64_t chain_version);
  // Forgets the pending version, and its writer's result. Only when it is certain that no target
  // has committed it.
  Task<Result<ChunkState>> drop_pending(TargetId target, ChunkId id, uint64_t version);
  // Replaces whatever is there, by a committed version.
  Task<Result<ChunkState>> install(Install install);
  // Forgets the chunk altogether: no tombstone.
  Task<Result<void>> erase(TargetId target, ChunkId id);

  // Errors: not_found when there is no such version, or it is removed; corrupt; unsupported when
  // what is to be read unseen is not whole granules in memory aligned for direct I/O; refused, with
  // EFAULT, when that memory has gone.
  Task<Result<ReadDone>> read(ReadRequest request, ByteSpan into);
  // The committed version as it lies on the disk, and which granules of it are damaged. `into` has
  // its length.
  Task<Result<std::vector<Damage>>> salvage(TargetId target, ChunkId id, ByteSpan into);
  // Absent chunks have version 0.
  Result<ChunkState> state(TargetId target, ChunkId id) const;
  // Chunks from `from` on, tombstones too, at most `limit`.
  Result<std::vector<ChunkInfo>> list(TargetId target, ChunkId from, size_t limit) const;
  // The last chunk of a file that is not removed, or is about not to be; nothing when all are.
  Result<std::optional<ChunkInfo>> query_last(TargetId target, uint64_t inode) const;
  // Looks at a bounded number of chunks, removed ones too: few of many tombstones are a page.
  Result<ChunksPage> chunks(TargetId target, ChunksAsked asked) const;
  // Files from `from` on with chunks that are not removed, or about not to be; at most `limit`.
  Result<std::vector<uint64_t>> inodes(TargetId target, uint64_t from, size_t limit) const;

  Result<std::optional<ChannelResult>> result(TargetId target, uint64_t client,
                                              uint64_t channel) const;
  Result<std::vector<ChannelInfo>> results(TargetId target) const;
  Task<Result<void>> install_results(TargetId target, std::vector<ChannelInfo> results);
  // All of the target's.
  Task<Result<void>> forget_results(TargetId target);

  // Returns when every step that has ended before is durable; many callers share one pass.
  Task<Result<void>> sync();
  // Results of commits and tombstones are kept for kKeptNs at least; then whoever owns the store
  // has them removed. prune_results: a bounded number at a time; whether some may be left.
  Task<Result<bool>> prune_results(int64_t now_ns);
  // Those that are older at `now_ns` (wall), at most `limit`.
  std::vector<ChunkId> old_tombstones(TargetId target, int64_t now_ns, size_t limit) const;
  // Those that still are tombstones, and are not being changed.
  Task<Result<void>> prune_tombstones(TargetId target, std::vector<ChunkId> ids);
  // What is known to be damaged is kept with the chunks until it is written anew. A chunk that is
  // there stays on the list however it was read; `check` reads all of it, and takes it off when it
  // is sound: whether it is.
  void doubt(TargetId target, ChunkId id);
  Task<Result<bool>> check(TargetId target, ChunkId id);
  bool doubted(TargetId target, ChunkId id) const;
  std::vector<ChunkId> damaged(TargetId target, ChunkId from, size_t limit) const;
  // Reads `limit` chunks from `from` on and compares them with their CRCs.
  Task<Result<ScrubPage>> scrub(TargetId target, ChunkId from, size_t limit);

 private:
  struct Chunk {
    Versions versions;
    uint64_t undo_epoch = 0;  // the last epoch whose undo row there is
    bool busy = false;
  };
  using Channel = std::pair<uint64_t, uint64_t>;  // client, channel
  struct Target {
    TargetRecord record;
    std::map<ChunkId, Chunk> chunks;
    std::set<ChunkId> tombstones;  // without a pending version
    uint64_t bytes = 0;            // of committed versions
    std::set<ChunkId> damaged;
    std::map<Channel, ChannelResult> channels;
    std::multiset<Channel> changing;  // channels whose results change now
    uint64_t busy = 0;                // chunks that do
  };
  // Bodies of undo rows, oldest first.
  using UndoRows = std::map<std::pair<TargetId, ChunkId>, std::vector<std::string>>;
  class Claim;
  struct Written;
  struct Stretch;
  Store(StoreOptions options, Identity identity, std::unique_ptr<io::File> lock, Metadata metadata);

  // store_open.cc
  static Result<void> check_blank(const StoreOptions& options);
  Result<UndoRows> load();
  Error bad_row(std::string_view what) const;
  Result<void> load_target(std::string_view key, std::string_view body);
  Result<void> load_chunk(std::string_view key, std::string_view body);
  Result<void> load_damage(std::string_view key);
  Result<void> load_channel(std::string_view key, std::string_view body);
  Result<void> load_undo(std::string_view key, std::string_view body, UndoRows& undo);
  Result<void> check_disk_row(const std::string& row);
  std::string disk_row(bool closed) const;
  Result<Image> adopt(const ImageRecord& record, const std::vector<const Image*>& shared);
  Result<Versions> adopt(const Record& record, const Versions* current);
  Task<Result<void>> recover(UndoRows undo);
  void judge_blocks(const Target& target, ChunkId id, const Versions& versions);
  Task<Result<bool>> settle_chunk(Target& target, ChunkId id, const std::vector<std::string>& undo);
  Task<Result<bool>> intact(Image image);
  Task<Result<void>> doubt_files();
  void note_damage(RowChanges& changes);
  void take_back_results(TargetId id, Target& target, ChunkId chunk, RowChanges& changes);
  Task<Result<void>> remove_chunks(TargetId id);

  // store.cc
  Error unknown_target(TargetId target) const;
  Result<Target*> find(TargetId target);
  Result<const Target*> find(TargetId target) const;
  const Chunk* find(const Target& target, ChunkId id) const;
  Result<Claim> claim(TargetId target, ChunkId id);
  Error failed(Error error);
  Task<Result<void>> commit_rows(RowChanges changes);
  static void note_tombstone(Target& target, ChunkId id, const Versions& versions);
  static bool holds(const Versions& versions);
  static void doubt(const Versions& versions);
  Task<Result<void>> put(Claim& claim, Versions next, RowChanges more);
  Task<Result<void>> keep_durable();
  Task<Result<void>> pass();
  Task<void> run_passes();

  // store_update.cc
  Task<Result<ChunkState>> do_write(Update update);
  Task<Result<ChunkState>> do_commit(TargetId target, ChunkId id, uint64_t version,
                                     uint64_t chain_version);
  Task<Result<ChunkState>> do_drop(TargetId target, ChunkId id, uint64_t version);
  Task<Result<ChunkState>> do_install(Install install);
  Task<Result<void>> do_erase(TargetId target, ChunkId id);
  Task<Result<Image>> make_image(Image base, Update update);
  Task<Result<Image>> build_image(Image base, Update update, Base shape, Plan plan);
  Error wrong_checksum(const Update& update, uint32_t checksum) const;
  Task<Result<void>> stage(const Image& base, const Update& update, const Plan& plan,
                           Written& written);
  static void use_up(const Plan& plan, Image& image, Written& written);
  Task<Result<void>> store_checksums(const Image& base, const Plan& plan, const Update& update,
                                     const Written& written, Image& image);
  Task<Result<void>> write_bytes(const Written& written);

  Task<Result<uint32_t>> read_image(Image image, uint64_t offset, ByteSpan into, bool unseen);
  struct Extent;
  Task<Result<void>> read_block(const Image& image, const Extent& extent,
                                const std::vector<Run>& runs, const Crcs& crcs);
  Result<void> check_run(const Image& image, Run run, const Crcs& crcs, ByteView bytes) const;
  Task<Result<void>> read_run(const Image& image, Run run, const Crcs& crcs, uint64_t offset,
                              ByteSpan into, bool unseen);

  const StoreOptions options_;
  const Identity identity_;
  const std::unique_ptr<io::File> lock_;
  Metadata metadata_;
  LastEnd last_end_ = LastEnd::closed;
  uint64_t rolled_back_ = 0;
  uint64_t found_damaged_ = 0;
  io::AsyncQueue queue_;
  Blocks blocks_;
  std::map<TargetId, Target> targets_;
  std::string note_;
  std::optional<Error> failure_;

  uint64_t changed_epoch_ = 0;  // of the last step that ended, as blocks_ counts
  uint64_t durable_epoch_ = 0;
  Result<void> last_pass_;
  Event changed_;                                      // since the last pass
  std::vector<std::pair<TargetId, ChunkId>> unnoted_;  // damage, for the next pass
  Event asked_;                                        // by sync()
  Event passed_;
  std::unique_ptr<Committer> committer_;
  Gate gate_;
};

}  // namespace ff::chunk
