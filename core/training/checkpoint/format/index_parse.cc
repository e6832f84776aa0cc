// index_parse.cc: one line of an index into a record. RapidJSON reads it as events, so that no
// document tree is ever built; unknown keys are skipped, wrong types and missing keys are errors.
// Anybody may have written the line, so whatever it makes this parser keep is bounded.
#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <array>
#include <limits>

#include "platform/base/text.h"
#include "training/checkpoint/format/chunk_file.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/format/safetensors.h"

namespace ff::checkpoint {
namespace {

constexpr uint64_t kNumberMax = kIndexNumberMax;
constexpr size_t kKeysMax = 1000;  // in one line; ff writes 13

// The fields of one line, in its order; which are required depends on the line's type. Texts are
// views of the buffer that is being parsed in place.
struct Fields {
  using List = std::vector<uint64_t>;
  struct Field {
    std::string_view key;
    std::variant<std::string_view, uint64_t, int64_t, List> value;  // int64_t: mtimes before 1970
  };
  std::vector<Field> all;
  std::vector<ChunkExtent> extents;
  bool has_extents = false;

  bool add(std::string_view key, auto value) {
    if (all.size() == kKeysMax) return false;
    all.push_back({key, std::move(value)});
    return true;
  }

  // The value of that type under `key`, or null; the last one when the key repeats.
  template <class Value>
  Value* find(std::string_view key) {
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
      if (it->key != key) continue;
      if (auto* value = std::get_if<Value>(&it->value)) return value;
    }
    return nullptr;
  }
};

// Collects a flat object whose values are scalars, lists of numbers, and the list of extents.
class Collector : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, Collector> {
 public:
  explicit Collector(simd::DigestKind kind) : kind_(kind) { fields.all.reserve(16); }
  Fields fields;
  std::string problem;

  bool Null() { return depth_ == 1; }
  bool Bool(bool) { return depth_ == 1; }
  bool Double(double) { return depth_ == 1; }
  bool Int(int value) { return Int64(value); }
  bool Uint(unsigned value) { return Uint64(value); }
  bool Int64(int64_t value) {
    if (value >= 0) return Uint64(static_cast<uint64_t>(value));
    return depth_ == 1 && add(value);
  }
  bool Uint64(uint64_t value) {
    if (value > kNumberMax) return fail("a number out of range");
    if (depth_ == 1) return add(value);
    if (depth_ == 2 && !in_extents_) {
      if (!keeps_list_) return true;  // of an unknown key
      auto& list = std::get<Fields::List>(fields.all.back().value);
      if (list.size() == kSafetensorsDimensionsMax) return fail("a tensor of too many dimensions");
      list.push_back(value);
    } else if (depth_ == 3 && in_extents_) {
      if (numbers_in_extent_ == 2) return fail("an extent with too many numbers");
      extent_numbers_[numbers_in_extent_++] = value;
    } else {
      return false;
    }
    return true;
  }
  bool String(const char* text, rapidjson::SizeType length, bool) {
    const std::string_view value(text, length);
    if (depth_ == 1) return add(value);
    if (depth_ != 3 || !in_extents_) return fail("a string where a number belongs");
    if (texts_in_extent_ == 2) return fail("an extent with too many strings");
    extent_texts_[texts_in_extent_++] = value;
    return true;
  }
  bool Key(const char* text, rapidjson::SizeType length, bool) {
    key_ = {text, length};
    return true;
  }
  bool StartObject() { return ++depth_ == 1; }
  bool EndObject(rapidjson::SizeType) { return depth_-- == 1; }
  bool StartArray() {
    depth_++;
    if (depth_ == 2) {
      in_extents_ = key_ == "extents";
      if (in_extents_) fields.has_extents = true;
      keeps_list_ = key_ == "shape" || key_ == "global_shape" || key_ == "slice_start";
      return in_extents_ || !keeps_list_ || add(Fields::List());
    }
    numbers_in_extent_ = texts_in_extent_ = 0;
    return depth_ == 3 && in_extents_;
  }
  bool EndArray(rapidjson::SizeType) { return depth_-- == 3 ? end_extent() : true; }

