// prune.cc: mark and sweep (order and reasons in the header).
#include "training/checkpoint/retention/prune.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "platform/base/clock.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/format/sorted_set.h"
#include "training/checkpoint/retention/maintenance.h"

namespace ff::checkpoint {
namespace {

constexpr int64_t kPollNs = kSecond;  // between two checks of active leases

class Pruner {
 public:
  Pruner(Context& context, const Store& store, const PruneOptions& options, PruneReport& report)
      : context_(context), disk_(context.disk), store_(store), options_(options), report_(report) {}

  Result<void> run();

 private:
  // Whether files that marking did not find stay absent after a power loss.
  enum class Absence { seen, durable };

  Result<void> bound_leases(const std::vector<LeaseInfo>& leases);
  Result<bool> set_to_now(const std::string& path);
  Result<int64_t> age_of(const std::string& path, int64_t mtime_ns);
  Result<void> find_abandoned(const std::vector<LeaseInfo>& leases);
  Result<void> mark(Absence absence);
  Result<void> mark_step(const StepName& name);
  Result<void> mark_index(const std::string& path);
  Result<void> restore();
  Result<void> take_away_overdue(std::vector<LeaseInfo>& leases);
  Result<void> remove_abandoned();
  Result<void> move_unreferenced();
  Result<void> settle_leases();
  Result<void> empty_trash();
  Result<void> delete_chunk(const std::string& name, const simd::Digest& chunk);
  Result<void> count_trash();

  Result<void> remove_leftovers();
  Result<void> remove_set_aside();
  Result<void> remove_old_in_tmp();
  Result<void> remove_old_writes(const std::string& dir);
  Result<void> remove_empty_folders(const std::string& run, const std::set<StepName>& saving);
  Result<bool> is_old(const std::string& path);

  bool marked(const simd::Digest& chunk) const { return marked_.contains(chunk_key(chunk)); }

