// safetensors.cc: reading and writing safetensors headers, with every rule the format states.
#include "training/checkpoint/format/safetensors.h"

#include <fmt/format.h>
#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "platform/base/bytes.h"
#include "platform/base/text.h"

namespace ff::checkpoint {

unsigned dtype_bits(std::string_view dtype) {
  struct Known {
    std::string_view name;
    unsigned bits;
  };
  constexpr std::array<Known, 23> kKnown = {{
      {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E4M3", 8}, {"F8_E5M2", 8},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},
      {"F16", 16},    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},
      {"I64", 64},    {"U64", 64},        {"F64", 64},        {"C64", 64},    {"F4", 4},
      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"C128", 128},
  }};
  for (const auto& known : kKnown) {
    if (known.name == dtype) return known.bits;
  }
  return 0;
}

std::optional<uint64_t> tensor_bytes(std::string_view dtype, const std::vector<uint64_t>& shape) {
  const unsigned bits = dtype_bits(dtype);
  if (bits == 0) return std::nullopt;
  if (std::find(shape.begin(), shape.end(), 0U) != shape.end()) return 0;
  uint64_t size = bits % 8 == 0 ? bits / 8 : bits;  // bits only where a type has no whole bytes
  for (const uint64_t length : shape) {
    if (__builtin_mul_overflow(size, length, &size)) return std::nullopt;
  }
  if (bits % 8 != 0) {
    if (size % 8 != 0) return std::nullopt;
    size /= 8;
  }
  if (size > kSafetensorsDimensionMax) return std::nullopt;
  return size;
}

// Events of the header's JSON. Depth 1: names; 2: a tensor's fields or the metadata; 3: lists.
class HeaderEvents : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, HeaderEvents> {
 public:
  explicit HeaderEvents(SafetensorsHeader& header) : header_(header) {}
  std::string problem;

