// The index of a checkpoint: JSON Lines, written front to back and read front to back, so that a
// million tensors cost no more memory than one. FORMAT.md is the full grammar; in short:
//
//   {"ff_checkpoint":1,"run":..,"step":..,"world":..,"attempt":..,"digest":..,...,"crc":"…"}
//   {"file":NAME,"rank":R,"kind":..,"size":..,"mode":..,"mtime_ns":..,"extents":[..],"crc":"…"}
//   {"tensor":NAME,"dtype":..,"shape":[..],"offset":..,"size":..,"extents":[..],"crc":"…"}
//   {"end":true,"files":..,"tensors":..,"size":..,"content":HEX,"index":HEX,"crc":"…"}
//
// A tensor line belongs to the safetensors file line before it. Each line carries the CRC32C of
// its own bytes before `,"crc"`; the last line also has the digest of all bytes before it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "platform/base/result.h"
#include "platform/io/disk.h"
#include "platform/simd/digest.h"

namespace ff::checkpoint {

constexpr int kFormatVersion = 1;
// One line at most: a tensor of 4 TiB has 2^20 extents of about 60 bytes.
constexpr size_t kLineMax = size_t{128} << 20;
// Numbers in an index: sums of three cannot overflow. Code that adds more checks each sum.
constexpr uint64_t kIndexNumberMax = uint64_t{1} << 62;
constexpr size_t kNameBytesMax = 4096;  // of a name or the target of a link, as Linux (PATH_MAX)
constexpr size_t kNamePartsMax = 512;   // components of a name; a save refuses deep trees, too

// A run of bytes of a tensor or file: `length` bytes at `offset` in chunk `chunk`; or, without a
// chunk, `length` zero bytes that are stored nowhere. JSON: [HEX, offset, length, CRC] or [length].
struct ChunkExtent {
  std::optional<simd::Digest> chunk;
  uint32_t offset = 0;
  uint64_t length = 0;
  uint32_t crc = 0;  // CRC32C of these bytes
};

struct HeaderRecord {
  std::string run;
  uint64_t step = 0;
  uint32_t world = 1;            // ranks that commit together
  std::string attempt;           // equal on all ranks of one try; empty when world is 1
  std::optional<uint32_t> rank;  // in the index of one rank (a shard), before the merge
  simd::DigestKind digest = simd::DigestKind::xxh128;
  int64_t created_ns = 0;  // Unix epoch
  std::string ff_version;
  std::string host;
  std::string user;
  uint32_t uid = 0;
};

enum class EntryKind : uint8_t { opaque, safetensors, directory, symlink };

struct FileRecord {
  std::string name;  // relative, "/" between components
  uint32_t rank = 0;
  EntryKind kind = EntryKind::opaque;
  uint64_t size = 0;
  uint32_t mode = 0644;
  int64_t mtime_ns = 0;
  std::string target;                // of a symbolic link
  std::vector<ChunkExtent> extents;  // opaque: the content; safetensors: length word and raw header
};

struct TensorRecord {
  std::string name;
  std::string dtype;  // as in the safetensors header
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  // in the data section of its file
  uint64_t size = 0;    // bytes
  // A slice of a larger tensor spread over ranks: its whole shape and where this part starts.
  std::vector<uint64_t> global_shape;  // empty: not a slice
  std::vector<uint64_t> slice_start;   // one per dimension
  std::string slice_of = {};           // name of the larger tensor, unless it is `name`
  bool is_object = false;              // bytes of an object of the program that saved it
  std::vector<ChunkExtent> extents;
};

struct EndRecord {
  uint64_t files = 0;
  uint64_t tensors = 0;
  uint64_t size = 0;     // bytes of all files
  simd::Digest content;  // of names, kinds and chunk digests: equal for byte-identical inputs
  simd::Digest index;    // xxh128 of every byte before this line
};

using Record = std::variant<HeaderRecord, FileRecord, TensorRecord, EndRecord>;

// The name of the tensor that a slice is part of; of others, their own.
const std::string& whole_name(const TensorRecord& tensor);

// Of a file or tensor; null for other records.
const std::vector<ChunkExtent>* extents_of(const Record& record);

// Whether `name` can be written below a directory: relative, no empty, "." or ".." component, no
// NUL, at most kNameBytesMax bytes and kNamePartsMax components. Other names are refused on save
// and, from a crafted index, on load.
bool safe_name(std::string_view name);

// The digest behind EndRecord::content, record by record.
class ContentDigest {
 public:
  explicit ContentDigest(simd::DigestKind kind) : digester_(kind) {}
  void add(const FileRecord& record);
  void add(const TensorRecord& record);
  simd::Digest finish() { return digester_.finish(); }

