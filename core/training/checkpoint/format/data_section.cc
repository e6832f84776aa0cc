// data_section.cc: adds the sizes of tensors up; the parser has bounded each by kIndexNumberMax.
#include "training/checkpoint/format/data_section.h"

#include "platform/base/text.h"

namespace ff::checkpoint {

void DataSection::begin(const FileRecord& file) {
  name_ = file.name;
  has_tensors_ = file.kind == EntryKind::safetensors;
  size_ = file.size;
  header_bytes_ = 0;
  for (const auto& extent : file.extents) header_bytes_ += extent.length;
  at_ = header_bytes_;
}

Result<uint64_t> DataSection::add(const TensorRecord& tensor) {
  const auto wrong = [&](std::string_view reason) {
    return fail(Errc::corrupt, "index {}: tensor '{}' of file '{}' {}", index_path_,
                printable(tensor.name), printable(name_), reason);
  };
  if (!has_tensors_) return wrong("does not belong to a safetensors file");
  const uint64_t begin = at_;
  if (header_bytes_ + tensor.offset != begin) {
    return wrong("does not begin where the tensor before it ends");
  }
  if (tensor.size > size_ - begin) return wrong("ends beyond the end of its file");
  at_ += tensor.size;
  return begin;
}

Result<void> DataSection::end() const {
  if (at_ == size_) return {};
  return fail(Errc::corrupt, "index {}: {} bytes of file '{}' belong to no tensor", index_path_,
              size_ - at_, printable(name_));
}

}  // namespace ff::checkpoint
