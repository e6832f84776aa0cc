// input.cc: lists the inputs and cuts them into jobs.
#include "training/checkpoint/save/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::checkpoint {
namespace {

constexpr std::string_view kSafetensorsSuffix = ".safetensors";
constexpr size_t kEntriesMax = 50'000'000;  // files in one checkpoint; bounds the list's memory
constexpr int kDepthMax = 256;              // of directories below a path

Error path_error(Error error, const std::string& path) {
  if (error.code == Errc::not_found) {
    return Error{Errc::not_found, fmt::format("{}: no such file or directory", path),
                 "Name the files or directories to save."};
  }
  return error;
}

Result<void> check_name(const std::string& name, const std::string& path) {
  if (safe_name(name) && valid_utf8(name)) return {};
  return Error{Errc::failed,
               fmt::format("{}: its name cannot be stored (not UTF-8)", printable(path)),
               "Rename it; names in an index are UTF-8."};
}

class Lister {
 public:
  Lister(Context& context, std::vector<InputEntry>& out) : context_(context), out_(out) {}

  Result<void> add(const std::string& path, const std::string& name, const io::FileInfo& info,
                   int depth) {
    FF_TRY(context_.stop.check());
    FF_TRY(check_name(name, path));
    if (out_.size() == kEntriesMax) {
      return fail(Errc::failed, "more than {} files below {}", kEntriesMax, path);
    }
    InputEntry entry{.name = name, .path = path, .info = info, .target = {}};
    switch (info.kind) {
      case io::FileKind::regular: out_.push_back(std::move(entry)); return {};
      case io::FileKind::symlink: {
        FF_TRY(entry.target, context_.disk.read_symlink(path));
        out_.push_back(std::move(entry));
        return {};
      }
      case io::FileKind::directory: break;
      case io::FileKind::other:
        return Error{Errc::failed,
                     fmt::format("{}: neither a file, a directory nor a symbolic link", path),
                     "Sockets, pipes and devices cannot be saved; use '-' for standard input."};
    }
    out_.push_back(std::move(entry));
    if (depth == kDepthMax)
      return fail(Errc::failed, "{}: directories are nested too deeply", path);
    FF_TRY(const auto children, context_.disk.list(path));
    for (const auto& child : children) {
      const std::string below = io::join(path, child.name);
      FF_TRY(const auto child_info, context_.disk.info(below));
      FF_TRY(add(below, name + "/" + child.name, child_info, depth + 1));
    }
    return {};
  }

 private:
  Context& context_;
  std::vector<InputEntry>& out_;
};

// The target of a path; follows a symbolic link at its end.
Result<io::FileInfo> follow(Context& context, const std::string& path) {
  FF_TRY(const auto info, context.disk.info(path));
  if (info.kind != io::FileKind::symlink) return info;
  auto as_directory = context.disk.info(path + "/.");
  if (as_directory) return as_directory;
  FF_TRY(auto file, context.disk.open(path, {}));
  return file->info();
}

}  // namespace

Result<std::vector<InputEntry>> list_inputs(Context& context, const std::vector<std::string>& paths,
                                            const std::vector<OpenInput>& open) {
  std::vector<InputEntry> entries;
  std::set<std::string> names;
  Lister lister(context, entries);
  for (std::string path : paths) {
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    auto info = follow(context, path);
    if (!info) return path_error(std::move(info).error(), path);
    const std::string name = io::base_name(path);
    if (!names.insert(name).second) {
      return Error{Errc::usage, fmt::format("two inputs are named '{}'", printable(name)),
                   "Save them in one directory, or as two runs."};
    }
    auto added = lister.add(path, name, *info, 0);
    if (!added) return std::move(added).error();
  }
  for (const auto& input : open) {
    if (!names.insert(input.name).second) {
      return fail(Errc::usage, "two inputs are named '{}'", printable(input.name));
    }
    FF_TRY(check_name(input.name, input.name));
    FF_TRY(auto info, input.file->info());
    info.mtime_ns = context.clock.wall_ns();
    entries.push_back(
        {.name = input.name, .path = input.name, .info = info, .target = {}, .file = input.file});
  }
  return entries;
}

