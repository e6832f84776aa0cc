// index.cc: writing indexes, and reading them line by line with every check (grammar: FORMAT.md).
#include "training/checkpoint/format/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "platform/base/bytes.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "training/checkpoint/format/sealed_line.h"

namespace ff::checkpoint {
namespace {

constexpr size_t kFlushBytes = kMiB;       // of text gathered before a write
constexpr size_t kReadBytes = kMiB;        // per read
constexpr size_t kSummaryMax = 64 * kKiB;  // header and end lines are shorter

std::string_view kind_name(EntryKind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"opaque", "safetensors", "directory",
                                                      "symlink"};
  return kNames[static_cast<size_t>(kind)];
}

void append_extents(std::string& out, const std::vector<ChunkExtent>& extents) {
  out += R"(,"extents":[)";
  bool first = true;
  for (const auto& extent : extents) {
    if (!first) out += ',';
    first = false;
    if (extent.chunk) {
      fmt::format_to(std::back_inserter(out), R"(["{}",{},{},"{:08x}"])", extent.chunk->hex(),
                     extent.offset, extent.length, extent.crc);
    } else {
      fmt::format_to(std::back_inserter(out), "[{}]", extent.length);
    }
  }
  out += ']';
}

void append_list(std::string& out, std::string_view key, const std::vector<uint64_t>& values) {
  fmt::format_to(std::back_inserter(out), R"(,"{}":[{}])", key, fmt::join(values, ","));
}

void append_text(std::string& out, std::string_view key, std::string_view value) {
  fmt::format_to(std::back_inserter(out), R"(,"{}":)", key);
  append_json_string(out, value);
}

std::string header_line(const HeaderRecord& header) {
  std::string line = fmt::format(R"({{"ff_checkpoint":{})", kFormatVersion);
  append_text(line, "run", header.run);
  fmt::format_to(std::back_inserter(line), R"(,"step":{},"world":{})", header.step, header.world);
  append_text(line, "attempt", header.attempt);
  if (header.rank) fmt::format_to(std::back_inserter(line), R"(,"rank":{})", *header.rank);
  append_text(line, "digest", simd::digest_kind_name(header.digest));
  append_text(line, "created", format_time(header.created_ns));
  fmt::format_to(std::back_inserter(line), R"(,"created_ns":{})", header.created_ns);
  append_text(line, "ff", header.ff_version);
  append_text(line, "host", header.host);
  append_text(line, "user", header.user);
  fmt::format_to(std::back_inserter(line), R"(,"uid":{})", header.uid);
  return line;
}

}  // namespace

const std::string& whole_name(const TensorRecord& tensor) {
  return tensor.slice_of.empty() ? tensor.name : tensor.slice_of;
}

bool safe_name(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax) return false;
  if (name.front() == '/' || name.find('\0') != name.npos) return false;
  if (static_cast<size_t>(std::ranges::count(name, '/')) >= kNamePartsMax) return false;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

void ContentDigest::add_text(std::string text, const std::vector<ChunkExtent>& extents) {
  for (const auto& extent : extents) {
    fmt::format_to(std::back_inserter(text), "|{}+{}:{}", extent.length, extent.offset,
                   extent.chunk ? extent.chunk->hex() : std::string());
  }
  text += '\n';
  digester_.update(as_bytes(text));
}

// Times, modes and the saving user do not count.
void ContentDigest::add(const FileRecord& record) {
  add_text(fmt::format("file {} {} {} {} {}", record.rank, kind_name(record.kind), record.size,
                       record.name, record.target),
           record.extents);
}

// Names, shapes, types and offsets are in the raw header, whose bytes count with the file.
void ContentDigest::add(const TensorRecord& record) { add_text("tensor", record.extents); }

IndexWriter::IndexWriter(std::unique_ptr<io::File> file, simd::DigestKind kind)
    : file_(std::move(file)), content_(kind) {}

Result<IndexWriter> IndexWriter::create(io::Disk& disk, const std::string& path,
                                        const HeaderRecord& header) {
  FF_TRY(auto file,
         disk.open(path, {.access = io::AccessMode::write, .create = true, .exclusive = true}));
  IndexWriter writer(std::move(file), header.digest);
  FF_TRY(writer.put(header_line(header)));
  return writer;
}

Result<void> IndexWriter::put(std::string line) {
  line = seal_line(std::move(line));
  whole_.update(as_bytes(line));
  pending_ += line;
  return pending_.size() >= kFlushBytes ? flush() : Result<void>();
}

Result<void> IndexWriter::flush() {
  FF_TRY(file_->write_at(as_bytes(pending_), written_));
  written_ += pending_.size();
  pending_.clear();
  return {};
}

