// tensor_parts.cc: the text `ff.parts`, read as events: anybody may have written it.
#include "training/checkpoint/format/tensor_parts.h"

#include <fmt/format.h>
#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <algorithm>
#include <utility>

#include "platform/base/text.h"

namespace ff::checkpoint {
namespace {

// Depth 1: the keys "slices" and "objects"; 2: names; 3: what is said of a slice; 4: its lists.
class PartsEvents : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, PartsEvents> {
 public:
  TensorParts parts;
  std::string problem;

  bool Default() { return wrong("a value of the wrong type"); }
  bool Uint(unsigned value) { return Uint64(value); }
  bool Uint64(uint64_t value) {
    if (depth_ != 4) return wrong("a number outside of a list");
    if (list_->size() == kSafetensorsDimensionsMax) return wrong("too many dimensions");
    if (value > kSafetensorsDimensionMax) return wrong("a dimension out of range");
    list_->push_back(value);
    return true;
  }
  bool String(const char* text, rapidjson::SizeType length, bool) {
    const std::string value(text, length);
    if (depth_ == 2 && in_objects_) return parts.objects.insert(value).second || twice(value);
    if (depth_ != 3 || key_ != "tensor" || value.empty()) return wrong("an unexpected text");
    slice_.tensor = value;
    return true;
  }
  bool Key(const char* text, rapidjson::SizeType length, bool) {
    (depth_ == 2 ? name_ : key_).assign(text, length);
    return true;
  }
  bool StartObject() {
    if (++depth_ == 1) return true;
    if (depth_ == 2) return key_ == "slices" || wrong("an unexpected object");
    slice_ = {};
    return (depth_ == 3 && !in_objects_) || wrong("an unexpected object");
  }
  bool EndObject(rapidjson::SizeType) {
    if (depth_-- != 3) return true;
    if (slice_.tensor.empty() || slice_.shape.empty() ||
        slice_.start.size() != slice_.shape.size()) {
      return wrong(fmt::format("slice '{}' has no tensor, shape and start that belong together",
                               printable(name_)));
    }
    return parts.slices.emplace(name_, std::exchange(slice_, {})).second || twice(name_);
  }
  bool StartArray() {
    if (++depth_ == 2 && key_ == "objects") {
      in_objects_ = true;
      return true;
    }
    if (depth_ != 4) return wrong("an unexpected list");
    list_ = key_ == "shape" ? &slice_.shape : key_ == "start" ? &slice_.start : nullptr;
    return (list_ != nullptr && list_->empty()) || wrong("an unexpected list");
  }
  bool EndArray(rapidjson::SizeType) {
    if (--depth_ == 1) in_objects_ = false;
    return true;
  }

 private:
  bool wrong(std::string_view what) {
    problem = what;
    return false;
  }
  bool twice(std::string_view name) {
    return wrong(fmt::format("'{}' is given twice", printable(name)));
  }

  int depth_ = 0;
  std::string key_;
  std::string name_;
  bool in_objects_ = false;
  TensorParts::Slice slice_;
  std::vector<uint64_t>* list_ = nullptr;
};

// Whether a tensor of the file can be that slice.
bool is_inside(const SafetensorsHeader::Tensor& tensor, const TensorParts::Slice& slice) {
  if (tensor.shape.size() != slice.shape.size()) return false;
  for (size_t i = 0; i < slice.shape.size(); i++) {
    if (tensor.shape[i] > slice.shape[i]) return false;
    if (slice.start[i] > slice.shape[i] - tensor.shape[i]) return false;
  }
  return true;
}

}  // namespace

Result<TensorParts> parse_tensor_parts(std::string_view json) {
  PartsEvents events;
  if (!json.starts_with('{')) return fail(Errc::failed, "it does not begin with '{{'");
  rapidjson::MemoryStream stream(json.data(), json.size());
  constexpr unsigned kFlags =
      rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag;
  const auto parsed = rapidjson::Reader().Parse<kFlags>(stream, events);
  if (!parsed.IsError()) return std::move(events.parts);
  return fail(
      Errc::failed, "{}",
      !events.problem.empty() ? events.problem : rapidjson::GetParseError_En(parsed.Code()));
}

Result<TensorParts> tensor_parts_of(const SafetensorsHeader& header) {
  const auto& pairs = header.metadata();
  const auto found = std::ranges::find(
      pairs, kTensorPartsKey, [](const auto& pair) { return std::string_view(pair.first); });
  if (found == pairs.end()) return TensorParts();
  FF_TRY(auto parts, parse_tensor_parts(found->second));
  size_t known = 0;
  for (size_t i = 0; i < header.count(); i++) {
    const auto tensor = header.tensor(i);
    known += parts.objects.contains(tensor.name) ? 1 : 0;
    const auto slice = parts.slices.find(tensor.name);
    if (slice == parts.slices.end()) continue;
    known++;
    if (is_inside(tensor, slice->second)) continue;
    return fail(Errc::failed, "tensor '{}' is no slice of a tensor of that shape",
                printable(tensor.name));
  }
  if (known == parts.slices.size() + parts.objects.size()) return parts;
  return fail(Errc::failed, "it names tensors that the file does not have");
}

}  // namespace ff::checkpoint
