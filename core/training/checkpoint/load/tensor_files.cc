// tensor_files.cc: new safetensors files, in two passes over the index: layout, then read jobs.
#include "training/checkpoint/load/tensor_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "platform/base/text.h"
#include "training/checkpoint/format/tensor_parts.h"

namespace ff::checkpoint {
namespace {

constexpr size_t kRunsAtOnce = 4096;                     // that become read jobs together
constexpr std::string_view kSliceOf = R"("slice_of":)";  // in an index line

std::vector<uint64_t> zeros_like(const std::vector<uint64_t>& shape) {
  return std::vector<uint64_t>(shape.size(), 0);
}

// The dimension in which a slice is smaller than the whole tensor; -1: none.
int split_dimension(const TensorRecord& tensor) {
  for (size_t i = 0; i < tensor.global_shape.size(); i++) {
    if (tensor.global_shape[i] != tensor.shape[i]) return static_cast<int>(i);
  }
  return -1;
}

// Whether a slice spans the whole tensor in every dimension but `split`.
bool spans_the_rest(const TensorRecord& tensor, size_t split) {
  for (size_t i = 0; i < tensor.shape.size(); i++) {
    if (i != split && tensor.shape[i] != tensor.global_shape[i]) return false;
  }
  return true;
}

}  // namespace

TensorFilesSource::TensorFilesSource(Context& context, const Store& store, StepName name,
                                     std::string index_path, TensorSelection selection)
    : context_(&context),
      store_(&store),
      name_(std::move(name)),
      index_path_(std::move(index_path)),
      selection_(std::move(selection)) {}

Result<TensorFilesSource> TensorFilesSource::plan(Context& context, const Store& store,
                                                  const StepName& name,
                                                  const std::string& index_path,
                                                  TensorSelection selection) {
  TensorFilesSource source(context, store, name, index_path, std::move(selection));
  FF_TRY(source.open_reader());
  FF_TRY(source.scan());
  FF_TRY(source.open_reader());
  return source;
}

Result<void> TensorFilesSource::open_reader() {
  FF_TRY(reader_, IndexReader::open(index_disk(), index_path_));
  return {};
}

io::Disk& TensorFilesSource::index_disk() const {
  return selection_.index_disk != nullptr ? *selection_.index_disk : context_->disk;
}

std::string TensorFilesSource::layout_key(const FileRecord& file) const {
  return selection_.gather ? std::string() : fmt::format("{}/{}", file.rank, file.name);
}

// What a tensor is called in the new files.
const std::string& TensorFilesSource::name_of(const TensorRecord& tensor) const {
  return selection_.gather ? whole_name(tensor) : tensor.name;
}

// Parses only the name, if that is what counts: most lines are skipped.
Result<bool> TensorFilesSource::is_selected(std::string_view tensor_line) const {
  if (!selection_.tensor) return true;
  if (selection_.gather && tensor_line.find(kSliceOf) != tensor_line.npos) {
    FF_TRY(const auto record, reader_->parse(tensor_line));
    const auto* tensor = std::get_if<TensorRecord>(&record);
    return tensor != nullptr && selection_.tensor(whole_name(*tensor));
  }
  FF_TRY(const std::string name, reader_->name_in(tensor_line));
  return selection_.tensor(name);
}

// Pass one: the layout of the new files, and their headers.
Result<void> TensorFilesSource::scan() {
  std::optional<FileRecord> file;
  bool metadata_read = false;
  for (;;) {
    FF_TRY(context_->stop.check());
    FF_TRY(const auto line, reader_->next_line());
    if (!line) return finish_layouts();
    if (line_type(*line) == LineType::tensor) {
      if (!file) continue;
      FF_TRY(const bool wanted, is_selected(*line));
      if (!wanted) continue;
    }
    FF_TRY(auto record, reader_->parse(*line));
    if (auto* found = std::get_if<FileRecord>(&record)) {
      file.reset();
      FF_TRY(const bool wanted, scan_file(*found));
      if (!wanted) continue;
      file = std::move(*found);
      metadata_read = false;
    } else if (auto* tensor = std::get_if<TensorRecord>(&record)) {
      Layout& layout = layouts_[layout_key(*file)];
      if (!metadata_read) {
        FF_TRY(scan_metadata(*file, layout));
        file->extents = {};
        if (!selection_.gather) layout.source = *file;
      }
      metadata_read = true;
      FF_TRY(scan_tensor(*tensor, layout));
    }
  }
}

// Whether the tensors of the file may be selected.
Result<bool> TensorFilesSource::scan_file(const FileRecord& file) {
  files_seen_++;
  if (selection_.file && !selection_.file(file)) return false;
  if (file.kind != EntryKind::safetensors) {
    if (selection_.on_skipped_file) selection_.on_skipped_file(file);
    return false;
  }
  if (selection_.gather || sources_.insert(layout_key(file)).second) return true;
  return fail(Errc::corrupt, "index {}: rank {} has two files named '{}'", index_path_, file.rank,
              printable(file.name));
}

// Adds a source file's metadata; the first value of a key counts. What it says of its slices does
// not hold for new files.
Result<void> TensorFilesSource::scan_metadata(const FileRecord& file, Layout& layout) {
  auto pairs = read_metadata(*context_, *store_, file.extents);
  if (!pairs && selection_.metadata_may_fail) return {};
  if (!pairs) {
    return std::move(pairs).error().with_context(
        fmt::format("index {}: header of file '{}': ", index_path_, printable(file.name)));
  }
  if (!*pairs) return {};
  const auto is_of_parts = [](const auto& pair) { return pair.first == kTensorPartsKey; };
  if (std::erase_if(**pairs, is_of_parts) > 0 && (*pairs)->empty()) return {};
  if (!layout.metadata) layout.metadata.emplace();
  SafetensorsMetadata fresh;
  for (auto& pair : **pairs) {
    if (layout.metadata_keys.insert(pair.first).second) fresh.push_back(std::move(pair));
  }
  FF_TRY(metadata_budget_.take(fresh, index_path_));
  std::move(fresh.begin(), fresh.end(), std::back_inserter(*layout.metadata));
  return {};
}

Result<TensorFilesSource::Entry> TensorFilesSource::make_entry(const TensorRecord& tensor) const {
  Entry entry{.shape = tensor.shape,
              .bytes = tensor.size,
              .source = reader_->line_position(),
              .file = files_seen_,
              .dtype = {},
              .global_shape = {}};
  const bool splits = selection_.gather && split_dimension(tensor) >= 0;
  if (!splits && selection_.slice.empty()) return entry;
  const unsigned bits = dtype_bits(tensor.dtype);
  if (bits == 0 || bits % 8 != 0) {
    return fail(Errc::failed, "tensor '{}': slices do not begin at whole bytes in type {}",
                printable(tensor.name), printable(tensor.dtype));
  }
  if (splits) FF_TRY(make_split(tensor, entry));
  if (!selection_.slice.empty()) {
    auto slice = fit_slice(selection_.slice, entry.shape);
    if (!slice) {
      return std::move(slice).error().with_context(
          fmt::format("tensor '{}': ", printable(tensor.name)));
    }
    for (size_t i = 0; i < slice->size(); i++) {
      entry.shape[i] = (*slice)[i].end - (*slice)[i].begin;
    }
  }
  const auto bytes = tensor_bytes(tensor.dtype, entry.shape);
  if (!bytes) {
    return fail(Errc::corrupt, "index {}: tensor '{}' is larger than 2^62 bytes", index_path_,
                printable(tensor.name));
  }
  entry.bytes = *bytes;
  return entry;
}

// The shape of each new part of a tensor that was split over ranks.
Result<void> TensorFilesSource::make_split(const TensorRecord& tensor, Entry& entry) const {
  entry.split = split_dimension(tensor);
  entry.dtype = tensor.dtype;
  entry.global_shape = tensor.global_shape;
  entry.shape = tensor.global_shape;
  entry.cover = std::make_unique<SliceCover>();
  entry.cover->add(tensor.slice_start, tensor.shape);
  const auto dimension = static_cast<size_t>(entry.split);
  uint64_t& length = entry.shape[dimension];
  if (length % selection_.parts != 0) {
    return Error{Errc::failed,
                 fmt::format("tensor '{}': {} elements in dimension {} do not split into {} "
                             "equal parts",
                             printable(whole_name(tensor)), length, entry.split, selection_.parts),
                 "Choose a number of ranks that divides it."};
  }
  length /= selection_.parts;
  return {};
}

Result<void> TensorFilesSource::scan_tensor(const TensorRecord& tensor, Layout& layout) {
  if (selection_.gather && tensor.is_object) return {};
  const std::string& name = name_of(tensor);
  if (auto it = layout.entries.find(name); it != layout.entries.end()) {
    Entry& entry = it->second;
    const bool slices = entry.split >= 0 && !tensor.global_shape.empty();
    if (entry.file == files_seen_ && !slices) {
      return fail(Errc::corrupt, "index {}: one file has two tensors named '{}'", index_path_,
                  printable(tensor.name));
    }
    if (entry.split >= 0 && tensor.dtype == entry.dtype &&
        tensor.global_shape == entry.global_shape) {
      entry.cover->add(tensor.slice_start, tensor.shape);
      return {};
    }
    FF_TRY(const bool same, same_as(tensor, entry));
    if (same && entry.split < 0) return {};
    return Error{
        Errc::failed, fmt::format("tensor '{}' differs between files or ranks", printable(name)),
        "Choose one with --rank or --file; save tensors that are split over ranks with --split."};
  }
  FF_TRY(auto entry, make_entry(tensor));
  entry.offset = layout.writer.data_size();
  if (entry.bytes > kIndexNumberMax - std::min(entry.offset, kIndexNumberMax)) {
    return fail(Errc::corrupt, "index {}: its tensors have more than 2^62 bytes", index_path_);
  }
  layout.writer.tensor(name, tensor.dtype, entry.shape, entry.bytes);
  // Slices are short runs, unless they are cut in the first dimension only.
  layout.scattered = layout.scattered || entry.split > 0 || selection_.slice.size() > 1 ||
                     (entry.split == 0 && !spans_the_rest(tensor, 0));
  if (selection_.slice.empty()) std::vector<uint64_t>().swap(entry.shape);  // there may be millions
  layout.entries.emplace(name, std::move(entry));
  count_.tensors++;
  return {};
}

// Whether a tensor equals, byte for byte, the one of its name in the layout. (Small tensors share
// chunks with their neighbours, so equal tensors may have different chunks.)
Result<bool> TensorFilesSource::same_as(const TensorRecord& tensor, const Entry& entry) {
  const auto kind = reader_->header().digest;
  FF_TRY(auto file, index_disk().open(index_path_, {}));
  FF_TRY(const auto record, read_record_at(*file, entry.source, kind));
  const auto* first = std::get_if<TensorRecord>(&record);
  if (first == nullptr) return changed();
  if (first->dtype != tensor.dtype || first->shape != tensor.shape) return false;
  const auto equal_places = [](const ChunkExtent& a, const ChunkExtent& b) {
    return a.chunk == b.chunk && a.offset == b.offset && a.length == b.length;
  };
  if (std::equal(first->extents.begin(), first->extents.end(), tensor.extents.begin(),
                 tensor.extents.end(), equal_places)) {
    return true;
  }
  if (!comparing_) {
    FF_TRY(auto a, ExtentReader::make(*context_, *store_, name_));
    FF_TRY(auto b, ExtentReader::make(*context_, *store_, name_));
    comparing_.emplace(std::move(a), std::move(b));
  }
  FF_TRY(const uint64_t differing,
         differing_bytes({comparing_->first, comparing_->second}, first->extents, tensor.extents));
  return differing == 0;
}

Result<void> TensorFilesSource::finish_layouts() {
  comparing_.reset();
  sources_.clear();
  for (auto& [key, layout] : layouts_) {
    FF_TRY(check_slices(layout));
    if (layout.metadata) layout.writer.metadata(*layout.metadata);
    layout.metadata.reset();
    layout.metadata_keys.clear();
    auto header = layout.writer.finish();
    if (!header) return std::move(header).error().with_context("index " + index_path_ + ": ");
    layout.file_bytes = header->size() + layout.writer.data_size();
    layout.header = std::make_shared<const std::string>(std::move(*header));
    count_.files += selection_.parts;
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(layout.file_bytes, uint64_t{selection_.parts}, &bytes)) {
      bytes = UINT64_MAX;
    }
    count_.bytes = add_or_max(count_.bytes, bytes);
  }
  count_.stored_bytes = count_.bytes;
  return {};
}