 private:
  bool fail(std::string_view text) {
    problem = text;
    return false;
  }

  bool add(auto value) { return fields.add(key_, std::move(value)) || fail("too many keys"); }

  bool end_extent() {
    ChunkExtent extent;
    if (texts_in_extent_ == 0 && numbers_in_extent_ == 1) {
      extent.length = extent_numbers_[0];
    } else if (texts_in_extent_ == 2 && numbers_in_extent_ == 2) {
      auto chunk = simd::parse_digest(kind_, extent_texts_[0]);
      if (!chunk) return fail(chunk.error().message);
      extent.chunk = *chunk;
      if (extent_numbers_[0] + extent_numbers_[1] > kChunkBytes) {
        return fail("an extent beyond its chunk");
      }
      extent.offset = static_cast<uint32_t>(extent_numbers_[0]);
      extent.length = extent_numbers_[1];
      if (!parse_crc(extent_texts_[1], extent.crc)) return fail("an extent with a bad CRC32C");
    } else {
      return fail("an extent that is neither [chunk, offset, length, crc] nor [length]");
    }
    if (extent.length == 0) return fail("an empty extent");
    // Neighbouring zeros become one extent, as ff writes them: "[1]" takes four bytes in the line.
    if (!extent.chunk && !fields.extents.empty() && !fields.extents.back().chunk) {
      uint64_t& length = fields.extents.back().length;
      if (__builtin_add_overflow(length, extent.length, &length)) {
        return fail("extents do not add up to the size");
      }
      return true;
    }
    fields.extents.push_back(extent);
    return true;
  }

  static bool parse_crc(std::string_view hex, uint32_t& crc) {
    if (hex.size() != 8) return false;
    crc = 0;
    for (const char digit : hex) {
      const auto at = std::string_view("0123456789abcdef").find(digit);
      if (at == std::string_view::npos) return false;
      crc = crc << 4 | static_cast<uint32_t>(at);
    }
    return true;
  }

