// tensor_files.cc: new safetensors files, in two passes over the index: layout, then read jobs.
#include "training/checkpoint/load/tensor_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/text.h"

namespace ff::checkpoint {
namespace {

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

uint64_t bytes_of(const TensorRecord& tensor, const std::vector<uint64_t>& shape) {
  uint64_t bytes = dtype_bits(tensor.dtype) / 8;
  for (const uint64_t length : shape) bytes *= length;
  return bytes;
}

}  // namespace

TensorFilesSource::TensorFilesSource(Context& context, const Store& store, std::string index_path,
                                     TensorSelection selection)
    : context_(&context),
      store_(&store),
      index_path_(std::move(index_path)),
      selection_(std::move(selection)) {}

Result<TensorFilesSource> TensorFilesSource::plan(Context& context, const Store& store,
                                                  const std::string& index_path,
                                                  TensorSelection selection) {
  TensorFilesSource source(context, store, index_path, std::move(selection));
  FF_TRY(source.open_reader());
  FF_TRY(source.scan());
  FF_TRY(source.open_reader());
  return source;
}

Result<void> TensorFilesSource::open_reader() {
  FF_TRY(reader_, IndexReader::open(context_->disk, index_path_));
  return {};
}

std::string TensorFilesSource::layout_key(const FileRecord& file) const {
  return selection_.gather ? std::string() : fmt::format("{}/{}", file.rank, file.name);
}

// Parses only the name: most lines are skipped.
Result<bool> TensorFilesSource::is_selected(std::string_view tensor_line) const {
  if (!selection_.tensor) return true;
  FF_TRY(const std::string name, line_name(tensor_line));
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
    FF_TRY(auto record, parse_record(*line, reader_->header().digest));
    if (auto* found = std::get_if<FileRecord>(&record)) {
      file.reset();
      if (selection_.file && !selection_.file(*found)) continue;
      if (found->kind != EntryKind::safetensors) {
        if (selection_.on_skipped_file) selection_.on_skipped_file(*found);
        continue;
      }
      file = std::move(*found);
      metadata_read = false;
    } else if (auto* tensor = std::get_if<TensorRecord>(&record)) {
      Layout& layout = layouts_[layout_key(*file)];
      if (!selection_.gather) layout.source = *file;
      if (!metadata_read) FF_TRY(scan_metadata(*file, layout));
      metadata_read = true;
      FF_TRY(scan_tensor(*tensor, layout));
    }
  }
}

// Adds a source file's metadata; the first value of a key counts.
Result<void> TensorFilesSource::scan_metadata(const FileRecord& file, Layout& layout) {
  auto pairs = read_metadata(file);
  if (!pairs && selection_.metadata_may_fail) return {};
  if (!pairs) {
    return std::move(pairs).error().with_context(
        fmt::format("header of file '{}': ", printable(file.name)));
  }
  if (!*pairs) return {};
  if (!layout.metadata) layout.metadata.emplace();
  for (auto& pair : **pairs) {
    const bool known = std::any_of(layout.metadata->begin(), layout.metadata->end(),
                                   [&](const auto& other) { return other.first == pair.first; });
    if (!known) layout.metadata->push_back(std::move(pair));
  }
  return {};
}

Result<std::optional<SafetensorsMetadata>> TensorFilesSource::read_metadata(
    const FileRecord& file) const {
  FF_TRY(const auto header, read_extents(*context_, *store_, file.extents));
  if (header.size() < kSafetensorsLengthBytes) return fail(Errc::corrupt, "it is too short");
  return safetensors_metadata(std::string_view(header).substr(kSafetensorsLengthBytes));
}