// Whether the slices of each split tensor make up all of it.
Result<void> TensorFilesSource::check_slices(Layout& layout) {
  for (auto& [name, entry] : layout.entries) {
    if (entry.split < 0) continue;
    const auto covered = entry.cover->check(entry.global_shape);
    entry.cover.reset();
    if (covered) continue;
    return Error{covered.error().code,
                 fmt::format("tensor '{}': {}", printable(name), covered.error().message),
                 "A tensor that was split over ranks needs the files of all of them."};
  }
  return {};
}

Error TensorFilesSource::changed() const {
  return fail(Errc::failed, "index {}: another program changed it during the load", index_path_);
}

Result<void> TensorFilesSource::create_files(Layout& layout) {
  layout.created = true;
  for (uint32_t part = 0; part < selection_.parts; part++) {
    const std::string path = selection_.path(layout.source ? &*layout.source : nullptr, part);
    FF_TRY(make_parents(*target_, path));
    OutFile::Spec spec{.path = path,
                       .size = layout.file_bytes,
                       .mode = layout.source ? layout.source->mode : 0644,
                       .mtime_ns = {},
                       .sparse = true,
                       .scattered = layout.scattered};
    FF_TRY(auto file, OutFile::create(*target_, std::move(spec)));
    file->add_writer();
    builder_.literal(layout.header, file, 0);
    layout.files.push_back(std::move(file));
  }
  return {};
}

