// load.cc: restores files through a staging directory.
#include "training/checkpoint/load/load.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/format/lease.h"
#include "training/checkpoint/load/restore.h"
#include "training/checkpoint/load/staging.h"
#include "training/checkpoint/load/tensor_files.h"

namespace ff::checkpoint {
namespace {

Result<void> check_load_options(const LoadOptions& options) {
  if (!options.slice.empty() && options.tensors.empty()) {
    return Error{Errc::usage, "--slice needs --tensor", "Name the tensors to cut."};
  }
  if (options.reshard && (options.rank || !options.slice.empty())) {
    return Error{Errc::usage, "--reshard cannot be combined with --rank or --slice", {}};
  }
  if (options.reshard && *options.reshard == 0) {
    return Error{Errc::usage, "--reshard 0: expected at least 1 rank", {}};
  }
  return {};
}

TensorSelection tensor_selection(const LoadOptions& options, const Staging& staging) {
  TensorSelection selection;
  selection.slice = options.slice;
  if (!options.tensors.empty()) {
    selection.tensor = [globs = options.tensors](std::string_view name) {
      return std::any_of(globs.begin(), globs.end(),
                         [&](const auto& glob) { return glob_match(glob, name); });
    };
  }
  if (options.rank) {
    selection.file = [rank = *options.rank](const FileRecord& file) { return file.rank == rank; };
  }
  selection.gather = options.reshard.has_value();
  selection.parts = options.reshard.value_or(1);
  selection.path = [dir = staging.dir(), parts = selection.parts, by_rank = !options.rank](
                       const FileRecord* file, uint32_t part) {
    if (file == nullptr) {
      return io::join(dir, fmt::format("rank-{:05}-of-{:05}.safetensors", part, parts));
    }
    return io::join(dir, RestorePaths(by_rank && file->rank > 0).of(*file));
  };
  return selection;
}

struct LoadWork {
  Context& context;
  const Store& store;
  StepName name;
  Staging& staging;
  Lease* lease;
};

Result<void> read_restored(LoadWork& work, ReadSource& source, const RestoreCount& count) {
  work.context.progress.total = count.bytes;
  FF_TRY(check_space(work.staging.disk(), work.staging.dir(), count.stored_bytes));
  ReadPlan plan{
      .context = work.context,
      .store = work.store,
      .source = source,
      .lease = work.lease,
      .on_damage = [&](const simd::Digest& chunk, const std::string& reason) -> Result<void> {
        return damaged_chunk(work.context.disk, work.store, work.name, chunk, reason);
      }};
  return run_reads(plan);
}

Result<RestoreCount> load_tensors(LoadWork& work, const LoadOptions& options) {
  FF_TRY(auto source, TensorFilesSource::plan(work.context, work.store, work.name,
                                              work.store.index_path(work.name),
                                              tensor_selection(options, work.staging)));
  if (source.count().tensors == 0) {
    return Error{Errc::not_found, fmt::format("{}: no tensor matches", work.name.text()),
                 "'ff checkpoint show' lists the tensors."};
  }
  source.write_to(work.staging.disk());
  FF_TRY(read_restored(work, source, source.count()));
  return source.count();
}

Result<RestoreCount> load_files(LoadWork& work, const LoadOptions& options) {
  RestoreSelection selection;
  if (options.rank) {
    selection.file = [rank = *options.rank](const FileRecord& file) { return file.rank == rank; };
  }
  FF_TRY(auto source,
         RestoreSource::plan(work.context, work.store.index_path(work.name), work.staging.disk(),
                             work.staging.dir(), std::move(selection)));
  if (options.rank && source.count().files == 0) {
    return Error{Errc::not_found,
                 fmt::format("{}: rank {} saved nothing", work.name.text(), *options.rank),
                 "'ff checkpoint show' lists the files and their ranks."};
  }
  FF_TRY(read_restored(work, source, source.count()));
  FF_TRY(source.finish());
  return source.count();
}

}  // namespace

Result<LoadReport> load(Context& context, const std::string& store_path,
                        const LoadOptions& options) {
  FF_TRY(check_load_options(options));
  const int64_t began = context.clock.steady_ns();
  FF_TRY(const auto store, Store::open(context.disk, store_path));
  FF_TRY(const auto name, resolve_step(context.disk, store, options.name));
  FF_TRY(auto staging, Staging::open(context, options.dest));
  auto lease = Lease::try_acquire(context, store, {.action = "load", .name = name, .attempt = {}});
  LoadWork work{context, store, name, staging, lease ? &*lease : nullptr};
  const bool tensors = !options.tensors.empty() || options.reshard;
  FF_TRY(const auto count, tensors ? load_tensors(work, options) : load_files(work, options));
  FF_TRY(staging.commit());
  return LoadReport{.name = name,
                    .files = count.files,
                    .tensors = count.tensors,
                    .bytes = count.bytes,
                    .elapsed_ns = context.clock.steady_ns() - began,
                    .warnings = {}};
}

}  // namespace ff::checkpoint