  bool Default() { return wrong("a value of the wrong type"); }
  bool Int(int) { return wrong("a negative number"); }
  bool Int64(int64_t) { return wrong("a negative number"); }
  bool Uint(unsigned value) { return Uint64(value); }
  bool Uint64(uint64_t value) {
    if (depth_ != 3) return wrong("a number instead of a name or list");
    if (field_ == Field::shape) {
      if (++entry_.dimensions > kSafetensorsDimensionsMax) return wrong("too many dimensions");
      if (value > kSafetensorsDimensionMax) return wrong("a dimension out of range");
      header_.shapes_.push_back(value);
      return true;
    }
    if (offsets_ == 2) return wrong("more than two data_offsets");
    (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    return true;
  }
  bool String(const char* text, rapidjson::SizeType length, bool) {
    const std::string_view value(text, length);
    if (depth_ == 2 && in_metadata_) {
      if (header_.metadata_.size() == kSafetensorsMetadataMax) return wrong("too many metadata");
      header_.metadata_.emplace_back(meta_key_, value);
      return true;
    }
    if (depth_ != 2 || field_ != Field::dtype) return wrong("an unexpected string");
    auto& known = header_.dtypes_;
    const auto at = std::find(known.begin(), known.end(), value);
    if (at == known.end() && known.size() == kDtypesMax) return wrong("too many data types");
    entry_.dtype = static_cast<uint16_t>(at - known.begin());
    if (at == known.end()) known.emplace_back(value);
    return true;
  }
  bool Key(const char* text, rapidjson::SizeType length, bool);
  bool StartObject();
  bool EndObject(rapidjson::SizeType);
  bool StartArray() {
    depth_++;
    return (depth_ == 3 && !in_metadata_ && field_ != Field::dtype) || wrong("an unexpected list");
  }
  bool EndArray(rapidjson::SizeType) {
    depth_--;
    field_ = Field::none;
    return true;
  }

 private:
  enum class Field : uint8_t { none, dtype, shape, offsets };
  static constexpr size_t kDtypesMax = 64;

  bool wrong(std::string_view what) {
    problem =
        depth_ <= 1 ? std::string(what) : fmt::format("tensor '{}': {}", printable(name_), what);
    return false;
  }

  SafetensorsHeader& header_;
  int depth_ = 0;
  Field field_ = Field::none;
  bool in_metadata_ = false;
  std::string name_;
  std::string meta_key_;
  SafetensorsHeader::Entry entry_;
  unsigned offsets_ = 0;
  unsigned seen_ = 0;  // bit per field of the tensor at hand
};

bool HeaderEvents::Key(const char* text, rapidjson::SizeType length, bool) {
  const std::string_view key(text, length);
  if (depth_ == 1) {
    name_ = key;
    return true;
  }
  if (in_metadata_) {
    meta_key_ = key;
    return true;
  }
  field_ = key == "dtype"          ? Field::dtype
           : key == "shape"        ? Field::shape
           : key == "data_offsets" ? Field::offsets
                                   : Field::none;
  if (field_ == Field::none) return wrong(fmt::format("unknown key '{}'", printable(key)));
  const unsigned bit = 1U << static_cast<unsigned>(field_);
  if ((seen_ & bit) != 0) return wrong(fmt::format("'{}' is given twice", key));
  seen_ |= bit;
  return true;
}

bool HeaderEvents::StartObject() {
  if (++depth_ == 1) return true;
  if (depth_ > 2) return wrong("an unexpected object");
  in_metadata_ = name_ == "__metadata__";
  if (in_metadata_) {
    if (header_.has_metadata_) return wrong("__metadata__ is given twice");
    header_.has_metadata_ = true;
    return true;
  }
  if (header_.names_.size() + name_.size() > UINT32_MAX) return wrong("names are too long");
  entry_ = {};
  entry_.name_at = static_cast<uint32_t>(header_.names_.size());
  entry_.name_length = static_cast<uint32_t>(name_.size());
  entry_.shape_at = static_cast<uint32_t>(header_.shapes_.size());
  header_.names_ += name_;
  offsets_ = 0;
  seen_ = 0;
  field_ = Field::none;
  return true;
}

bool HeaderEvents::EndObject(rapidjson::SizeType) {
  if (depth_-- == 1) return true;
  if (in_metadata_) {
    in_metadata_ = false;
    return true;
  }
  constexpr unsigned kAll = 1U << static_cast<unsigned>(Field::dtype) |
                            1U << static_cast<unsigned>(Field::shape) |
                            1U << static_cast<unsigned>(Field::offsets);
  depth_++;  // so that wrong() names the tensor
  if (seen_ != kAll) return wrong("dtype, shape or data_offsets is missing");
  if (offsets_ != 2) return wrong("data_offsets is not [begin, end]");
  depth_--;
  header_.entries_.push_back(entry_);
  return true;
}

Result<SafetensorsHeader> SafetensorsHeader::parse(std::string_view json, uint64_t data_size) {
  SafetensorsHeader header;
  HeaderEvents events(header);
  if (!json.starts_with('{')) return fail(Errc::failed, "the header does not begin with '{{'");
  rapidjson::MemoryStream stream(json.data(), json.size());
  constexpr unsigned kFlags =
      rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag;
  const auto parsed = rapidjson::Reader().Parse<kFlags>(stream, events);
  if (parsed.IsError()) {
    if (!events.problem.empty()) return fail(Errc::failed, "{}", events.problem);
    return fail(Errc::failed, "the header is not JSON: {} (byte {})",
                rapidjson::GetParseError_En(parsed.Code()), parsed.Offset());
  }
  FF_TRY(header.check(data_size));
  return header;
}

Result<void> SafetensorsHeader::check(uint64_t data_size) {
  FF_TRY(check_sizes());
  FF_TRY(check_names());
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  return check_layout(data_size);
}

// Each tensor's byte count against its type and shape.
Result<void> SafetensorsHeader::check_sizes() {
  for (const auto& dtype : dtypes_) {
    if (dtype_bits(dtype) == 0) unknown_dtypes_.push_back(dtype);
  }
  for (const auto& entry : entries_) {
    if (entry.end < entry.begin) {
      return fail(Errc::failed, "tensor '{}': data_offsets run backwards", printable(name(entry)));
    }
    const unsigned bits = dtype_bits(dtypes_[entry.dtype]);
    if (bits == 0) continue;
    uint64_t total = bits;
    for (unsigned i = 0; i < entry.dimensions; i++) {
      if (__builtin_mul_overflow(total, shapes_[entry.shape_at + i], &total)) {
        return fail(Errc::failed, "tensor '{}': its shape overflows", printable(name(entry)));
      }
    }
    if (total % 8 != 0 || total / 8 != entry.end - entry.begin) {
      return fail(Errc::failed, "tensor '{}': {} bytes of data for a shape of {} bytes",
                  printable(name(entry)), entry.end - entry.begin, total / 8);
    }
  }
  return {};
}

Result<void> SafetensorsHeader::check_names() const {
  std::vector<uint32_t> order(entries_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return name(entries_[a]) < name(entries_[b]); });
  for (size_t i = 1; i < order.size(); i++) {
    if (name(entries_[order[i - 1]]) == name(entries_[order[i]])) {
      return fail(Errc::failed, "tensor name '{}' is given twice",
                  printable(name(entries_[order[i]])));
    }
  }
  return {};
}

Result<void> SafetensorsHeader::check_layout(uint64_t data_size) const {
  uint64_t at = 0;
  for (const auto& entry : entries_) {
    if (entry.end > data_size) {
      return fail(Errc::failed, "tensor '{}': its data ends at {}, beyond the {} bytes of data",
                  printable(name(entry)), entry.end, data_size);
    }
    if (entry.begin < at) {
      return fail(Errc::failed, "tensor '{}': its data overlaps another tensor's",
                  printable(name(entry)));
    }
    if (entry.begin > at) {
      return fail(Errc::failed, "tensor '{}': {} bytes before its data belong to no tensor",
                  printable(name(entry)), entry.begin - at);
    }
    at = entry.end;
  }
  if (at != data_size) {
    return fail(Errc::failed, "{} bytes at the end belong to no tensor", data_size - at);
  }
  return {};
}