  simd::DigestKind kind_;
  int depth_ = 0;
  bool in_extents_ = false;
  bool keeps_list_ = false;
  std::string_view key_;
  size_t numbers_in_extent_ = 0;
  size_t texts_in_extent_ = 0;
  std::array<uint64_t, 2> extent_numbers_{};
  std::array<std::string_view, 2> extent_texts_;
};

Error missing(std::string_view key) { return fail(Errc::corrupt, "'{}' is missing", key); }

Result<std::string> text(Fields& fields, std::string_view key) {
  const auto* found = fields.find<std::string_view>(key);
  if (found == nullptr) return missing(key);
  return std::string(*found);
}

Result<uint64_t> number(Fields& fields, std::string_view key, uint64_t max = kNumberMax) {
  const auto* found = fields.find<uint64_t>(key);
  if (found == nullptr) return missing(key);
  if (*found > max) return fail(Errc::corrupt, "'{}' is out of range", key);
  return *found;
}

int64_t signed_number(Fields& fields, std::string_view key) {
  if (const auto* found = fields.find<uint64_t>(key)) return static_cast<int64_t>(*found);
  const auto* found = fields.find<int64_t>(key);
  return found == nullptr ? 0 : *found;
}

std::string optional_text(Fields& fields, std::string_view key) {
  const auto* found = fields.find<std::string_view>(key);
  return found == nullptr ? std::string() : std::string(*found);
}

// UINT64_MAX, which is no size, for a longer sum.
uint64_t extents_size(const std::vector<ChunkExtent>& extents) {
  uint64_t sum = 0;
  for (const auto& extent : extents) {
    if (__builtin_add_overflow(sum, extent.length, &sum)) return UINT64_MAX;
  }
  return sum;
}

Result<Record> parse_header(Fields& fields) {
  FF_TRY(const uint64_t version, number(fields, "ff_checkpoint"));
  if (version == 0 || version > kFormatVersion) {
    return fail(Errc::corrupt, "this ff does not read format version {}", version);
  }
  HeaderRecord header;
  FF_TRY(header.run, text(fields, "run"));
  FF_TRY(header.step, number(fields, "step"));
  FF_TRY(const uint64_t world, number(fields, "world", UINT32_MAX));
  header.world = static_cast<uint32_t>(world);
  FF_TRY(const std::string digest, text(fields, "digest"));
  FF_TRY(header.digest, simd::parse_digest_kind(digest));
  if (fields.find<uint64_t>("rank") != nullptr) {
    FF_TRY(const uint64_t rank, number(fields, "rank", UINT32_MAX));
    header.rank = static_cast<uint32_t>(rank);
  }
  header.attempt = optional_text(fields, "attempt");
  header.created_ns = signed_number(fields, "created_ns");
  header.ff_version = optional_text(fields, "ff");
  header.host = optional_text(fields, "host");
  header.user = optional_text(fields, "user");
  header.uid = static_cast<uint32_t>(signed_number(fields, "uid"));
  return Record(std::move(header));
}

Result<EntryKind> parse_kind(std::string_view name) {
  if (name == "opaque") return EntryKind::opaque;
  if (name == "safetensors") return EntryKind::safetensors;
  if (name == "directory") return EntryKind::directory;
  if (name == "symlink") return EntryKind::symlink;
  return fail(Errc::corrupt, "unknown kind '{}'", printable(name));
}

Result<Record> make_file(Fields& fields) {
  FileRecord file;
  FF_TRY(file.name, text(fields, "file"));
  if (!safe_name(file.name) || !valid_utf8(file.name)) {
    return fail(Errc::corrupt, "unsafe file name '{}'", printable(file.name));
  }
  FF_TRY(const uint64_t rank, number(fields, "rank", UINT32_MAX));
  file.rank = static_cast<uint32_t>(rank);
  FF_TRY(const std::string kind, text(fields, "kind"));
  FF_TRY(file.kind, parse_kind(kind));
  FF_TRY(file.size, number(fields, "size"));
  FF_TRY(const uint64_t mode, number(fields, "mode", 07777));
  file.mode = static_cast<uint32_t>(mode);
  file.mtime_ns = signed_number(fields, "mtime_ns");
  file.target = optional_text(fields, "target");
  if (file.target.size() > kNameBytesMax || file.target.find('\0') != std::string::npos) {
    return fail(Errc::corrupt, "the target of link '{}' is no path", printable(file.name));
  }
  if (!fields.has_extents) return missing("extents");
  file.extents = std::move(fields.extents);
  const uint64_t held = extents_size(file.extents);
  if (file.kind == EntryKind::safetensors ? held > file.size : held != file.size) {
    return fail(Errc::corrupt, "extents do not add up to the size");
  }
  if (file.size > 0 && (file.kind == EntryKind::directory || file.kind == EntryKind::symlink)) {
    return fail(Errc::corrupt, "a directory or link with bytes");
  }
  return Record(std::move(file));
}

// The shape against the size, and the slice against the whole tensor: code that copies slices
// multiplies these numbers.
Result<void> check_shape(const TensorRecord& tensor) {
  const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (dtype_bits(tensor.dtype) != 0 && bytes != tensor.size) {
    return fail(Errc::corrupt, "the size of tensor '{}' does not fit its shape",
                printable(tensor.name));
  }
  if (tensor.global_shape.empty()) return {};
  bool inside = tensor.global_shape.size() == tensor.shape.size() &&
                tensor.slice_start.size() == tensor.shape.size();
  for (size_t i = 0; inside && i < tensor.shape.size(); i++) {
    inside = tensor.slice_start[i] + tensor.shape[i] <= tensor.global_shape[i];
  }
  if (inside) return {};
  return fail(Errc::corrupt, "tensor '{}' is no slice of a tensor of its global shape",
              printable(tensor.name));
}

Result<Record> make_tensor(Fields& fields) {
  TensorRecord tensor;
  FF_TRY(tensor.name, text(fields, "tensor"));
  FF_TRY(tensor.dtype, text(fields, "dtype"));
  auto* shape = fields.find<Fields::List>("shape");
  if (shape == nullptr) return missing("shape");
  tensor.shape = std::move(*shape);
  FF_TRY(tensor.offset, number(fields, "offset"));
  FF_TRY(tensor.size, number(fields, "size"));
  if (auto* global_shape = fields.find<Fields::List>("global_shape")) {
    auto* slice_start = fields.find<Fields::List>("slice_start");
    if (slice_start == nullptr) return missing("slice_start");
    tensor.global_shape = std::move(*global_shape);
    tensor.slice_start = std::move(*slice_start);
    tensor.slice_of = optional_text(fields, "slice_of");
  }
  tensor.is_object = fields.find<uint64_t>("object") != nullptr;
  if (!valid_utf8(tensor.name) || !valid_utf8(tensor.dtype) || !valid_utf8(tensor.slice_of)) {
    return fail(Errc::corrupt, "the name or type of tensor '{}' is not UTF-8",
                printable(tensor.name));
  }
  if (!fields.has_extents) return missing("extents");
  tensor.extents = std::move(fields.extents);
  if (extents_size(tensor.extents) != tensor.size) {
    return fail(Errc::corrupt, "extents do not add up to the size");
  }
  FF_TRY(check_shape(tensor));
  return Record(std::move(tensor));
}

Result<Record> make_end(Fields& fields, simd::DigestKind kind) {
  EndRecord end;
  FF_TRY(end.files, number(fields, "files"));
  FF_TRY(end.tensors, number(fields, "tensors"));
  FF_TRY(end.size, number(fields, "size"));
  FF_TRY(const std::string content, text(fields, "content"));
  FF_TRY(end.content, simd::parse_digest(kind, content));
  FF_TRY(const std::string index, text(fields, "index"));
  FF_TRY(end.index, simd::parse_digest(simd::DigestKind::xxh128, index));
  return Record(std::move(end));
}

}  // namespace