SavePlanner::SavePlanner(Context& context, std::vector<InputEntry> entries,
                         std::optional<StreamInput> stream, const SaveOptions& options)
    : context_(context),
      options_(options),
      entries_(std::move(entries)),
      stream_(std::move(stream)) {}

void SavePlanner::push(SaveJob job) {
  job.sequence = sequence_++;
  ready_.push_back(std::move(job));
}

FileRecord SavePlanner::file_record(EntryKind kind) const {
  return {
      .name = entry_->name,
      .rank = options_.rank,
      .kind = kind,
      .size = kind == EntryKind::opaque || kind == EntryKind::safetensors ? entry_->info.size : 0,
      .mode = entry_->info.mode,
      .mtime_ns = entry_->info.mtime_ns,
      .target = entry_->target,
      .extents = {}};
}

Result<SavePlanner::Next> SavePlanner::next(ByteSpan buffer) {
  const std::lock_guard lock(mutex_);
  while (ready_.empty()) {
    if (file_ != nullptr) {
      FF_TRY(plan_more());
    } else if (next_entry_ < entries_.size()) {
      FF_TRY(open_entry());
    } else if (stream_) {
      return next_of_stream(buffer);
    } else {
      return Next{};
    }
  }
  Next next{.job = std::move(ready_.front()), .more = false};
  ready_.pop_front();
  return next;
}

// Directories, links and empty files are complete at once; others become the file being cut.
Result<void> SavePlanner::open_entry() {
  InputEntry& entry = entries_[next_entry_++];
  entry_ = &entry;
  if (entry.info.kind != io::FileKind::regular) {
    const bool link = entry.info.kind == io::FileKind::symlink;
    SaveJob job;
    job.pieces.push_back({.starts = file_record(link ? EntryKind::symlink : EntryKind::directory),
                          .length = 0,
                          .ends = true});
    push(std::move(job));
    return {};
  }
  if (entry.file != nullptr) {
    file_ = entry.file;
  } else {
    auto opened = context_.disk.open(entry.path, {.direct = true});
    if (!opened) return path_error(std::move(opened).error(), entry.path);
    file_ = std::move(*opened);
    FF_TRY(entry.info, file_->info());
  }
  at_ = tensor_at_ = header_bytes_ = 0;
  next_tensor_ = 0;
  header_.reset();
  const bool opaque =
      std::any_of(options_.opaque.begin(), options_.opaque.end(),
                  [&](const auto& pattern) { return glob_match(pattern, entry.name); });
  if (!opaque && entry.name.ends_with(kSafetensorsSuffix)) FF_TRY(open_safetensors());
  return {};
}

Result<void> SavePlanner::open_safetensors() {
  const std::string& path = entry_->path;
  const uint64_t size = entry_->info.size;
  const auto refuse = [&](const Error& error) {
    return Error{error.code, fmt::format("{}: not a safetensors file: {}", path, error.message),
                 "Repair the file, or save it as plain bytes with --opaque."};
  };
  std::shared_ptr<io::File> plain = entry_->file;  // for small unaligned reads
  if (plain == nullptr) {
    FF_TRY(plain, context_.disk.open(path, {}));
  }
  std::string text(kSafetensorsLengthBytes, '\0');
  const auto read = [&](uint64_t offset) {
    return plain->read_at({reinterpret_cast<std::byte*>(text.data()), text.size()}, offset);
  };
  FF_TRY(const size_t got, read(0));
  text.resize(got);
  const auto length = safetensors_header_length(text, size);
  if (!length) return refuse(length.error());
  header_bytes_ = kSafetensorsLengthBytes + *length;
  text.resize(*length);
  FF_TRY(const size_t header_got, read(kSafetensorsLengthBytes));
  if (header_got != *length)
    return fail(Errc::failed, "{}: the file became shorter while ff read it", path);
  auto header = SafetensorsHeader::parse(text, size - header_bytes_);
  if (!header) return refuse(header.error());
  for (const auto& dtype : header->unknown_dtypes()) {
    warnings_.push_back(fmt::format("{}: unknown data type '{}'; its tensors are kept as bytes",
                                    path, printable(dtype)));
  }
  auto parts = tensor_parts_of(*header);
  if (!parts) {
    return Error{parts.error().code,
                 fmt::format("{}: its text {}: {}", path, kTensorPartsKey, parts.error().message),
                 "Repair the file, or save it as plain bytes with --opaque."};
  }
  parts_ = std::move(*parts);
  header_ = std::move(*header);
  return check_splits();
}