 private:
  void add_text(std::string text, const std::vector<ChunkExtent>& extents);
  simd::Digester digester_;
};

// Writes an index to a new file. Not thread-safe.
class IndexWriter {
 public:
  static Result<IndexWriter> create(io::Disk& disk, const std::string& path,
                                    const HeaderRecord& header);
  Result<void> add(const FileRecord& record);
  Result<void> add(const TensorRecord& record);
  // Writes the last line and syncs the file.
  Result<EndRecord> finish();

 private:
  IndexWriter(std::unique_ptr<io::File> file, simd::DigestKind kind);
  Result<void> put(std::string line);
  Result<void> flush();

  std::unique_ptr<io::File> file_;
  uint64_t written_ = 0;
  std::string pending_;
  simd::Digester whole_{simd::DigestKind::xxh128};
  ContentDigest content_;
  EndRecord end_;
};

// The position of a line in an index.
struct LinePosition {
  uint64_t offset = 0;
  uint32_t length = 0;  // without the newline
};

// Reads an index line by line. Every error is Errc::corrupt naming path and line, except a newer
// format (Errc::newer_format) and I/O.
class IndexReader {
 public:
  // Opens and reads the header line.
  static Result<IndexReader> open(io::Disk& disk, const std::string& path);

  const HeaderRecord& header() const { return header_; }
  const std::string& path() const { return path_; }
  // The record of a line that next_line() has returned. Errors name the index.
  Result<Record> parse(std::string_view line) const;
  Result<std::string> name_in(std::string_view line) const;  // line_name()

  // The line of the next record, its CRC checked; nothing after the last. Only after the end line
  // is the index known to be intact: then the digest of the whole file was checked.
  Result<std::optional<std::string_view>> next_line();
  // next_line() and parse_record(): a file or a tensor.
  Result<std::optional<Record>> next();
  // Tolerant reading (salvage): damaged lines are skipped, counted and reported to `skipped`.
  using Skipped = std::function<void(uint64_t line_number, std::string_view line)>;
  void skip_damaged(Skipped skipped = {}) {
    tolerant_ = true;
    skipped_ = std::move(skipped);
  }
  // Opens for tolerant reading even when the header line is damaged; `kind` (of the store) replaces
  // the digest kind of the header. A newer format is still refused.
  static Result<IndexReader> open_damaged(io::Disk& disk, const std::string& path,
                                          simd::DigestKind kind, Skipped skipped);
  uint64_t damaged_lines() const { return damaged_; }
  // Counts from 1.
  uint64_t line_number() const { return line_number_; }
  // The position of the last line, for read_record_at().
  LinePosition line_position() const { return place_; }
  // The end line, once it was read.
  const std::optional<EndRecord>& end() const { return end_; }

 private:
  IndexReader(std::string path, std::unique_ptr<io::File> file);
  Result<std::optional<std::string_view>> raw_line();
  Result<void> finish(std::string_view line);
  Result<void> read_header();
  void skip(std::string_view line);
  Error damaged(std::string_view reason) const;

  std::string path_;
  std::unique_ptr<io::File> file_;
  uint64_t read_at_ = 0;
  std::string buffer_;
  size_t begin_ = 0;  // of the next line in buffer_
  bool file_ended_ = false;
  uint64_t line_number_ = 0;
  LinePosition place_;
  bool tolerant_ = false;
  Skipped skipped_;
  uint64_t damaged_ = 0;
  simd::Digester whole_{simd::DigestKind::xxh128};
  HeaderRecord header_;
  std::optional<EndRecord> end_;
};

// Parses one line (its CRC already checked). Unknown keys are skipped.
Result<Record> parse_record(std::string_view line, simd::DigestKind kind);

// Reads one record again.
Result<Record> read_record_at(io::File& index, LinePosition position, simd::DigestKind kind);

// The type of a line by its first key, without parsing the rest.
enum class LineType : uint8_t { header, file, tensor, end, other };
LineType line_type(std::string_view line);
// The name in a file or tensor line, unescaped.
Result<std::string> line_name(std::string_view line);

// The first and the last line of an index, without the lines between them: enough for `ls`. The CRC
// of the end line is checked, the digest of the whole index is not.
struct IndexSummary {
  HeaderRecord header;
  EndRecord end;
};
Result<IndexSummary> read_summary(io::Disk& disk, const std::string& path);

}  // namespace ff::checkpoint
