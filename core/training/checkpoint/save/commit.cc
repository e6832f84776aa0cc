// commit.cc: publication of indexes and shards (order and reasons in the header).
#include "training/checkpoint/save/commit.h"

#include <fmt/format.h>

#include <bitset>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "training/checkpoint/save/attempt_fence.h"
#include "training/checkpoint/save/merge.h"

namespace ff::checkpoint {
namespace {

// `winner`: the header of the committed index of this step, which has other content.
Error differs(const CommitWork& work, const HeaderRecord& winner) {
  const SaveOptions& options = work.options;
  if (options.world == 1 || (winner.attempt == options.attempt && winner.world == options.world)) {
    return Error{Errc::refused,
                 fmt::format("{} exists already with other content", work.name.text()),
                 "Save under another step, or replace it with --replace."};
  }
  const std::string who = winner.world == 1
                              ? std::string("a save of one rank")
                              : fmt::format("attempt '{}'", printable(winner.attempt));
  return Error{Errc::refused,
               fmt::format("{}: {} has committed this step; attempt '{}' has other content, and "
                           "rank {} of it is not saved",
                           work.name.text(), who, printable(options.attempt), options.rank),
               "Save under another step, or replace it from all ranks with --replace."};
}

// Gives the index its name by a link or rename out of the lease's folder: a pruner that considers
// this save dead has removed that folder, so the save can publish nothing more (lease.h).
Result<void> publish(CommitWork& work, const std::string& index_path) {
  io::Disk& disk = work.context.disk;
  const std::string target = work.store.index_path(work.name);
  auto named = disk.link(index_path, target);
  if (!named && named.error().code == Errc::exists && work.options.replace) {
    named = disk.rename(index_path, target);
  }
  if (!named) return named;
  return disk.sync_dir(work.store.step_dir(work.name));
}

Result<void> may_publish(CommitWork& work) {
  const auto& task = work.options.identity.task;
  if (!task) return {};
  return check_attempt(work.context.disk, work.store, work.name.run, *task);
}

struct Published {
  SaveOutcome outcome = SaveOutcome::committed;
  std::optional<HeaderRecord> winner = {};  // of the existing index, if it has other content
};

Result<Published> put_index(CommitWork& work, const std::string& index_path, const EndRecord& end) {
  io::Disk& disk = work.context.disk;
  FF_TRY(may_publish(work));
  FF_TRY(io::make_dirs(disk, work.store.step_dir(work.name)));
  const auto named = publish(work, index_path);
  if (named) {
    FF_TRY(update_latest(work.context, work.store, work.name.run));
    return Published{};
  }
  if (named.error().code != Errc::exists) return named.error();
  FF_TRY(const auto there, read_summary(disk, work.store.index_path(work.name)));
  Published published{.outcome = SaveOutcome::already_there};
  if (there.end.content != end.content) {
    published.winner = there.header;
    return published;
  }
  // The process that committed it may not have updated `latest` yet.
  FF_TRY(disk.sync_dir(work.store.step_dir(work.name)));
  FF_TRY(update_latest(work.context, work.store, work.name.run));
  return published;
}

// Whether the chunk is stored; restores it from the trash if necessary.
Result<bool> in_place(CommitWork& work, const simd::Digest& chunk) {
  io::Disk& disk = work.context.disk;
  const std::string path = work.store.chunk_path(chunk);
  FF_TRY(const bool there, io::exists(disk, path));
  if (there) return true;
  if (disk.rename(work.store.trash_path(chunk), path)) return true;
  return io::exists(disk, path);  // the pruner itself may have restored it
}

}  // namespace

Result<void> ensure_chunks_durable(CommitWork& work, const std::vector<simd::Digest>& all) {
  io::Disk& disk = work.context.disk;
  for (const auto& chunk : all) {
    FF_TRY(const bool there, in_place(work, chunk));
    if (there) continue;
    return Error{
        Errc::failed,
        fmt::format("{}: chunk {} was removed during the save", work.name.text(), chunk.hex()),
        "Save it again; only ff may delete files in a store."};
  }
  std::bitset<256> touched;
  for (const auto& chunk : all) touched.set(std::to_integer<size_t>(chunk.bytes[0]));
  for (unsigned byte = 0; byte < touched.size(); byte++) {
    if (touched[byte]) FF_TRY(disk.sync_dir(work.store.chunk_dir(byte)));
  }
  return {};
}

Error differs_from_committed(const CommitWork& work) {
  const auto there = read_summary(work.context.disk, work.store.index_path(work.name));
  if (there) return differs(work, there->header);
  return Error{
      Errc::refused,
      fmt::format("{}: another process changed the step during the save", work.name.text()),
      "Save it again."};
}

Result<bool> same_rank_content(io::Disk& disk, const std::string& index_path, uint32_t rank,
                               const simd::Digest& content) {
  FF_TRY(auto reader, IndexReader::open(disk, index_path));
  ContentDigest digest(reader.header().digest);
  bool mine = false;
  for (;;) {
    FF_TRY(const auto record, reader.next());
    if (!record) return digest.finish() == content;
    if (const auto* file = std::get_if<FileRecord>(&*record)) {
      mine = file->rank == rank;
      if (mine) digest.add(*file);
    } else if (const auto* tensor = std::get_if<TensorRecord>(&*record); tensor && mine) {
      digest.add(*tensor);
    }
  }
}

namespace {

// The shards of one attempt, as a rank of it sees them.
class AttemptShards {
 public:
  AttemptShards(CommitWork& work, const EndRecord& end)
      : work_(work),
        disk_(work.context.disk),
        end_(end),
        dir_(io::join(work.store.shards_dir(work.name),
                      attempt_dir_name(work.options.world, work.options.attempt))),
        own_(path_of(work.options.rank)) {}

