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

Error differs(const StepName& name) {
  return Error{Errc::refused, fmt::format("{} exists already with other content", name.text()),
               "Save under another step, or replace it with --replace."};
}

// `latest` has the digest of the index it names. Remove it before that index is replaced: after a
// crash in between there is no `latest` (the highest step counts then) instead of a wrong one.
Result<void> remove_latest_of(CommitWork& work) {
  io::Disk& disk = work.context.disk;
  const auto mark = read_latest(disk, work.store, work.name.run);
  if (!mark || mark->step != work.name.step) return {};
  FF_TRY(disk.remove(work.store.latest_path(work.name.run)));
  return disk.sync_dir(work.store.run_dir(work.name.run));
}

// Gives the index its name by a rename out of the lease's folder: a pruner that considers this save
// dead has removed that folder, so the save can publish nothing more (lease.h).
Result<void> publish(CommitWork& work, const std::string& index_path) {
  io::Disk& disk = work.context.disk;
  const std::string target = work.store.index_path(work.name);
  FF_TRY(const bool there, io::exists(disk, target));
  if (!there || !work.options.replace) {
    FF_TRY(disk.link(index_path, target));
  } else {
    FF_TRY(remove_latest_of(work));
    FF_TRY(disk.rename(index_path, target));
  }
  return disk.sync_dir(work.store.step_dir(work.name));
}

Result<void> may_publish(CommitWork& work) {
  const auto& task = work.options.identity.task;
  if (!task) return {};
  return check_attempt(work.context.disk, work.store, work.name.run, *task);
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

Result<SaveOutcome> commit_index(CommitWork& work, const std::string& index_path,
                                 const EndRecord& end) {
  io::Disk& disk = work.context.disk;
  FF_TRY(may_publish(work));
  FF_TRY(io::make_dirs(disk, work.store.step_dir(work.name)));
  auto published = publish(work, index_path);
  if (!published) {
    if (published.error().code != Errc::exists) return std::move(published).error();
    FF_TRY(const auto there, read_summary(disk, work.store.index_path(work.name)));
    if (there.end.content != end.content) return differs(work.name);
    // The process that committed it may not have updated `latest` yet.
    FF_TRY(disk.sync_dir(work.store.step_dir(work.name)));
    FF_TRY(write_latest(work.context, work.store, work.name, there.end.index));
    return SaveOutcome::already_there;
  }
  FF_TRY(write_latest(work.context, work.store, work.name, end.index));
  return SaveOutcome::committed;
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

Result<SaveOutcome> commit_shard(CommitWork& work, const std::string& shard_path,
                                 const EndRecord& end, uint64_t& missing) {
  io::Disk& disk = work.context.disk;
  const SaveOptions& options = work.options;
  const std::string dir =
      io::join(work.store.shards_dir(work.name), attempt_dir_name(options.world, options.attempt));
  FF_TRY(may_publish(work));
  FF_TRY(io::make_dirs(disk, dir));
  FF_TRY(disk.rename(shard_path, fmt::format("{}/{}.jsonl", dir, options.rank)));
  FF_TRY(disk.sync_dir(dir));

  // Each rank publishes its shard before it lists them, so the last rank sees all.
  std::vector<std::string> shards;
  missing = 0;
  for (uint32_t rank = 0; rank < options.world; rank++) {
    shards.push_back(fmt::format("{}/{}.jsonl", dir, rank));
    FF_TRY(const bool there, io::exists(disk, shards.back()));
    missing += there ? 0 : 1;
  }
  const std::string merged = io::join(work.lease.folder(), "merged.jsonl");
  Result<EndRecord> whole = Error{Errc::not_found, {}, {}};
  if (missing == 0) whole = merge_shards(disk, shards, merged);
  if (!whole && whole.error().code == Errc::not_found) {
    // Missing ranks, or the commit of another rank has just removed the shards.
    const auto summary = read_summary(disk, work.store.index_path(work.name));
    if (!summary || summary->header.attempt != options.attempt ||
        summary->header.world != options.world) {
      return SaveOutcome::waiting;
    }
    FF_TRY(const bool same,
           same_rank_content(disk, work.store.index_path(work.name), options.rank, end.content));
    (void)io::remove_tree(disk, dir);  // this rank's shard, published after the commit
    if (!same) return differs(work.name);
    missing = 0;
    return SaveOutcome::committed;
  }
  if (!whole) return std::move(whole).error();
  FF_TRY(const SaveOutcome outcome, commit_index(work, merged, *whole));
  // The shards are no longer needed; after a crash here prune removes them.
  (void)io::remove_tree(disk, work.store.shards_dir(work.name));
  return outcome;
}

}  // namespace ff::checkpoint
