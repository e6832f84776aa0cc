// export.cc: selected tensors into one file, written under a temporary name.
#include "training/checkpoint/load/export.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/text.h"
#include "platform/io/atomic_file.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/format/lease.h"
#include "training/checkpoint/load/restore.h"
#include "training/checkpoint/load/tensor_files.h"

namespace ff::checkpoint {
namespace {

bool any_match(const std::vector<std::string>& globs, std::string_view name) {
  return globs.empty() || std::any_of(globs.begin(), globs.end(),
                                      [&](const auto& glob) { return glob_match(glob, name); });
}

}  // namespace

Result<ExportReport> export_safetensors(Context& context, const std::string& store_path,
                                        const ExportOptions& options) {
  const int64_t began = context.clock.steady_ns();
  FF_TRY(const auto store, Store::open(context.disk, store_path));
  FF_TRY(const auto name, resolve_step(context.disk, store, options.name));
  FF_TRY(io::AtomicFile::check(context.disk, options.out, options.force));
  auto lease =
      Lease::try_acquire(context, store, {.action = "export", .name = name, .attempt = {}});
  ExportReport report{.name = name};

  TensorSelection selection;
  selection.file = [&](const FileRecord& file) {
    return any_match(options.files, file.name) && (!options.rank || file.rank == *options.rank);
  };
  selection.tensor = [&](std::string_view tensor) { return any_match(options.tensors, tensor); };
  selection.on_skipped_file = [&](const FileRecord& file) {
    report.opaque_files += file.kind == EntryKind::opaque ? 1 : 0;
  };
  selection.gather = true;
  std::unique_ptr<io::Disk> around;  // the directory of the new file
  std::optional<io::AtomicFile> made;
  selection.path = [&](const FileRecord*, uint32_t) { return made->temp_path(); };
  FF_TRY(auto source,
         TensorFilesSource::plan(context, store, name, store.index_path(name), selection));
  if (source.count().tensors == 0) {
    return Error{Errc::not_found, fmt::format("{}: no such tensor to export", name.text()),
                 "'ff checkpoint show' lists the files and their tensors."};
  }
  context.progress.total = source.count().bytes;
  FF_TRY(make_parents(context.disk, options.out));
  // Others may write to that directory, too, and must not lead the writes elsewhere.
  FF_TRY(around, context.disk.beneath(io::parent(options.out)));
  FF_TRY(check_space(*around, io::parent(options.out), source.count().bytes));
  made.emplace(*around, context.rng, options.out);
  source.write_to(*around);
  ReadPlan plan{
      .context = context,
      .store = store,
      .source = source,
      .lease = lease ? &*lease : nullptr,
      .on_damage = [&](const simd::Digest& chunk, const std::string& reason) -> Result<void> {
        return damaged_chunk(context.disk, store, name, chunk, reason);
      }};
  FF_TRY(run_reads(plan));
  FF_TRY(made->commit(options.force));
  report.tensors = source.count().tensors;
  report.bytes = source.count().bytes;
  report.elapsed_ns = context.clock.steady_ns() - began;
  return report;
}

}  // namespace ff::checkpoint
