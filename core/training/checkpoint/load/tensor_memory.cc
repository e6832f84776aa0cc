// tensor_memory.cc: two passes over the index: one lists the tensors, one makes read jobs.
#include "training/checkpoint/load/tensor_memory.h"

#include <algorithm>

#include "platform/base/text.h"
#include "platform/io/memory_file.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/load/read_worker.h"
#include "training/checkpoint/load/restore.h"

namespace ff::checkpoint {
namespace {

// The selected tensors of an index, in its order, and their safetensors files.
class Chooser {
 public:
  Chooser(IndexReader reader, const TensorMemoryOptions& options)
      : reader_(std::move(reader)), options_(options) {}

  // The next file or chosen tensor; nothing at the end.
  Result<std::optional<Record>> next() {
    for (;;) {
      FF_TRY(const auto line, reader_.next_line());
      if (!line) return std::optional<Record>();
      const LineType type = line_type(*line);
      if (type == LineType::tensor) {
        FF_TRY(const bool wanted, wants(*line));
        if (!wanted) continue;
      } else if (type != LineType::file) {
        continue;
      }
      FF_TRY(auto record, reader_.parse(*line));
      if (const auto* file = std::get_if<FileRecord>(&record)) {
        in_file_ = file->kind == EntryKind::safetensors &&
                   (!options_.rank || file->rank == *options_.rank);
        if (!in_file_) continue;
      }
      return std::optional(std::move(record));
    }
  }

 private:
  Result<bool> wants(std::string_view line) const {
    if (!in_file_ || options_.tensors.empty()) return in_file_;
    FF_TRY(const std::string name, reader_.name_in(line));
    return std::ranges::any_of(options_.tensors,
                               [&](const auto& glob) { return glob_match(glob, name); });
  }

  IndexReader reader_;
  const TensorMemoryOptions& options_;
  bool in_file_ = false;
};

}  // namespace

// The selected tensors one after the other, as if they were one file.
class TensorMemory::Source final : public ReadSource {
 public:
  Source(Chooser chooser, const std::vector<Tensor>& tensors, std::shared_ptr<OutFile> file)
      : chooser_(std::move(chooser)), tensors_(tensors), file_(std::move(file)) {
    file_->add_writer();
  }

  Result<std::optional<ReadJob>> next() override {
    for (;;) {
      if (auto job = builder_.take()) return std::optional(std::move(job));
      if (file_ == nullptr) return std::optional<ReadJob>();
      FF_TRY(auto record, chooser_.next());
      if (!record) {
        if (next_ != tensors_.size()) return replaced(tensors_[next_].name);
        builder_.flush();
        FF_TRY(file_->remove_writer());
        file_ = nullptr;
      } else if (auto* tensor = std::get_if<TensorRecord>(&*record)) {
        FF_TRY(check(*tensor));
        builder_.add_all(std::move(tensor->extents), file_, at_);
        at_ += tensor->size;
        next_++;
      }
    }
  }

 private:
  // The step may have been replaced since plan().
  Result<void> check(const TensorRecord& tensor) const {
    if (next_ < tensors_.size() && tensors_[next_].name == tensor.name &&
        tensors_[next_].bytes == tensor.size) {
      return {};
    }
    return replaced(tensor.name);
  }
  static Error replaced(std::string_view tensor) {
    return fail(Errc::failed, "tensor '{}': another save replaced the checkpoint during the load",
                printable(tensor));
  }

  Chooser chooser_;
  const std::vector<Tensor>& tensors_;
  size_t next_ = 0;  // of tensors_
  std::shared_ptr<OutFile> file_;
  JobBuilder builder_;
  uint64_t at_ = 0;
};

Result<std::unique_ptr<TensorMemory>> TensorMemory::plan(Context& context,
                                                         const std::string& store_path,
                                                         const TensorMemoryOptions& options) {
  FF_TRY(auto store, Store::open(context.disk, store_path));
  FF_TRY(auto name, resolve_step(context.disk, store, options.name));
  std::unique_ptr<TensorMemory> made(
      new TensorMemory(context, std::move(store), std::move(name), options));
  auto lease = Lease::try_acquire(context, made->store_,
                                  {.action = "load", .name = made->name_, .attempt = {}});
  if (lease) made->lease_ = std::make_unique<Lease>(std::move(*lease));
  FF_TRY(made->scan());
  return made;
}

Result<void> TensorMemory::scan() {
  FF_TRY(auto reader, IndexReader::open(context_.disk, store_.index_path(name_)));
  Chooser chooser(std::move(reader), options_);
  std::vector<std::vector<ChunkExtent>> headers;
  for (;;) {
    FF_TRY(context_.stop.check());
    FF_TRY(auto record, chooser.next());
    if (!record) break;
    if (auto* file = std::get_if<FileRecord>(&*record)) {
      files_.push_back({.name = std::move(file->name),
                        .rank = file->rank,
                        .metadata = {},
                        .first = tensors_.size()});
      headers.push_back(std::move(file->extents));
    } else if (auto* tensor = std::get_if<TensorRecord>(&*record)) {
      files_.back().tensors++;
      tensors_.push_back({.name = std::move(tensor->name),
                          .dtype = std::move(tensor->dtype),
                          .shape = std::move(tensor->shape),
                          .bytes = tensor->size});
    }
  }
  MetadataBudget budget;
  for (size_t i = 0; i < files_.size(); i++) {
    if (!options_.tensors.empty() && files_[i].tensors == 0) continue;
    FF_TRY(files_[i].metadata, metadata_of(headers[i], files_[i].name));
    FF_TRY(budget.take(files_[i].metadata, store_.index_path(name_)));
  }
  if (!options_.tensors.empty()) {
    std::erase_if(files_, [](const File& file) { return file.tensors == 0; });
  }
  if (!files_.empty()) return {};
  return Error{
      Errc::not_found, fmt::format("{}: no such tensors", name_.text()),
      "'ff checkpoint show' lists the tensors; 'ff checkpoint load' restores files of any kind."};
}

Result<SafetensorsMetadata> TensorMemory::metadata_of(const std::vector<ChunkExtent>& header,
                                                      const std::string& file) const {
  auto pairs = read_metadata(context_, store_, header);
  if (!pairs) {
    return std::move(pairs).error().with_context(
        fmt::format("{}: header of file '{}': ", name_.text(), printable(file)));
  }
  return std::move(*pairs).value_or(SafetensorsMetadata());
}

Result<void> TensorMemory::read(std::span<std::byte* const> into) {
  FF_CHECK(into.size() == tensors_.size());
  std::vector<ByteSpan> parts;
  parts.reserve(into.size());
  for (size_t i = 0; i < into.size(); i++) {
    parts.emplace_back(into[i], tensors_[i].bytes);
    context_.progress.total += tensors_[i].bytes;
  }
  FF_TRY(auto reader, IndexReader::open(context_.disk, store_.index_path(name_)));
  auto memory = std::make_unique<io::MemoryFile>(name_.text(), std::move(parts));
  Source source(Chooser(std::move(reader), options_), tensors_, OutFile::wrap(std::move(memory)));
  ReadPlan plan{
      .context = context_,
      .store = store_,
      .source = source,
      .lease = lease_.get(),
      .on_damage = [&](const simd::Digest& chunk, const std::string& reason) -> Result<void> {
        return damaged_chunk(context_.disk, store_, name_, chunk, reason);
      }};
  return run_reads(plan);
}

}  // namespace ff::checkpoint