Result<void> IndexWriter::add(const FileRecord& record) {
  std::string line = R"({"file":)";
  append_json_string(line, record.name);
  fmt::format_to(std::back_inserter(line), R"(,"rank":{},"kind":"{}","size":{},"mode":{})",
                 record.rank, kind_name(record.kind), record.size, record.mode);
  fmt::format_to(std::back_inserter(line), R"(,"mtime_ns":{})", record.mtime_ns);
  if (record.kind == EntryKind::symlink) append_text(line, "target", record.target);
  append_extents(line, record.extents);
  content_.add(record);
  end_.files++;
  end_.size += record.size;
  return put(std::move(line));
}

Result<void> IndexWriter::add(const TensorRecord& record) {
  std::string line = R"({"tensor":)";
  append_json_string(line, record.name);
  append_text(line, "dtype", record.dtype);
  append_list(line, "shape", record.shape);
  fmt::format_to(std::back_inserter(line), R"(,"offset":{},"size":{})", record.offset, record.size);
  if (!record.global_shape.empty()) {
    append_list(line, "global_shape", record.global_shape);
    append_list(line, "slice_start", record.slice_start);
    if (!record.slice_of.empty()) append_text(line, "slice_of", record.slice_of);
  }
  if (record.is_object) line += R"(,"object":1)";
  append_extents(line, record.extents);
  content_.add(record);
  end_.tensors++;
  return put(std::move(line));
}

Result<EndRecord> IndexWriter::finish() {
  end_.content = content_.finish();
  end_.index = whole_.finish();
  FF_TRY(put(
      fmt::format(R"({{"end":true,"files":{},"tensors":{},"size":{},"content":"{}","index":"{}")",
                  end_.files, end_.tensors, end_.size, end_.content.hex(), end_.index.hex())));
  FF_TRY(flush());
  FF_TRY(file_->sync());
  return end_;
}

IndexReader::IndexReader(std::string path, std::unique_ptr<io::File> file)
    : path_(std::move(path)), file_(std::move(file)) {}

Error IndexReader::damaged(std::string_view reason) const {
  return Error{Errc::corrupt, fmt::format("index {}, line {}: {}", path_, line_number_, reason),
               "The index is damaged. 'ff checkpoint salvage' restores the files and tensors that "
               "are intact."};
}

Result<IndexReader> IndexReader::open(io::Disk& disk, const std::string& path) {
  FF_TRY(auto file, disk.open(path, {}));
  IndexReader reader(path, std::move(file));
  FF_TRY(reader.read_header());
  return reader;
}

Result<IndexReader> IndexReader::open_damaged(io::Disk& disk, const std::string& path,
                                              simd::DigestKind kind, Skipped skipped) {
  FF_TRY(auto file, disk.open(path, {}));
  IndexReader reader(path, std::move(file));
  reader.skip_damaged(std::move(skipped));
  const auto read = reader.read_header();
  if (!read) {
    if (read.error().code != Errc::corrupt) return read.error();
    if (reader.damaged_ == 0) reader.skip({});
    reader.header_ = {};
    reader.header_.digest = kind;
  }
  return reader;
}

Result<void> IndexReader::read_header() {
  FF_TRY(const auto line, raw_line());
  if (!line) return damaged("empty file");
  whole_.update(as_bytes(*line));
  whole_.update(as_bytes("\n"));
  if (!line_is_sealed(*line)) return damaged("the header's CRC32C does not match");
  if (line->size() > kSummaryMax) return damaged("the header is longer than ff writes");
  // The version first: this parser may refuse a newer header.
  if (sealed_number(*line, "ff_checkpoint").value_or(0) > kFormatVersion) {
    return Error{
        Errc::newer_format,
        fmt::format("index {}: written in a format newer than {}, the newest this ff reads", path_,
                    kFormatVersion),
        "Use the ff that wrote it, or a newer one."};
  }
  auto record = parse_record(*line, simd::DigestKind::xxh128);
  if (!record) return damaged(record.error().message);
  auto* header = std::get_if<HeaderRecord>(&*record);
  if (header == nullptr) return damaged("does not begin with a header");
  header_ = std::move(*header);
  return {};
}

void IndexReader::skip(std::string_view line) {
  damaged_++;
  if (skipped_) skipped_(line_number_, line);
}

// The next line without its newline; nothing at the end of the file.
Result<std::optional<std::string_view>> IndexReader::raw_line() {
  size_t searched = begin_;
  for (;;) {
    const void* found = std::memchr(buffer_.data() + searched, '\n', buffer_.size() - searched);
    if (found != nullptr) {
      const size_t end = static_cast<const char*>(found) - buffer_.data();
      const std::string_view line(buffer_.data() + begin_, end - begin_);
      place_ = {.offset = read_at_ - buffer_.size() + begin_,
                .length = static_cast<uint32_t>(line.size())};
      begin_ = end + 1;
      line_number_++;
      return std::optional(line);
    }
    if (file_ended_) {
      if (begin_ == buffer_.size()) return std::optional<std::string_view>();
      line_number_++;
      if (!tolerant_) return damaged("the last line is cut short");
      skip(std::string_view(buffer_).substr(begin_));
      begin_ = buffer_.size();
      return std::optional<std::string_view>();
    }
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched = buffer_.size();
    if (buffer_.size() > kLineMax) return damaged("a line is longer than ff writes");
    buffer_.resize(searched + kReadBytes);
    auto got = file_->read_at({reinterpret_cast<std::byte*>(buffer_.data()) + searched, kReadBytes},
                              read_at_);
    if (!got) return std::move(got).error();
    buffer_.resize(searched + *got);
    read_at_ += *got;
    file_ended_ = *got < kReadBytes;
  }
}