Result<TensorFilesSource::Entry> TensorFilesSource::make_entry(const TensorRecord& tensor) const {
  Entry entry{.shape = tensor.shape, .bytes = tensor.size, .source = reader_->line_position()};
  const bool splits = selection_.gather && split_dimension(tensor) >= 0;
  if (!splits && selection_.slice.empty()) return entry;
  const unsigned bits = dtype_bits(tensor.dtype);
  if (bits == 0 || bits % 8 != 0) {
    return fail(Errc::failed, "tensor '{}': slices do not begin at whole bytes in type {}",
                printable(tensor.name), printable(tensor.dtype));
  }
  if (splits) {
    entry.split = split_dimension(tensor);
    entry.shape = tensor.global_shape;
    uint64_t& length = entry.shape[static_cast<size_t>(entry.split)];
    if (length % selection_.parts != 0) {
      return Error{Errc::failed,
                   fmt::format("tensor '{}': {} elements in dimension {} do not split into {} "
                               "equal parts",
                               printable(tensor.name), length, entry.split, selection_.parts),
                   "Choose a number of ranks that divides it."};
    }
    length /= selection_.parts;
  }
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
  entry.bytes = bytes_of(tensor, entry.shape);
  return entry;
}

Result<void> TensorFilesSource::scan_tensor(const TensorRecord& tensor, Layout& layout) {
  if (auto it = layout.entries.find(tensor.name); it != layout.entries.end()) {
    if (it->second.split >= 0) return {};
    FF_TRY(const bool same, same_as(tensor, it->second));
    if (same) return {};
    return Error{
        Errc::failed,
        fmt::format("tensor '{}' differs between files or ranks", printable(tensor.name)),
        "Choose one with --rank or --file; save tensors that are split over ranks with --split."};
  }
  FF_TRY(auto entry, make_entry(tensor));
  entry.offset = layout.writer.data_size();
  layout.writer.tensor(tensor.name, tensor.dtype, entry.shape, entry.bytes);
  if (selection_.slice.empty()) std::vector<uint64_t>().swap(entry.shape);  // there may be millions
  layout.entries.emplace(tensor.name, std::move(entry));
  count_.tensors++;
  return {};
}

// Whether a tensor equals, byte for byte, the one of its name in the layout. (Small tensors share
// chunks with their neighbours, so equal tensors may have different chunks.)
Result<bool> TensorFilesSource::same_as(const TensorRecord& tensor, const Entry& entry) {
  const auto& header = reader_->header();
  FF_TRY(auto file, context_->disk.open(index_path_, {}));
  FF_TRY(const auto record, read_record_at(*file, entry.source, header.digest));
  const auto& first = std::get<TensorRecord>(record);
  if (first.dtype != tensor.dtype || first.shape != tensor.shape) return false;
  const auto equal_places = [](const ChunkExtent& a, const ChunkExtent& b) {
    return a.chunk == b.chunk && a.offset == b.offset && a.length == b.length;
  };
  if (std::equal(first.extents.begin(), first.extents.end(), tensor.extents.begin(),
                 tensor.extents.end(), equal_places)) {
    return true;
  }
  const StepName name{header.run, header.step};
  if (!comparing_) {
    FF_TRY(auto a, ExtentReader::make(*context_, *store_, name));
    FF_TRY(auto b, ExtentReader::make(*context_, *store_, name));
    comparing_.emplace(std::move(a), std::move(b));
  }
  FF_TRY(const uint64_t differing,
         differing_bytes({comparing_->first, comparing_->second}, first.extents, tensor.extents));
  return differing == 0;
}

Result<void> TensorFilesSource::finish_layouts() {
  comparing_.reset();
  for (auto& [key, layout] : layouts_) {
    if (layout.metadata) layout.writer.metadata(*layout.metadata);
    FF_TRY(layout.header, layout.writer.finish());
    count_.files += selection_.parts;
    count_.bytes += selection_.parts * (layout.header.size() + layout.writer.data_size());
  }
  count_.stored_bytes = count_.bytes;
  return {};
}

Result<void> TensorFilesSource::create_files(Layout& layout) {
  layout.created = true;
  for (uint32_t part = 0; part < selection_.parts; part++) {
    const std::string path = selection_.path(layout.source ? &*layout.source : nullptr, part);
    FF_TRY(make_parents(*context_, path));
    OutFile::Spec spec{.path = path,
                       .size = layout.header.size() + layout.writer.data_size(),
                       .mode = layout.source ? layout.source->mode : 0644,
                       .mtime_ns = {},
                       .sparse = true};
    FF_TRY(auto file, OutFile::create(*context_, std::move(spec)));
    file->add_writer();
    builder_.literal(layout.header, file, 0);
    layout.files.push_back(std::move(file));
  }
  return {};
}