Result<std::optional<ReadJob>> TensorFilesSource::next() {
  for (;;) {
    if (auto job = builder_.take()) return std::optional(std::move(job));
    if (!pending_.empty()) {
      FF_TRY(make_jobs(pending_.front()));
      continue;
    }
    if (ended_) return std::optional<ReadJob>();
    FF_TRY(const auto line, reader_->next_line());
    if (!line) {
      ended_ = true;
      FF_TRY(end_files());
      continue;
    }
    if (line_type(*line) == LineType::tensor) {
      if (current_ == nullptr) continue;
      FF_TRY(const bool wanted, is_selected(*line));
      if (!wanted) continue;
    }
    FF_TRY(auto record, reader_->parse(*line));
    if (const auto* file = std::get_if<FileRecord>(&record)) {
      if (!selection_.gather) FF_TRY(end_files());
      current_ = nullptr;
      if (file->kind != EntryKind::safetensors) continue;
      if (selection_.file && !selection_.file(*file)) continue;
      const auto it = layouts_.find(layout_key(*file));
      if (it == layouts_.end()) continue;
      current_ = &it->second;
      if (!current_->created) FF_TRY(create_files(*current_));
      if (current_->files.empty()) return changed();
    } else if (auto* tensor = std::get_if<TensorRecord>(&record)) {
      FF_TRY(add_tensor(std::move(*tensor), *current_));
    }
  }
}