// Whether the index can hold the shapes of the whole tensors.
Result<void> SavePlanner::check_splits() const {
  if (options_.splits.empty()) return {};
  for (size_t i = 0; i < header_->count(); i++) {
    const auto tensor = header_->tensor(i);
    const SplitRule* rule = split_rule(tensor.name);
    if (rule == nullptr || rule->dimension >= tensor.shape.size()) continue;
    if (parts_.slices.contains(tensor.name)) {
      return Error{Errc::usage,
                   fmt::format("{}: tensor '{}' is a slice, as its file says: --split does not "
                               "apply",
                               entry_->path, printable(tensor.name)),
                   "Give --split a pattern that does not match it."};
    }
    if (tensor.shape[rule->dimension] <= kIndexNumberMax / options_.world) continue;
    return fail(Errc::failed, "{}: tensor '{}': {} elements on each of {} ranks are too many",
                entry_->path, printable(tensor.name), tensor.shape[rule->dimension],
                options_.world);
  }
  return {};
}

Result<void> SavePlanner::plan_more() {
  if (!header_) return plan_opaque();
  if (at_ < header_bytes_) {
    plan_header();
  } else {
    plan_tensors();
  }
  return {};
}

void SavePlanner::plan_header() {
  SaveJob job;
  job.file = file_;
  job.offset = at_;
  job.length = std::min(kChunkBytes, header_bytes_ - at_);
  SavePiece piece{.starts = {}, .length = job.length, .ends = at_ + job.length == header_bytes_};
  if (at_ == 0) piece.starts = file_record(EntryKind::safetensors);
  job.pieces.push_back(std::move(piece));
  at_ += job.length;
  push(std::move(job));
  if (at_ == header_bytes_ && header_->count() == 0) file_ = nullptr;
}

const SplitRule* SavePlanner::split_rule(std::string_view name) const {
  for (const auto& rule : options_.splits) {
    if (glob_match(rule.pattern, name)) return &rule;
  }
  return nullptr;
}

TensorRecord SavePlanner::tensor_record(const SafetensorsHeader::Tensor& tensor,
                                        const SplitRule* rule) const {
  TensorRecord record{.name = std::string(tensor.name),
                      .dtype = std::string(tensor.dtype),
                      .shape = tensor.shape,
                      .offset = tensor.begin,
                      .size = tensor.end - tensor.begin,
                      .global_shape = {},
                      .slice_start = {},
                      .extents = {}};
  if (rule != nullptr && rule->dimension < tensor.shape.size()) {
    record.global_shape = tensor.shape;
    record.slice_start.assign(tensor.shape.size(), 0);
    record.global_shape[rule->dimension] *= options_.world;
    record.slice_start[rule->dimension] = tensor.shape[rule->dimension] * options_.rank;
  }
  if (const auto slice = parts_.slices.find(tensor.name); slice != parts_.slices.end()) {
    record.global_shape = slice->second.shape;
    record.slice_start = slice->second.start;
    if (slice->second.tensor != record.name) record.slice_of = slice->second.tensor;
  }
  record.is_object = parts_.objects.contains(tensor.name);
  return record;
}