Result<std::optional<ReadJob>> TensorFilesSource::next() {
  for (;;) {
    if (auto job = builder_.take()) return std::optional(std::move(job));
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
    FF_TRY(auto record, parse_record(*line, reader_->header().digest));
    if (const auto* file = std::get_if<FileRecord>(&record)) {
      if (!selection_.gather) FF_TRY(end_files());
      current_ = nullptr;
      if (file->kind != EntryKind::safetensors) continue;
      if (selection_.file && !selection_.file(*file)) continue;
      const auto it = layouts_.find(layout_key(*file));
      if (it == layouts_.end()) continue;
      current_ = &it->second;
      if (!current_->created) FF_TRY(create_files(*current_));
    } else if (const auto* tensor = std::get_if<TensorRecord>(&record)) {
      FF_TRY(add_tensor(*tensor, *current_));
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

Result<void> TensorFilesSource::add_tensor(const TensorRecord& tensor, Layout& layout) {
  Entry& entry = layout.entries.at(tensor.name);
  if (entry.split >= 0) return add_split(tensor, entry, layout);
  if (entry.written) return {};
  entry.written = true;
  const uint64_t offset = layout.header.size() + entry.offset;
  for (uint32_t part = 0; part < selection_.parts; part++) {
    if (selection_.slice.empty()) {
      builder_.add_all(tensor.extents, layout.files[part], offset);
      continue;
    }
    FF_TRY(const auto slice, fit_slice(selection_.slice, tensor.shape));
    BoxCopy box{.from_shape = tensor.shape,
                .from_start = {},
                .to_shape = entry.shape,
                .to_start = zeros_like(entry.shape),
                .size = entry.shape,
                .element_bytes = dtype_bits(tensor.dtype) / 8};
    for (const auto& range : slice) box.from_start.push_back(range.begin);
    FF_TRY(add_box(tensor, box, layout, part, offset));
  }
  return {};
}

// Adds a rank's slice of a split tensor to every new part that it overlaps.
Result<void> TensorFilesSource::add_split(const TensorRecord& tensor, const Entry& entry,
                                          const Layout& layout) {
  const auto d = static_cast<size_t>(entry.split);
  const uint64_t part_length = tensor.global_shape[d] / selection_.parts;
  const uint64_t begin = tensor.slice_start[d];
  const uint64_t end = begin + tensor.shape[d];
  for (uint32_t part = 0; part < selection_.parts; part++) {
    const uint64_t from = std::max(begin, part * part_length);
    const uint64_t to = std::min(end, (part + 1) * part_length);
    if (from >= to) continue;
    BoxCopy box{.from_shape = tensor.shape,
                .from_start = zeros_like(tensor.shape),
                .to_shape = tensor.global_shape,
                .to_start = zeros_like(tensor.shape),
                .size = tensor.shape,
                .element_bytes = dtype_bits(tensor.dtype) / 8};
    box.from_start[d] = from - begin;
    box.to_shape[d] = part_length;
    box.to_start[d] = from - part * part_length;
    box.size[d] = to - from;
    FF_TRY(add_box(tensor, box, layout, part, layout.header.size() + entry.offset));
  }
  return {};
}

Result<void> TensorFilesSource::add_box(const TensorRecord& tensor, const BoxCopy& box,
                                        const Layout& layout, uint32_t part, uint64_t offset) {
  std::vector<uint64_t> starts;  // of each extent in the tensor
  uint64_t at = 0;
  for (const auto& extent : tensor.extents) {
    starts.push_back(at);
    at += extent.length;
  }
  return for_each_run(box, [&](ByteRun run) -> Result<void> {
    if (run.from + run.length > tensor.size) {
      return fail(Errc::corrupt, "tensor '{}': its shape is larger than its data",
                  printable(tensor.name));
    }
    auto i = static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), run.from) -
                                 starts.begin() - 1);
    while (run.length > 0) {
      const ChunkExtent& extent = tensor.extents[i];
      const uint64_t skip = run.from - starts[i];
      const uint64_t length = std::min(run.length, extent.length - skip);
      builder_.add(extent, skip, length, layout.files[part], offset + run.to);
      run.from += length;
      run.to += length;
      run.length -= length;
      i++;
    }
    return {};
  });
}

}  // namespace ff::checkpoint
