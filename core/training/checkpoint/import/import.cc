// import.cc: what is in the files, its checksums, and the save.
#include "training/checkpoint/import/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/tensor_parts.h"
#include "training/checkpoint/import/dcp_folder.h"
#include "training/checkpoint/import/sources.h"
#include "training/checkpoint/import/tensor_file.h"
#include "training/checkpoint/import/torch_file.h"
#include "training/checkpoint/import/torch_state.h"
#include "training/checkpoint/save/save.h"

namespace ff::checkpoint {
namespace {

constexpr std::string_view kStateFile = "state.safetensors";
constexpr std::string_view kDescriptionFile = "dcp.safetensors";
constexpr uint64_t kCheckBytes = kMiB;
// Tensors may be views of the same bytes, so that a small file may have huge ones.
constexpr uint64_t kViewFactor = 16;

// Compares the bytes of storages with their CRC-32, each by one thread.
Result<void> check_storages(Context& context, ImportSources& sources,
                            const std::vector<CheckedBytes>& storages) {
  for (const auto& storage : storages) context.progress.total += storage.size;
  std::atomic<bool> failed = false;
  std::atomic<size_t> next = 0;
  return run_workers(context.threads, failed, [&](unsigned) -> Result<void> {
    std::vector<std::byte> buffer(kCheckBytes);
    for (size_t i = next++; i < storages.size() && !failed; i = next++) {
      const CheckedBytes& storage = storages[i];
      uint32_t crc = 0;
      for (uint64_t at = 0; at < storage.size; at += kCheckBytes) {
        FF_TRY(context.stop.check());
        const auto part = ByteSpan(buffer).first(std::min(kCheckBytes, storage.size - at));
        FF_TRY(sources.read(storage.source, part, storage.begin + at));
        crc = zip_crc32(crc, part);
        context.progress.done += part.size();
      }
      if (crc == storage.crc) continue;
      return Error{Errc::corrupt,
                   fmt::format("{}: {} does not match its CRC-32", sources.path(storage.source),
                               printable(storage.name)),
                   "Import another copy of the file. If it was written without checksums "
                   "(torch.serialization.set_crc32_options(False)): --skip-crc."};
    }
    return {};
  });
}

Result<void> check_views(const std::vector<ImportedTensor>& tensors, uint64_t file_bytes) {
  uint64_t all = 0;
  for (const auto& tensor : tensors) {
    if (__builtin_add_overflow(all, tensor.bytes, &all)) all = UINT64_MAX;
  }
  const uint64_t most = file_bytes * kViewFactor + kGiB;
  if (all <= most) return {};
  return Error{Errc::failed,
               fmt::format("the tensors have {} bytes, which are views of {} bytes of the file",
                           all, file_bytes),
               "Save clones of tensors that were made by expand()."};
}

Result<SaveReport> save_file(Context& context, const std::string& store_path,
                             const SaveOptions& options, std::string_view name,
                             std::shared_ptr<io::File> file) {
  const std::string whole(name);
  return save(context, store_path,
              {.paths = {}, .stream = {}, .open = {{.name = whole, .file = std::move(file)}}},
              options);
}

Result<ImportReport> import_file(Context& context, const std::string& store_path,
                                 const ImportOptions& options) {
  ImportSources sources(context.disk);
  FF_TRY(const size_t source, sources.add(options.path));
  const uint64_t size = sources.size(source);
  auto opened = TorchFile::open(sources, source, 0, size, options.skip_unknown);
  if (!opened) return std::move(opened).error().with_context(options.path + ": ");
  auto state = torch_state(*opened, options.skip_unknown);
  if (!state) return std::move(state).error().with_context(options.path + ": ");
  FF_TRY(check_views(state->tensors, size));
  if (!options.skip_crc) FF_TRY(check_storages(context, sources, state->storages));
  ImportReport report;
  report.tensors = state->tensors.size();
  report.values = state->values;
  report.left_out = state->left_out;
  report.left_out_paths = std::move(state->left_out_paths);
  FF_TRY(auto file, TensorFile::make(options.path, sources, std::move(state->tensors),
                                     {{std::string(kStateKey), std::move(state->document)}}));
  FF_TRY(report.save, save_file(context, store_path, options.save, kStateFile, std::move(file)));
  return report;
}

// Two shards, as of a save by ff.torch.dcp on one rank: all tensors, and their description.
Result<SaveReport> save_shards(Context& context, const std::string& store_path, SaveOptions options,
                               ImportSources& sources, DcpCheckpoint checkpoint) {
  options.rank = 0;
  options.world = 2;
  options.attempt = context.rng.hex_id();
  FF_TRY(auto file, TensorFile::make("the imported tensors", sources, std::move(checkpoint.tensors),
                                     {{std::string(kTensorPartsKey), checkpoint.parts}}));
  FF_TRY(const auto first, save_file(context, store_path, options, kStateFile, std::move(file)));
  ImportedTensor description{.name = std::string(kDcpDescription),
                             .dtype = "U8",
                             .shape = {checkpoint.description.size()},
                             .bytes = checkpoint.description.size(),
                             .memory = std::make_shared<const std::string>(checkpoint.description)};
  FF_TRY(
      auto described,
      TensorFile::make("the description", sources, {std::move(description)},
                       {{std::string(kTensorPartsKey),
                         fmt::format(R"({{"slices":{{}},"objects":["{}"]}})", kDcpDescription)}}));
  options.rank = 1;
  FF_TRY(auto report,
         save_file(context, store_path, options, kDescriptionFile, std::move(described)));
  report.files += first.files;
  report.tensors += first.tensors;
  report.bytes += first.bytes;
  report.zero_bytes += first.zero_bytes;
  report.chunks_new += first.chunks_new;
  report.chunks_reused += first.chunks_reused;
  report.bytes_written += first.bytes_written;
  report.elapsed_ns += first.elapsed_ns;
  return report;
}

Result<ImportReport> import_folder(Context& context, const std::string& store_path,
                                   const ImportOptions& options) {
  FF_TRY(const auto inside, context.disk.beneath(options.path));
  ImportSources sources(*inside);
  FF_TRY(auto checkpoint, read_dcp_folder(sources, options.path, options.skip_unknown));
  uint64_t file_bytes = 0;
  for (const auto& storage : checkpoint.storages) file_bytes += storage.size;
  FF_TRY(check_views(checkpoint.tensors, file_bytes));
  if (!options.skip_crc) FF_TRY(check_storages(context, sources, checkpoint.storages));
  ImportReport report;
  report.is_folder = true;
  report.values = checkpoint.objects;
  report.tensors = checkpoint.tensors.size() - checkpoint.objects;
  report.left_out = checkpoint.left_out;
  report.left_out_paths = checkpoint.left_out_names;
  SaveOptions save_options = options.save;
  FF_TRY(const auto store,
         Store::open_or_create(context, store_path,
                               {.digest = save_options.digest, .uid = save_options.identity.uid}));
  FF_TRY(const auto name, choose_step(context, store, save_options));
  save_options.step = name.step;
  FF_TRY(report.save,
         save_shards(context, store_path, save_options, sources, std::move(checkpoint)));
  return report;
}

}  // namespace

Result<ImportReport> import_torch(Context& context, const std::string& store_path,
                                  const ImportOptions& options) {
  FF_TRY(check_run_name(options.save.run));
  if (context.disk.info(options.path + "/.")) {
    FF_TRY(const bool is_dcp,
           io::exists(context.disk, io::join(options.path, std::string(kDcpMetadataFile))));
    if (is_dcp) return import_folder(context, store_path, options);
    return Error{Errc::failed,
                 fmt::format("{}: the folder has no file {}, which the last rank that saves with "
                             "torch.distributed.checkpoint writes",
                             options.path, kDcpMetadataFile),
                 "Give the folder of one complete checkpoint, or a file of torch.save()."};
  }
  return import_file(context, store_path, options);
}

}  // namespace ff::checkpoint