Result<void> TensorFilesSource::end_files() {
  builder_.flush();
  for (auto& [key, layout] : layouts_) {
    if (!layout.created) continue;
    for (auto& file : layout.files) FF_TRY(file->remove_writer());
    layout.files.clear();
  }
  return {};
}

// The index is checked again: another program may have changed it since pass one.
Result<void> TensorFilesSource::add_tensor(TensorRecord tensor, Layout& layout) {
  if (selection_.gather && tensor.is_object) return {};
  const auto found = layout.entries.find(name_of(tensor));
  if (found == layout.entries.end()) return changed();
  Entry& entry = found->second;
  if (entry.split >= 0) return add_split(std::move(tensor), entry, layout);
  if (entry.written) return {};
  entry.written = true;
  if (!selection_.slice.empty()) return add_slice(std::move(tensor), entry, layout);
  if (tensor.size != entry.bytes) return changed();
  const uint64_t offset = layout.header->size() + entry.offset;
  const auto extents = std::make_shared<const std::vector<ChunkExtent>>(std::move(tensor.extents));
  for (const auto& file : layout.files) builder_.add_all(extents, file, offset);
  return {};
}

namespace {

std::shared_ptr<const std::vector<uint64_t>> starts_of(const std::vector<ChunkExtent>& extents) {
  std::vector<uint64_t> starts;
  uint64_t at = 0;
  for (const auto& extent : extents) {
    starts.push_back(at);
    at += extent.length;
  }
  return std::make_shared<const std::vector<uint64_t>>(std::move(starts));
}

}  // namespace