  Context& context_;
  io::Disk& disk_;
  const Store& store_;
  const PruneOptions& options_;
  PruneReport& report_;
  int64_t now_ns_ = 0;  // by the store's clock
  SortedSet<ChunkKey> marked_;
  std::set<std::string> abandoned_dirs_;  // folders of shards that are removed and not marked
};

Result<void> Pruner::run() {
  FF_TRY(now_ns_, store_now_ns(context_, store_));
  FF_TRY(auto leases, list_leases(context_, store_));
  FF_TRY(bound_leases(leases));
  FF_TRY(find_abandoned(leases));
  FF_TRY(mark(Absence::seen));
  if (options_.dry_run) {
    FF_TRY(move_unreferenced());
    return count_trash();
  }
  FF_TRY(restore());
  FF_TRY(take_away_overdue(leases));
  FF_TRY(remove_abandoned());
  FF_TRY(move_unreferenced());
  FF_TRY(settle_leases());
  FF_TRY(empty_trash());
  return remove_leftovers();
}

// A lease that says "renewed in a year" would keep the trash for a year. Its owner, if it lives,
// renews it anyway.
Result<void> Pruner::bound_leases(const std::vector<LeaseInfo>& leases) {
  for (const auto& lease : leases) {
    if (lease.ahead_ns < kLeaseTimeoutNs) continue;
    const std::string path = io::join(store_.tmp_dir(), lease.id) + std::string(kLeaseSuffix);
    FF_TRY(const bool corrected, set_to_now(path));
    report_.ahead.push_back({lease, corrected});
  }
  return {};
}

// False: in a dry run, and for a file of another user.
Result<bool> Pruner::set_to_now(const std::string& path) {
  if (options_.dry_run) return false;
  const auto set = ignore_not_found(disk_.set_mtime(path, -1));
  if (!set && set.error().code == Errc::refused) return false;
  if (!set) return set.error();
  return true;
}

// The age of a file by the store's clock; that of a time far in the future begins now.
Result<int64_t> Pruner::age_of(const std::string& path, int64_t mtime_ns) {
  const int64_t age = now_ns_ - mtime_ns;
  if (age > -kLeaseTimeoutNs) return age;
  FF_TRY(const bool corrected, set_to_now(path));
  return corrected ? 0 : age;
}

// Attempts of several ranks without an active lease: leftovers beside a commit, or shards that wait
// for ranks that will not save.
Result<void> Pruner::find_abandoned(const std::vector<LeaseInfo>& leases) {
  FF_TRY(const auto runs, list_runs(disk_, store_));
  for (const auto& run : runs) {
    FF_TRY(const auto steps, list_steps(disk_, store_, run));
    for (const uint64_t step : steps) {
      const StepName name{run, step};
      FF_TRY(auto attempts, list_attempts(disk_, store_, name));
      for (auto& attempt : attempts) {
        const bool running = std::any_of(leases.begin(), leases.end(), [&](const auto& lease) {
          const bool fits = lease.run == run && lease.step == step && lease.attempt == attempt.id;
          return lease.alive && (fits || lease.action.empty());  // empty: just being written
        });
        const std::string dir =
            io::join(store_.shards_dir(name), attempt_dir_name(attempt.world, attempt.id));
        int64_t age = now_ns_ - attempt.newest_ns;
        for (const uint32_t rank : attempt.present) {
          FF_TRY(age, age_of(fmt::format("{}/{}.jsonl", dir, rank), attempt.newest_ns));
        }
        if (running || age < options_.grace_ns) continue;
        abandoned_dirs_.insert(dir);
        const auto summary = read_summary(disk_, store_.index_path(name));
        if (summary && summary->header.attempt == attempt.id) continue;  // it became a checkpoint
        report_.abandoned.push_back({name, attempt.id, attempt.world, std::move(attempt.present)});
      }
    }
  }
  return {};
}

// Marks the chunks of all indexes and shards. With Absence::durable a power loss cannot bring back
// an index that was not found, so chunks may be deleted.
Result<void> Pruner::mark(Absence absence) {
  auto settle = [&](const std::string& dir) -> Result<void> {
    if (absence == Absence::seen) return {};
    return ignore_not_found(disk_.sync_dir(dir));
  };
  marked_.clear();
  FF_TRY(const auto runs, list_runs(disk_, store_));
  for (const auto& run : runs) {
    FF_TRY(const auto steps, list_steps(disk_, store_, run));
    for (const uint64_t step : steps) {
      FF_TRY(mark_step({run, step}));
      FF_TRY(settle(store_.step_dir({run, step})));
    }
    FF_TRY(settle(store_.run_dir(run)));
  }
  FF_TRY(settle(store_.runs_dir()));
  marked_.sort_unique();
  return {};
}

// Shards before the index: a commit makes the index before it removes them.
Result<void> Pruner::mark_step(const StepName& name) {
  const auto attempts = disk_.list(store_.shards_dir(name));
  if (!attempts && attempts.error().code != Errc::not_found) return attempts.error();
  if (attempts) {
    for (const auto& attempt : *attempts) {
      const std::string dir = io::join(store_.shards_dir(name), attempt.name);
      if (attempt.kind != io::FileKind::directory || abandoned_dirs_.contains(dir)) continue;
      const auto shards = disk_.list(dir);
      if (!shards && shards.error().code == Errc::not_found) continue;
      if (!shards) return shards.error();
      for (const auto& shard : *shards) {
        if (shard.name.ends_with(".jsonl")) FF_TRY(mark_index(io::join(dir, shard.name)));
      }
    }
  }
  return mark_index(store_.index_path(name));
}

// An index that does not exist (any more) names no chunks.
Result<void> Pruner::mark_index(const std::string& path) {
  auto reader = IndexReader::open(disk_, path);
  if (!reader && reader.error().code == Errc::not_found) return {};
  for (;;) {
    FF_TRY(context_.stop.check());
    auto record = reader ? reader->next() : Result<std::optional<Record>>(reader.error());
    if (!record) {
      Error error = std::move(record).error();
      if (error.code == Errc::corrupt) {
        error.message +=
            "; prune deleted nothing, because it cannot know which chunks this index names";
        error.hint =
            "'ff checkpoint forget RUN@STEP' removes a damaged checkpoint; shards of ranks "
            "go once they are older than --grace.";
      }
      return error;
    }
    if (!*record) return {};
    const std::vector<ChunkExtent>* extents = extents_of(**record);
    if (extents == nullptr) continue;
    for (const auto& extent : *extents) {
      if (extent.chunk) marked_.add(chunk_key(*extent.chunk));
    }
  }
}

// Restores marked chunks from the trash, unless a saver has written them again.
Result<void> Pruner::restore() {
  FF_TRY(const auto entries, disk_.list(store_.trash_dir()));
  for (const auto& entry : entries) {
    const auto chunk = simd::parse_digest(store_.digest_kind(), entry.name);
    if (!chunk || !marked(*chunk)) continue;
    FF_TRY(const bool there, io::exists(disk_, store_.chunk_path(*chunk)));
    if (there) continue;
    FF_TRY(ignore_not_found(disk_.rename(store_.trash_path(*chunk), store_.chunk_path(*chunk))));
    report_.chunks_restored++;
  }
  return {};
}

// Removes overdue leases with their folders; without its folder a saver cannot publish (lease.h).
Result<void> Pruner::take_away_overdue(std::vector<LeaseInfo>& leases) {
  for (const auto& lease : leases) {
    if (lease.alive) continue;
    const std::string base = io::join(store_.tmp_dir(), lease.id);
    FF_TRY(
        ignore_not_found(disk_.rename(base, new_trash_path(context_, store_, kTrashedUnfinished))));
    FF_TRY(ignore_not_found(disk_.remove(base + std::string(kLeaseSuffix))));
    report_.overdue.push_back(lease);
  }
  std::erase_if(leases, [](const auto& lease) { return !lease.alive; });
  return {};
}

Result<void> Pruner::remove_abandoned() {
  for (const auto& dir : abandoned_dirs_) {
    FF_TRY(ignore_not_found(disk_.rename(dir, new_trash_path(context_, store_, kTrashedShards))));
    // After a power loss a rank must not find shards without their chunks.
    FF_TRY(ignore_not_found(disk_.sync_dir(io::parent(dir))));
  }
  return {};
}

// Moves unmarked chunks that are old enough to the trash; a dry run counts them.
Result<void> Pruner::move_unreferenced() {
  for (unsigned byte = 0; byte <= 0xff; byte++) {
    FF_TRY(context_.stop.check());
    const auto entries = disk_.list(store_.chunk_dir(byte));
    if (!entries && entries.error().code == Errc::not_found) continue;
    if (!entries) return entries.error();
    for (const auto& entry : *entries) {
      const auto chunk = simd::parse_digest(store_.digest_kind(), entry.name);
      if (!chunk || marked(*chunk)) continue;
      const auto info = disk_.info(store_.chunk_path(*chunk));
      if (!info && info.error().code == Errc::not_found) continue;
      if (!info) return info.error();
      FF_TRY(const int64_t age, age_of(store_.chunk_path(*chunk), info->mtime_ns));
      if (age < options_.grace_ns) {
        report_.chunks_recent++;
        report_.bytes_recent += info->size;
      } else if (options_.dry_run) {
        report_.chunks_deleted++;
        report_.bytes_deleted += info->size;
      } else {
        FF_TRY(
            ignore_not_found(disk_.rename(store_.chunk_path(*chunk), store_.trash_path(*chunk))));
      }
    }
  }
  return {};
}

// Waits for the leases that exist now, after the moves; a later saver sees the store as it is now.
// Each pass over the indexes follows a listing of the leases and the removal of overdue ones, so it
// sees what ended savers have published.
Result<void> Pruner::settle_leases() {
  const int64_t until = context_.clock.steady_ns() + options_.wait_ns;
  FF_TRY(report_.running, list_leases(context_, store_));
  FF_TRY(take_away_overdue(report_.running));
  while (!report_.running.empty() && context_.clock.steady_ns() < until) {
    const int64_t left = until - context_.clock.steady_ns();
    FF_TRY(context_.stop.sleep_ns(std::min(kPollNs, left)));
    FF_TRY(auto now, list_leases(context_, store_));
    FF_TRY(take_away_overdue(now));
    std::erase_if(report_.running, [&](const auto& lease) {
      return std::none_of(now.begin(), now.end(),
                          [&](const auto& other) { return other.id == lease.id; });
    });
  }
  FF_TRY(mark(Absence::durable));
  return restore();
}

Result<void> Pruner::empty_trash() {
  if (!report_.running.empty()) return count_trash();
  FF_TRY(const auto entries, disk_.list(store_.trash_dir()));
  for (const auto& entry : entries) {
    FF_TRY(context_.stop.check());
    const auto chunk = simd::parse_digest(store_.digest_kind(), entry.name);
    if (chunk) FF_TRY(delete_chunk(entry.name, *chunk));
  }
  return {};
}

Result<void> Pruner::delete_chunk(const std::string& name, const simd::Digest& chunk) {
  const std::string path = io::join(store_.trash_dir(), name);
  const auto info = disk_.info(path);
  if (!info && info.error().code == Errc::not_found) return {};  // a saver has restored it
  if (!info) return info.error();
  if (marked(chunk)) {
    // A saver has written it again: the copy in the trash may go once the new name is durable.
    FF_TRY(const bool there, io::exists(disk_, store_.chunk_path(chunk)));
    if (!there) return {};
    FF_TRY(disk_.sync_dir(store_.chunk_dir(std::to_integer<unsigned>(chunk.bytes[0]))));
  }
  const auto removed = disk_.remove(path);
  if (!removed && removed.error().code == Errc::not_found) return {};
  if (!removed) return removed;
  report_.chunks_deleted++;
  report_.bytes_deleted += info->size;
  context_.progress.done += info->size;
  return {};
}

// Counts unmarked chunks in the trash.
Result<void> Pruner::count_trash() {
  FF_TRY(const auto entries, disk_.list(store_.trash_dir()));
  for (const auto& entry : entries) {
    const auto chunk = simd::parse_digest(store_.digest_kind(), entry.name);
    if (!chunk || marked(*chunk)) continue;
    const auto info = disk_.info(store_.trash_path(*chunk));
    if (!info) continue;  // a saver has restored it
    (options_.dry_run ? report_.chunks_deleted : report_.chunks_deferred)++;
    (options_.dry_run ? report_.bytes_deleted : report_.bytes_deferred) += info->size;
  }
  return {};
}

// Whether a path without a lease is older than any running action would leave it. A missing path is
// not old.
Result<bool> Pruner::is_old(const std::string& path) {
  const auto info = disk_.info(path);
  if (!info && info.error().code == Errc::not_found) return false;
  if (!info) return info.error();
  FF_TRY(const int64_t age, age_of(path, info->mtime_ns));
  return age >= std::max(options_.grace_ns, kLeaseTimeoutNs);
}

Result<void> Pruner::remove_leftovers() {
  FF_TRY(const auto trash, disk_.list(store_.trash_dir()));
  for (const auto& entry : trash) {
    const std::string_view name = entry.name;
    if (!name.ends_with(kTrashedStep) && !name.ends_with(kTrashedShards) &&
        !name.ends_with(kTrashedUnfinished)) {
      continue;
    }
    FF_TRY(io::remove_tree(disk_, io::join(store_.trash_dir(), name)));
    report_.leftovers++;
  }
  FF_TRY(remove_set_aside());
  FF_TRY(remove_old_in_tmp());
  FF_TRY(remove_old_writes(store_.path()));
  FF_TRY(const auto leases, list_leases(context_, store_));
  std::set<StepName> saving;
  for (const auto& lease : leases) saving.insert({lease.run, lease.step});
  FF_TRY(const auto runs, list_runs(disk_, store_));
  for (const auto& run : runs) {
    FF_TRY(remove_old_writes(store_.run_dir(run)));
    FF_TRY(const auto steps, list_steps(disk_, store_, run));
    for (const uint64_t step : steps) FF_TRY(remove_old_writes(store_.step_dir({run, step})));
    FF_TRY(remove_empty_folders(run, saving));
  }
  return {};
}

// Damaged chunk files, unless a checkpoint still lacks the chunk: 'repair' tries them, too.
Result<void> Pruner::remove_set_aside() {
  FF_TRY(const auto entries, disk_.list(store_.trash_dir()));
  for (const auto& entry : entries) {
    std::string_view name = entry.name;
    if (!name.ends_with(kSetAsideSuffix)) continue;
    name.remove_suffix(kSetAsideSuffix.size());
    const auto chunk = simd::parse_digest(store_.digest_kind(), name);
    if (!chunk) continue;
    FF_TRY(const bool there, io::exists(disk_, store_.chunk_path(*chunk)));
    FF_TRY(const bool old, is_old(store_.set_aside_path(*chunk)));
    if (!old || (!there && marked(*chunk))) continue;
    FF_TRY(ignore_not_found(disk_.remove(store_.set_aside_path(*chunk))));
    report_.leftovers++;
  }
  return {};
}

// Folders without a lease, and files that were made to read the clock.
Result<void> Pruner::remove_old_in_tmp() {
  FF_TRY(const auto entries, disk_.list(store_.tmp_dir()));
  for (const auto& entry : entries) {
    const std::string path = io::join(store_.tmp_dir(), entry.name);
    if (entry.name.ends_with(kLeaseSuffix) || entry.name.ends_with(kLockSuffix)) continue;
    FF_TRY(const bool leased, io::exists(disk_, path + std::string(kLeaseSuffix)));
    if (leased) continue;
    FF_TRY(const bool old, is_old(path));
    if (!old) continue;
    FF_TRY(io::remove_tree(disk_, path));
    report_.leftovers++;
  }
  return {};
}

// Temporary files of io::replace_file in a process that was killed.
Result<void> Pruner::remove_old_writes(const std::string& dir) {
  const auto entries = disk_.list(dir);
  if (!entries && entries.error().code == Errc::not_found) return {};
  if (!entries) return entries.error();
  for (const auto& entry : *entries) {
    if (entry.kind != io::FileKind::regular || !entry.name.ends_with(".tmp")) continue;
    const std::string path = io::join(dir, entry.name);
    FF_TRY(const bool old, is_old(path));
    if (!old) continue;
    FF_TRY(ignore_not_found(disk_.remove(path)));
    report_.leftovers++;
  }
  return {};
}

// Empty step folders that a save left, and runs that have nothing else; not those of a running
// save. Removing a folder that is not empty fails, which is fine.
Result<void> Pruner::remove_empty_folders(const std::string& run,
                                          const std::set<StepName>& saving) {
  FF_TRY(const auto steps, list_steps(disk_, store_, run));
  for (const uint64_t step : steps) {
    const StepName name{run, step};
    FF_TRY(const bool old, is_old(store_.step_dir(name)));
    if (!old || saving.contains(name)) continue;
    (void)disk_.remove_dir(store_.shards_dir(name));
    if (disk_.remove_dir(store_.step_dir(name))) report_.leftovers++;
  }
  FF_TRY(const bool old, is_old(store_.run_dir(run)));
  const bool in_use =
      std::any_of(saving.begin(), saving.end(), [&](const auto& name) { return name.run == run; });
  FF_TRY(const auto left, list_steps(disk_, store_, run));
  if (!old || in_use || !left.empty()) return {};
  FF_TRY(io::remove_tree(disk_, store_.tasks_dir(run)));
  if (disk_.remove_dir(store_.run_dir(run))) report_.leftovers++;
  return {};
}

}  // namespace

Result<PruneReport> prune(Context& context, const std::string& store_path,
                          const PruneOptions& options) {
  const int64_t began = context.clock.steady_ns();
  FF_TRY(const auto store, Store::open(context.disk, store_path));
  std::unique_ptr<io::File> lock;
  if (!options.dry_run) {
    FF_TRY(lock, lock_store(context.disk, store, "prune"));
  }
  PruneReport report;
  FF_TRY(Pruner(context, store, options, report).run());
  report.elapsed_ns = context.clock.steady_ns() - began;
  return report;
}

}  // namespace ff::checkpoint