  // What the committed index of the step means for this rank: nothing if there is none, or if it
  // is to be replaced. Errc::refused: this rank's data is not in it.
  Result<std::optional<SaveOutcome>> committed_outcome() const;
  // Whether the index of the step is of this attempt.
  bool index_is_ours() const;
  // The file at `shard_path` stays, unless it replaces an earlier shard of this rank.
  Result<void> publish(const std::string& shard_path) const;
  Result<uint64_t> count_missing() const;
  // Errc::not_found: a rank has committed the shards and removed them meanwhile.
  Result<EndRecord> merge(const std::string& out) const;
  Result<bool> own_is_waiting() const { return io::exists(disk_, own_); }
  // Removes the shards at once, so that no rank sees a part of them.
  void remove_all() const;
  // Removes this rank's shard, which no commit will include.
  void withdraw() const;

 private:
  std::string path_of(uint32_t rank) const { return fmt::format("{}/{}.jsonl", dir_, rank); }
  Result<void> put(const std::string& shard_path) const;

  CommitWork& work_;
  io::Disk& disk_;
  const EndRecord& end_;
  const std::string dir_;
  const std::string own_;
};

Result<std::optional<SaveOutcome>> AttemptShards::committed_outcome() const {
  const SaveOptions& options = work_.options;
  if (options.replace) return std::optional<SaveOutcome>();
  const std::string index = work_.store.index_path(work_.name);
  const auto summary = read_summary(disk_, index);
  if (!summary && summary.error().code == Errc::not_found) return std::optional<SaveOutcome>();
  if (!summary) return summary.error();
  const HeaderRecord& header = summary->header;
  if (header.world != options.world) return differs(work_, header);
  const auto same = same_rank_content(disk_, index, options.rank, end_.content);
  if (!same && same.error().code == Errc::not_found) return std::optional<SaveOutcome>();
  if (!same) return same.error();
  if (!*same) return differs(work_, header);
  return std::optional(header.attempt == options.attempt ? SaveOutcome::committed
                                                         : SaveOutcome::already_there);
}

bool AttemptShards::index_is_ours() const {
  const auto summary = read_summary(disk_, work_.store.index_path(work_.name));
  return summary && summary->header.attempt == work_.options.attempt &&
         summary->header.world == work_.options.world;
}

Result<void> AttemptShards::put(const std::string& shard_path) const {
  FF_TRY(io::make_dirs(disk_, dir_));
  auto linked = disk_.link(shard_path, own_);
  if (!linked && linked.error().code == Errc::exists) return disk_.rename(shard_path, own_);
  return linked;
}

Result<void> AttemptShards::publish(const std::string& shard_path) const {
  for (;;) {
    FF_TRY(work_.context.stop.check());
    const auto done = put(shard_path);
    if (done) break;
    if (done.error().code != Errc::not_found) return done;
    // Another rank has removed the empty folder meanwhile; or a pruner this save's lease.
    FF_TRY(const bool there, io::exists(disk_, shard_path));
    if (!there) return done;
  }
  const auto synced = disk_.sync_dir(dir_);
  if (!synced && synced.error().code != Errc::not_found) return synced;
  return {};
}

Result<uint64_t> AttemptShards::count_missing() const {
  uint64_t missing = 0;
  for (uint32_t rank = 0; rank < work_.options.world; rank++) {
    FF_TRY(const bool there, io::exists(disk_, path_of(rank)));
    missing += there ? 0 : 1;
  }
  return missing;
}

Result<EndRecord> AttemptShards::merge(const std::string& out) const {
  std::vector<std::string> shards;
  for (uint32_t rank = 0; rank < work_.options.world; rank++) shards.push_back(path_of(rank));
  return merge_shards(disk_, shards, out);
}

// After a crash before this, prune removes them.
void AttemptShards::remove_all() const {
  const std::string removed = io::join(work_.lease.folder(), "shards");
  if (disk_.rename(dir_, removed)) (void)io::remove_tree(disk_, removed);
  (void)disk_.remove_dir(work_.store.shards_dir(work_.name));  // if no other attempt has shards
}

void AttemptShards::withdraw() const {
  (void)disk_.remove(own_);
  (void)disk_.remove_dir(dir_);
  (void)disk_.remove_dir(work_.store.shards_dir(work_.name));
}

// Commits a complete attempt.
Result<SaveOutcome> commit_all(CommitWork& work, const AttemptShards& shards,
                               const std::string& merged, const EndRecord& whole) {
  FF_TRY(const auto published, put_index(work, merged, whole));
  shards.remove_all();
  if (published.winner) return differs(work, *published.winner);
  return published.outcome;
}

Error shards_removed(const CommitWork& work) {
  return Error{Errc::failed,
               fmt::format("{}: the shards of attempt '{}' are gone: another attempt has replaced "
                           "the step, or a prune removed shards that waited beyond its --grace",
                           work.name.text(), printable(work.options.attempt)),
               "Save the step again from all ranks."};
}

}  // namespace

Result<SaveOutcome> commit_index(CommitWork& work, const std::string& index_path,
                                 const EndRecord& end) {
  FF_TRY(const auto published, put_index(work, index_path, end));
  if (published.winner) return differs(work, *published.winner);
  return published.outcome;
}

Result<SaveOutcome> commit_shard(CommitWork& work, const std::string& shard_path,
                                 const EndRecord& end, uint64_t& missing) {
  const AttemptShards shards(work, end);
  FF_TRY(may_publish(work));
  FF_TRY(const auto before, shards.committed_outcome());
  if (before) return *before;
  FF_TRY(shards.publish(shard_path));
  const std::string merged = io::join(work.lease.folder(), "merged.jsonl");
  for (;;) {
    FF_TRY(work.context.stop.check());
    // Each rank publishes its shard before it counts them, so the last rank sees all.
    FF_TRY(const uint64_t lacking, shards.count_missing());
    if (lacking == 0) {
      const auto whole = shards.merge(merged);
      if (whole) return commit_all(work, shards, merged, *whole);
      if (whole.error().code != Errc::not_found) return whole.error();
    }
    FF_TRY(const bool waiting, shards.own_is_waiting());
    const auto now = shards.committed_outcome();
    const bool excluded = now ? now->has_value() : now.error().code == Errc::refused;
    if (waiting && excluded) shards.withdraw();
    if (!now) return now.error();
    if (*now) return **now;
    if (waiting && lacking == 0) continue;
    missing = lacking;
    if (waiting) return SaveOutcome::waiting;
    // Another rank has committed the shards, or a prune has removed them.
    if (shards.index_is_ours()) return SaveOutcome::committed;
    FF_TRY(const bool again, io::exists(work.context.disk, shard_path));
    if (!again) return shards_removed(work);
    FF_TRY(shards.publish(shard_path));
  }
}

}  // namespace ff::checkpoint