SafetensorsHeader::Tensor SafetensorsHeader::tensor(size_t index) const {
  const Entry& entry = entries_.at(index);
  const auto shape = shapes_.begin() + entry.shape_at;
  return {.name = name(entry),
          .dtype = dtypes_[entry.dtype],
          .shape = {shape, shape + entry.dimensions},
          .begin = entry.begin,
          .end = entry.end};
}

Result<uint64_t> safetensors_header_length(std::string_view first_8_bytes, uint64_t file_size) {
  if (first_8_bytes.size() < kSafetensorsLengthBytes) {
    return fail(Errc::failed, "shorter than the 8 bytes of a safetensors length word");
  }
  const auto length = load_le<uint64_t>(as_bytes(first_8_bytes).data());
  if (length > kSafetensorsHeaderMax) {
    return fail(Errc::failed, "the header would be {} bytes long; the limit is {}", length,
                kSafetensorsHeaderMax);
  }
  if (file_size < kSafetensorsLengthBytes || length > file_size - kSafetensorsLengthBytes) {
    return fail(Errc::failed, "the header would be {} bytes long, longer than the file", length);
  }
  return length;
}

namespace {

// As serde_json writes a string. Both texts come from JSON that is valid UTF-8.
void append_canonical(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

}  // namespace

void SafetensorsHeaderWriter::metadata(const SafetensorsMetadata& pairs) {
  metadata_ = R"("__metadata__":{)";
  for (size_t i = 0; i < pairs.size(); i++) {
    if (i > 0) metadata_ += ',';
    append_canonical(metadata_, pairs[i].first);
    metadata_ += ':';
    append_canonical(metadata_, pairs[i].second);
  }
  metadata_ += '}';
}

void SafetensorsHeaderWriter::tensor(std::string_view name, std::string_view dtype,
                                     const std::vector<uint64_t>& shape, uint64_t bytes) {
  if (!tensors_.empty()) tensors_ += ',';
  append_canonical(tensors_, name);
  tensors_ += R"(:{"dtype":)";
  append_canonical(tensors_, dtype);
  fmt::format_to(std::back_inserter(tensors_), R"(,"shape":[{}],"data_offsets":[{},{}]}})",
                 fmt::join(shape, ","), offset_, offset_ + bytes);
  offset_ += bytes;
}

Result<std::string> SafetensorsHeaderWriter::finish() {
  const std::string_view comma = metadata_.empty() || tensors_.empty() ? "" : ",";
  const uint64_t length = align_up(metadata_.size() + comma.size() + tensors_.size() + 2, 8);
  if (length > kSafetensorsHeaderMax) {
    return Error{Errc::failed,
                 fmt::format("the header would be {} bytes long; safetensors allows {}", length,
                             kSafetensorsHeaderMax),
                 "Choose fewer tensors with --tensor."};
  }
  std::string out(kSafetensorsLengthBytes, '\0');
  store_le(reinterpret_cast<std::byte*>(out.data()), length);
  out.reserve(out.size() + length);
  ((((out += '{') += metadata_) += comma) += tensors_) += '}';
  out.resize(kSafetensorsLengthBytes + length, ' ');
  std::string().swap(tensors_);  // may be as large as the header
  return out;
}

namespace {

// Keeps the texts below the top-level key __metadata__.
class MetadataEvents : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, MetadataEvents> {
 public:
  std::optional<SafetensorsMetadata> found;

  bool StartObject() {
    if (++depth_ == 2 && inside_ && !found) found.emplace();
    return depth_ <= kDepthMax;
  }
  bool EndObject(rapidjson::SizeType) {
    if (--depth_ == 1) inside_ = false;
    return true;
  }
  bool StartArray() { return ++depth_ <= kDepthMax; }
  bool EndArray(rapidjson::SizeType) {
    depth_--;
    return true;
  }
  bool Key(const char* text, rapidjson::SizeType length, bool) {
    if (depth_ == 1) inside_ = std::string_view(text, length) == "__metadata__";
    if (inside_ && depth_ == 2) key_.assign(text, length);
    return true;
  }
  bool String(const char* text, rapidjson::SizeType length, bool) {
    if (!inside_ || depth_ != 2 || !found) return true;
    if (found->size() == kSafetensorsMetadataMax) return false;
    found->emplace_back(key_, std::string(text, length));
    return true;
  }

 private:
  static constexpr int kDepthMax = 8;  // a header has 3

  int depth_ = 0;
  bool inside_ = false;
  std::string key_;
};

}  // namespace

Result<std::optional<SafetensorsMetadata>> safetensors_metadata(std::string_view json) {
  MetadataEvents events;
  rapidjson::MemoryStream stream(json.data(), json.size());
  const auto parsed = rapidjson::Reader().Parse<rapidjson::kParseIterativeFlag>(stream, events);
  if (parsed.IsError()) {
    return fail(Errc::corrupt, "the header is not JSON: {}",
                rapidjson::GetParseError_En(parsed.Code()));
  }
  return std::move(events.found);
}

}  // namespace ff::checkpoint
