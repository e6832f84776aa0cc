// save.cc: a save from inputs to commit: input.h cuts jobs, save_worker.h stores chunks,
// index_recorder.h writes the index, commit.h publishes it.
#include "training/checkpoint/save/save.h"

#include <fmt/format.h>

#include "platform/io/files.h"
#include "training/checkpoint/format/lease.h"
#include "training/checkpoint/save/attempt_fence.h"
#include "training/checkpoint/save/commit.h"
#include "training/checkpoint/save/index_recorder.h"
#include "training/checkpoint/save/input.h"
#include "training/checkpoint/save/save_worker.h"

namespace ff::checkpoint {
namespace {

// Without an id, shards of this start of the job could become one checkpoint with those of another.
Error attempt_missing(const SaveOptions& options) {
  return Error{Errc::usage,
               fmt::format("rank {} of {} has no attempt id, which tells this start of the job "
                           "from others",
                           options.rank, options.world),
               "Give all ranks the same id, new for each start: --attempt ID, FF_ATTEMPT, or "
               "'torchrun --rdzv-id ID'. To save this rank's files alone, give --world 1."};
}

Result<void> check_save_options(const SaveInputs& inputs, const SaveOptions& options) {
  FF_TRY(check_run_name(options.run));
  if (inputs.paths.empty() && !inputs.stream && inputs.open.empty()) {
    return Error{Errc::usage, "nothing to save", "Name files or directories, or '-'."};
  }
  if (options.world == 0 || options.rank >= options.world) {
    return Error{
        Errc::usage,
        fmt::format("rank {} does not exist in a world of {}", options.rank, options.world),
        "Ranks count from 0 to world - 1."};
  }
  if (options.world > 1 && options.attempt.empty()) {
    return attempt_missing(options);
  }
  if (options.world > 1 && !options.step) {
    return Error{
        Errc::usage, "several ranks need --step",
        "Each rank would choose its own step; give all ranks the same --step. To save this "
        "rank's files alone, give --world 1."};
  }
  if (options.world == 1 && !options.splits.empty()) {
    return Error{Errc::usage, "--split needs several ranks (--rank and --world)", {}};
  }
  return {};
}

HeaderRecord make_header(Context& context, const Store& store, const StepName& name,
                         const SaveOptions& options) {
  HeaderRecord header;
  header.run = name.run;
  header.step = name.step;
  header.world = options.world;
  if (options.world > 1) {
    header.attempt = options.attempt;
    header.rank = options.rank;
  }
  header.digest = store.digest_kind();
  header.created_ns = context.clock.wall_ns();
  header.ff_version = options.identity.ff_version;
  header.host = options.identity.host;
  header.user = options.identity.user;
  header.uid = options.identity.uid;
  return header;
}

// Stores all inputs as chunks and writes the index to the lease's folder.
Result<EndRecord> store_inputs(CommitWork& work, const SaveInputs& inputs, Lease& lease,
                               const std::string& index_path, SaveReport& report) {
  Context& context = work.context;
  FF_TRY(auto entries, list_inputs(context, inputs.paths, inputs.open));
  for (const auto& entry : entries) context.progress.total += entry.info.size;
  FF_TRY(auto writer,
         IndexWriter::create(context.disk, index_path,
                             make_header(context, work.store, work.name, work.options)));
  FF_TRY(const bool exists, io::exists(context.disk, work.store.index_path(work.name)));
  CommittedChunks committed(context.disk, work.store.index_path(work.name));
  SavePlanner planner(context, std::move(entries), inputs.stream, work.options);
  IndexRecorder recorder(std::move(writer), report);
  // Chunks that a pruner moves to the trash from now on are stored again.
  FF_TRY(const auto trashed, context.disk.list(work.store.trash_dir()));
  SaveShared shared{.context = context,
                    .store = work.store,
                    .lease = lease,
                    .planner = planner,
                    .recorder = recorder,
                    .compress = work.options.compress,
                    .committed = exists && !work.options.replace ? &committed : nullptr,
                    .wanted = nullptr,
                    .trash = !trashed.empty(),
                    .mutex = {},
                    .seen = {}};
  const auto ran = run_workers(context.threads, shared.failed,
                               [&](unsigned) { return SaveWorker::run(shared); });
  if (!ran && shared.differs) return differs_from_committed(work);
  if (!ran) return ran.error();
  report.warnings = planner.take_warnings();
  report.zero_bytes = shared.zero_bytes;
  report.chunks_new = shared.chunks_new;
  report.chunks_reused = shared.chunks_reused;
  report.bytes_written = shared.bytes_written;
  FF_TRY(planner.check_unchanged());
  const std::vector<simd::Digest> all(shared.seen.begin(), shared.seen.end());
  FF_TRY(ensure_chunks_durable(work, all));
  return recorder.finish();
}

Result<void> store_and_commit(CommitWork& work, const SaveInputs& inputs, Lease& lease,
                              SaveReport& report) {
  const std::string index_path = io::join(lease.folder(), "index.jsonl");
  FF_TRY(const auto end, store_inputs(work, inputs, lease, index_path, report));
  if (work.options.world == 1) {
    FF_TRY(report.outcome, commit_index(work, index_path, end));
  } else {
    FF_TRY(report.outcome, commit_shard(work, index_path, end, report.missing_ranks));
  }
  return {};
}

Error lease_lost(const StepName& name) {
  return Error{
      Errc::failed,
      fmt::format("{}: this save made no progress for so long that a prune removed its lease",
                  name.text()),
      "Save it again; stored chunks are not written twice."};
}

}  // namespace

Result<StepName> choose_step(Context& context, const Store& store, const SaveOptions& options) {
  if (options.step) return StepName{options.run, *options.step};
  FF_TRY(const auto steps, committed_steps(context.disk, store, options.run));
  return StepName{options.run, steps.empty() ? 1 : steps.back() + 1};
}

Result<SaveReport> save(Context& context, const std::string& store_path, const SaveInputs& inputs,
                        const SaveOptions& options) {
  FF_TRY(check_save_options(inputs, options));
  const int64_t began = context.clock.steady_ns();
  FF_TRY(const auto store,
         Store::open_or_create(context, store_path,
                               {.digest = options.digest, .uid = options.identity.uid}));
  FF_TRY(const auto name, choose_step(context, store, options));
  FF_TRY(auto lease, Lease::acquire(context, store,
                                    {.action = "save", .name = name, .attempt = options.attempt}));
  if (const auto& task = options.identity.task) {
    FF_TRY(register_attempt(context.disk, store, name.run, *task));
  }
  SaveReport report{.name = name, .warnings = {}};
  CommitWork work{context, store, lease, options, name};
  auto saved = store_and_commit(work, inputs, lease, report);
  if (!saved) {
    const auto held = lease.is_held();
    if (held && !*held) return lease_lost(name);
    return std::move(saved).error();
  }
  report.elapsed_ns = context.clock.steady_ns() - began;
  return report;
}

Result<uint64_t> store_chunks(Context& context, const Store& store, Lease& lease,
                              const std::vector<std::string>& paths,
                              const std::set<simd::Digest>& wanted, bool opaque) {
  SaveOptions options;
  if (opaque) options.opaque = {"*"};
  const StepName name{options.run, 0};
  FF_TRY(auto entries, list_inputs(context, paths));
  for (const auto& entry : entries) context.progress.total += entry.info.size;
  // The planner's records need an index, which is not published.
  FF_TRY(auto writer,
         IndexWriter::create(context.disk, io::join(lease.folder(), context.rng.hex_id()),
                             make_header(context, store, name, options)));
  SavePlanner planner(context, std::move(entries), {}, options);
  SaveReport report{.name = name, .warnings = {}};
  IndexRecorder recorder(std::move(writer), report);
  SaveShared shared{.context = context,
                    .store = store,
                    .lease = lease,
                    .planner = planner,
                    .recorder = recorder,
                    .committed = nullptr,
                    .wanted = &wanted,
                    .mutex = {},
                    .seen = {}};
  FF_TRY(run_workers(context.threads, shared.failed,
                     [&](unsigned) { return SaveWorker::run(shared); }));
  for (const auto& chunk : wanted) {
    FF_TRY(context.disk.sync_dir(store.chunk_dir(std::to_integer<unsigned>(chunk.bytes[0]))));
  }
  return shared.chunks_new.load();
}

}  // namespace ff::checkpoint