// One job: a cut of a large tensor, or as many small ones as fit together.
void SavePlanner::plan_tensors() {
  SaveJob job;
  job.file = file_;
  while (next_tensor_ < header_->count() && job.pieces.size() < kPiecesMax) {
    const auto tensor = header_->tensor(next_tensor_);
    const uint64_t size = tensor.end - tensor.begin;
    const bool small = size < kSmallTensorBytes;
    if (!job.pieces.empty() && (!small || job.length + size > kChunkBytes)) break;
    if (job.pieces.empty()) job.offset = header_bytes_ + tensor.begin + tensor_at_;
    SavePiece piece{
        .starts = {}, .length = std::min(kChunkBytes, size - tensor_at_), .ends = false};
    if (tensor_at_ == 0) piece.starts = tensor_record(tensor, split_rule(tensor.name));
    tensor_at_ += piece.length;
    piece.ends = tensor_at_ == size;
    job.length += piece.length;
    if (piece.ends) {
      next_tensor_++;
      tensor_at_ = 0;
    }
    job.pieces.push_back(std::move(piece));
    if (!small) break;
  }
  if (next_tensor_ == header_->count()) file_ = nullptr;
  push(std::move(job));
}

Result<void> SavePlanner::plan_opaque() {
  const uint64_t size = entry_->info.size;
  SaveJob job;
  job.file = file_;
  job.offset = at_;
  if (at_ < size) {
    FF_TRY(const auto data, file_->next_data(at_));
    // Whole cuts inside a hole are skipped; a cut with any data in it is read.
    const uint64_t hole_end = data.begin >= size ? size : align_down(data.begin, kChunkBytes);
    job.hole = hole_end > at_;
    job.length = job.hole ? hole_end - at_ : std::min(kChunkBytes, size - at_);
  }
  SavePiece piece{.starts = {}, .length = job.length, .ends = at_ + job.length == size};
  if (at_ == 0) piece.starts = file_record(EntryKind::opaque);
  at_ += job.length;
  if (piece.ends) file_ = nullptr;
  job.pieces.push_back(std::move(piece));
  push(std::move(job));
  return {};
}

// Collects a whole chunk for a job: pipes deliver a few KiB at a time.
Result<SavePlanner::Next> SavePlanner::next_of_stream(ByteSpan buffer) {
  stream_buffer_.resize(kChunkBytes);
  bool ended = false;
  while (stream_held_ < kChunkBytes && !ended) {
    FF_TRY(const auto got, stream_->read(ByteSpan(stream_buffer_).subspan(stream_held_)));
    if (!got) return Next{.job = {}, .more = true};
    stream_held_ += *got;
    ended = *got == 0;
  }
  SaveJob job;
  job.sequence = sequence_++;
  job.length = stream_held_;
  job.filled = true;
  std::copy_n(stream_buffer_.begin(), stream_held_, buffer.begin());
  SavePiece piece{.starts = {}, .length = job.length, .ends = ended};
  if (!stream_started_) {
    FileRecord record;
    record.name = stream_->name;
    record.rank = options_.rank;
    record.mtime_ns = context_.clock.wall_ns();
    piece.starts = std::move(record);
  }
  job.pieces.push_back(std::move(piece));
  stream_started_ = true;
  stream_held_ = 0;
  if (ended) stream_.reset();
  return Next{.job = std::move(job), .more = false};
}

Result<void> SavePlanner::check_unchanged() {
  for (const auto& entry : entries_) {
    if (entry.info.kind != io::FileKind::regular || entry.file != nullptr) continue;
    auto now = follow(context_, entry.path);
    if (now && now->size == entry.info.size && now->mtime_ns == entry.info.mtime_ns &&
        now->inode == entry.info.inode) {
      continue;
    }
    return Error{
        Errc::failed, fmt::format("{}: the file changed while ff saved it", entry.path),
        "Save it again when no program writes to it; programs should rename finished files "
        "into place."};
  }
  return {};
}

}  // namespace ff::checkpoint