// Checks the end line against everything before it, and that nothing follows.
Result<void> IndexReader::finish(std::string_view line) {
  auto record = parse_record(line, header_.digest);
  if (!record) return damaged(record.error().message);
  end_ = std::get<EndRecord>(*record);
  FF_TRY(const auto extra, raw_line());
  if (tolerant_) return {};
  if (extra) return damaged("there is text after the end line");
  if (whole_.finish() != end_->index) {
    return damaged("the digest of the whole index does not match");
  }
  return {};
}

Result<std::optional<std::string_view>> IndexReader::next_line() {
  for (;;) {
    if (end_) return std::optional<std::string_view>();
    FF_TRY(const auto line, raw_line());
    if (!line) {
      if (tolerant_) return std::optional<std::string_view>();
      return damaged("the file ends before the end line");
    }
    if (!line_is_sealed(*line)) {
      if (!tolerant_) return damaged("the line's CRC32C does not match");
      skip(*line);
      continue;
    }
    const LineType type = line_type(*line);
    if (type == LineType::end) {
      FF_TRY(finish(*line));
      return std::optional<std::string_view>();
    }
    if (type == LineType::header || type == LineType::other) {
      if (!tolerant_) return damaged("neither a file, a tensor nor the end");
      skip(*line);
      continue;
    }
    if (!tolerant_) {
      // The buffer still has the newline after the line.
      whole_.update({reinterpret_cast<const std::byte*>(line->data()), line->size() + 1});
    }
    return line;
  }
}

Result<Record> IndexReader::parse(std::string_view line) const {
  auto record = parse_record(line, header_.digest);
  if (!record) return std::move(record).error().with_context(path_ + ": ");
  return record;
}

Result<std::string> IndexReader::name_in(std::string_view line) const {
  auto name = line_name(line);
  if (!name) return std::move(name).error().with_context(path_ + ": ");
  return name;
}

Result<std::optional<Record>> IndexReader::next() {
  for (;;) {
    FF_TRY(const auto line, next_line());
    if (!line) return std::optional<Record>();
    auto record = parse_record(*line, header_.digest);
    if (record) return std::optional<Record>(std::move(*record));
    if (!tolerant_) return damaged(record.error().message);
    skip(*line);
  }
}

Result<Record> read_record_at(io::File& index, LinePosition place, simd::DigestKind kind) {
  std::string line(place.length, '\0');
  FF_TRY(const size_t got,
         index.read_at({reinterpret_cast<std::byte*>(line.data()), line.size()}, place.offset));
  line.resize(got);
  if (!line_is_sealed(line)) {
    return fail(Errc::corrupt, "index {}: it changed while being read", index.path());
  }
  return parse_record(line, kind);
}

const std::vector<ChunkExtent>* extents_of(const Record& record) {
  if (const auto* file = std::get_if<FileRecord>(&record)) return &file->extents;
  const auto* tensor = std::get_if<TensorRecord>(&record);
  return tensor == nullptr ? nullptr : &tensor->extents;
}

Result<IndexSummary> read_summary(io::Disk& disk, const std::string& path) {
  FF_TRY(auto reader, IndexReader::open(disk, path));
  FF_TRY(auto file, disk.open(path, {}));
  FF_TRY(const auto info, file->info());
  const uint64_t from = info.size > kSummaryMax ? info.size - kSummaryMax : 0;
  std::string tail(info.size - from, '\0');
  FF_TRY(const size_t got,
         file->read_at({reinterpret_cast<std::byte*>(tail.data()), tail.size()}, from));
  tail.resize(got);
  const auto broken = [&](std::string_view reason) {
    return Error{Errc::corrupt, fmt::format("index {}, last line: {}", path, reason),
                 "The index is damaged. 'ff checkpoint verify' lists the damage."};
  };
  if (tail.empty() || tail.back() != '\n') return broken("cut short");
  tail.pop_back();
  const std::string_view line = std::string_view(tail).substr(tail.rfind('\n') + 1);
  if (!line_is_sealed(line)) return broken("its CRC32C does not match");
  if (line_type(line) != LineType::end) return broken("not an end line");
  auto record = parse_record(line, reader.header().digest);
  if (!record) return broken(record.error().message);
  return IndexSummary{reader.header(), std::get<EndRecord>(*record)};
}

}  // namespace ff::checkpoint