LineType line_type(std::string_view line) {
  if (line.starts_with(R"({"tensor":)")) return LineType::tensor;
  if (line.starts_with(R"({"file":)")) return LineType::file;
  if (line.starts_with(R"({"end":)")) return LineType::end;
  if (line.starts_with(R"({"ff_checkpoint":)")) return LineType::header;
  return LineType::other;
}

Result<std::string> line_name(std::string_view line) {
  // The name is the first value; stop the reader right after it.
  struct First : rapidjson::BaseReaderHandler<rapidjson::UTF8<>, First> {
    std::string name;
    bool found = false;
    bool Key(const char*, rapidjson::SizeType, bool) { return true; }
    bool String(const char* value, rapidjson::SizeType length, bool) {
      name.assign(value, length);
      found = true;
      return false;
    }
  } first;
  rapidjson::MemoryStream stream(line.data(), line.size());
  rapidjson::Reader().Parse(stream, first);
  if (!first.found) return missing("name");
  return std::move(first.name);
}

Result<Record> parse_record(std::string_view line, simd::DigestKind kind) {
  Collector collector(kind);
  if (line.find('\0') != line.npos) return fail(Errc::corrupt, "a NUL byte");
  std::string copy(line);  // parsed in place
  rapidjson::InsituStringStream stream(copy.data());
  // The collector refuses the fourth level, which bounds the reader's recursion.
  const auto parsed = rapidjson::Reader().Parse<rapidjson::kParseInsituFlag>(stream, collector);
  if (parsed.IsError()) {
    return fail(Errc::corrupt, "{}",
                !collector.problem.empty() ? collector.problem
                                           : rapidjson::GetParseError_En(parsed.Code()));
  }
  switch (line_type(line)) {
    case LineType::header: return parse_header(collector.fields);
    case LineType::file: return make_file(collector.fields);
    case LineType::tensor: return make_tensor(collector.fields);
    case LineType::end: return make_end(collector.fields, kind);
    case LineType::other: break;
  }
  return fail(Errc::corrupt, "a line of unknown type");
}

}  // namespace ff::checkpoint