// Adds the same slice of a tensor to every part.
Result<void> TensorFilesSource::add_slice(TensorRecord tensor, const Entry& entry,
                                          const Layout& layout) {
  FF_TRY(const auto slice, fit_slice(selection_.slice, tensor.shape));
  BoxCopy box{.from_shape = tensor.shape,
              .from_start = {},
              .to_shape = entry.shape,
              .to_start = zeros_like(entry.shape),
              .size = {},
              .element_bytes = dtype_bits(tensor.dtype) / 8};
  for (const auto& range : slice) {
    box.from_start.push_back(range.begin);
    box.size.push_back(range.end - range.begin);
  }
  if (box.size != entry.shape) return changed();
  if (tensor_bytes(tensor.dtype, entry.shape) != entry.bytes) return changed();
  PendingRuns common{.runs = BoxRuns(box),
                     .extents = {},
                     .starts = starts_of(tensor.extents),
                     .size = tensor.size,
                     .file = {},
                     .offset = layout.header->size() + entry.offset};
  common.extents = std::make_shared<const std::vector<ChunkExtent>>(std::move(tensor.extents));
  for (uint32_t part = 0; part < selection_.parts; part++) add_box(box, common, layout, part);
  return {};
}

// Adds a rank's slice of a split tensor to every new part that it overlaps.
Result<void> TensorFilesSource::add_split(TensorRecord tensor, const Entry& entry,
                                          const Layout& layout) {
  const auto d = static_cast<size_t>(entry.split);
  if (tensor.dtype != entry.dtype || tensor.global_shape != entry.global_shape) return changed();
  const uint64_t part_length = tensor.global_shape[d] / selection_.parts;
  const uint64_t begin = tensor.slice_start[d];
  const uint64_t end = begin + tensor.shape[d];
  PendingRuns common{.runs = BoxRuns({}),
                     .extents = {},
                     .starts = starts_of(tensor.extents),
                     .size = tensor.size,
                     .file = {},
                     .offset = layout.header->size() + entry.offset};
  common.extents = std::make_shared<const std::vector<ChunkExtent>>(std::move(tensor.extents));
  for (uint32_t part = 0; part < selection_.parts; part++) {
    const uint64_t from = std::max(begin, part * part_length);
    const uint64_t to = std::min(end, (part + 1) * part_length);
    if (from >= to) continue;
    BoxCopy box{.from_shape = tensor.shape,
                .from_start = zeros_like(tensor.shape),
                .to_shape = tensor.global_shape,
                .to_start = tensor.slice_start,
                .size = tensor.shape,
                .element_bytes = dtype_bits(tensor.dtype) / 8};
    box.from_start[d] = from - begin;
    box.to_shape[d] = part_length;
    box.to_start[d] = from - part * part_length;
    box.size[d] = to - from;
    add_box(box, common, layout, part);
  }
  return {};
}

void TensorFilesSource::add_box(const BoxCopy& box, const PendingRuns& common, const Layout& layout,
                                uint32_t part) {
  PendingRuns pending = common;
  pending.runs = BoxRuns(box);
  pending.file = layout.files[part];
  pending_.push_back(std::move(pending));
}

// Makes read jobs of the next runs; removes `pending`, the first of pending_, after the last one.
Result<void> TensorFilesSource::make_jobs(PendingRuns& pending) {
  const auto& starts = *pending.starts;
  for (size_t i = 0; i < kRunsAtOnce; i++) {
    auto run = pending.runs.next();
    if (!run) {
      pending_.pop_front();
      return {};
    }
    if (run->from > pending.size || run->length > pending.size - run->from) return changed();
    auto at = static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), run->from) -
                                  starts.begin() - 1);
    for (; run->length > 0; at++) {
      const ChunkExtent& extent = (*pending.extents)[at];
      const uint64_t skip = run->from - starts[at];
      const uint64_t length = std::min(run->length, extent.length - skip);
      builder_.add(extent, skip, length, pending.file, pending.offset + run->to);
      run->from += length;
      run->to += length;
      run->length -= length;
    }
  }
  return {};
}

}  // namespace ff::checkpoint
