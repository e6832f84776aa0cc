// tensor_file.cc: the layout of the file, and reads of scattered elements.
#include "training/checkpoint/import/tensor_file.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace ff::checkpoint {
namespace {

constexpr uint64_t kLongRun = uint64_t{32} << 10;  // bytes for which a read of their own is good
// Elements that lie further apart are not read together with what is between them.
constexpr uint64_t kSpanFactor = 16;
constexpr size_t kSpansMax = 4;  // in memory, or one if it is larger than this:
constexpr uint64_t kSpanBytesMax = uint64_t{64} << 20;

}  // namespace

// Neighbouring dimensions whose elements follow each other become one.
TensorFile::Layout TensorFile::layout_of(const ImportedTensor& tensor) {
  Layout layout;
  if (tensor.bytes == 0 || tensor.memory != nullptr) {
    layout.run = layout.span = tensor.bytes;
    return layout;
  }
  uint64_t item = tensor.bytes;
  for (const uint64_t length : tensor.shape) item /= length;
  layout.run = item;
  layout.span = item;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    const uint64_t length = tensor.shape[i];
    const uint64_t stride = tensor.strides[i];
    if (length == 1) continue;
    layout.span += (length - 1) * stride;
    if (layout.counts.empty() && stride == layout.run) {
      layout.run *= length;
    } else if (!layout.counts.empty() && stride == layout.counts.front() * layout.strides.front()) {
      layout.counts.front() *= length;
    } else {
      layout.counts.insert(layout.counts.begin(), length);
      layout.strides.insert(layout.strides.begin(), stride);
    }
  }
  return layout;
}

Result<std::shared_ptr<TensorFile>> TensorFile::make(const std::string& name,
                                                     ImportSources& sources,
                                                     std::vector<ImportedTensor> tensors,
                                                     const SafetensorsMetadata& texts) {
  std::shared_ptr<TensorFile> made(new TensorFile(name, sources));
  // Those of wider elements first, so that all are aligned.
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return dtype_bits(a.dtype) > dtype_bits(b.dtype);
  });
  SafetensorsHeaderWriter writer;
  if (!texts.empty()) writer.metadata(texts);
  for (const auto& tensor : tensors) {
    writer.tensor(tensor.name, tensor.dtype, tensor.shape, tensor.bytes);
  }
  FF_TRY(made->header_, writer.finish());
  made->size_ = made->header_.size();
  for (const auto& tensor : tensors) {
    made->layouts_.push_back(layout_of(tensor));
    made->layouts_.back().begin = made->size_;
    made->size_ += tensor.bytes;
  }
  made->tensors_ = std::move(tensors);
  return made;
}

Result<io::FileInfo> TensorFile::info() {
  return io::FileInfo{
      .kind = io::FileKind::regular, .mode = 0644, .size = size_, .allocated = size_};
}

Result<io::DataRange> TensorFile::next_data(uint64_t offset) {
  return io::DataRange{.begin = std::min(offset, size_), .end = size_};
}

Result<bool> TensorFile::read_cached(ByteSpan into, uint64_t offset) {
  FF_TRY(const size_t got, read_at(into, offset));
  if (got == into.size()) return true;
  return fail(Errc::failed, "{}: {} bytes at offset {} exceed its size {}", path(), into.size(),
              offset, size_);
}

Result<size_t> TensorFile::read_at(ByteSpan into, uint64_t offset) {
  const uint64_t all = offset < size_ ? std::min<uint64_t>(into.size(), size_ - offset) : 0;
  uint64_t done = 0;
  if (offset < header_.size()) {
    done = std::min<uint64_t>(all, header_.size() - offset);
    std::memcpy(into.data(), header_.data() + offset, done);
  }
  while (done < all) {
    const uint64_t at = offset + done;
    const auto after =
        std::upper_bound(layouts_.begin(), layouts_.end(), at,
                         [](uint64_t value, const Layout& layout) { return value < layout.begin; });
    const auto index = static_cast<size_t>(after - layouts_.begin()) - 1;
    const uint64_t skip = at - layouts_[index].begin;
    const uint64_t length = std::min(all - done, tensors_[index].bytes - skip);
    FF_TRY(read_tensor(index, into.subspan(done, length), skip));
    done += length;
  }
  return all;
}

Result<void> TensorFile::read_tensor(size_t index, ByteSpan into, uint64_t offset) {
  const ImportedTensor& tensor = tensors_[index];
  if (tensor.memory != nullptr) {
    std::memcpy(into.data(), tensor.memory->data() + offset, into.size());
    return {};
  }
  if (layouts_[index].counts.empty()) {
    return sources_.read(tensor.source, into, tensor.begin + offset);
  }
  return read_runs(index, into, offset);
}

Result<void> TensorFile::read_runs(size_t index, ByteSpan into, uint64_t offset) {
  const ImportedTensor& tensor = tensors_[index];
  const Layout& layout = layouts_[index];
  Bytes span;
  if (layout.run < kLongRun && layout.span / kSpanFactor <= tensor.bytes) {
    FF_TRY(span, span_of(index));
  }
  // Which run it is in each dimension, and where it begins.
  const size_t dimensions = layout.counts.size();
  std::vector<uint64_t> at(dimensions);
  uint64_t run = offset / layout.run;
  uint64_t begin = 0;
  for (size_t i = dimensions; i-- > 0; run /= layout.counts[i]) {
    at[i] = run % layout.counts[i];
    begin += at[i] * layout.strides[i];
  }
  uint64_t skip = offset % layout.run;
  while (!into.empty()) {
    const ByteSpan part = into.first(std::min<uint64_t>(into.size(), layout.run - skip));
    if (span != nullptr) {
      std::memcpy(part.data(), span->data() + begin + skip, part.size());
    } else {
      FF_TRY(sources_.read(tensor.source, part, tensor.begin + begin + skip));
    }
    into = into.subspan(part.size());
    skip = 0;
    for (size_t i = dimensions; i-- > 0;) {
      begin += layout.strides[i];
      if (++at[i] < layout.counts[i]) break;
      begin -= layout.counts[i] * layout.strides[i];
      at[i] = 0;
    }
  }
  return {};
}

// All bytes from the first to the last element of a tensor. Windows of it are read one after the
// other, mostly by several threads, so the last ones are kept.
Result<TensorFile::Bytes> TensorFile::span_of(size_t index) {
  const std::lock_guard lock(mutex_);
  for (auto span = spans_.begin(); span != spans_.end(); ++span) {
    if (span->first != index) continue;
    spans_.splice(spans_.begin(), spans_, span);
    return spans_.front().second;
  }
  const ImportedTensor& tensor = tensors_[index];
  std::shared_ptr<std::vector<std::byte>> bytes;
  try {
    bytes = std::make_shared<std::vector<std::byte>>(layouts_[index].span);
  } catch (const std::bad_alloc&) {
    return Error{Errc::failed,
                 fmt::format("tensor '{}': no memory for the {} bytes over which it is scattered",
                             tensor.name, layouts_[index].span),
                 "Save its contiguous() instead."};
  }
  FF_TRY(sources_.read(tensor.source, *bytes, tensor.begin));
  spans_.emplace_front(index, bytes);
  uint64_t all = 0;
  size_t kept = 0;
  for (auto span = spans_.begin(); span != spans_.end();) {
    all += span->second->size();
    const bool keep = kept == 0 || (kept < kSpansMax && all <= kSpanBytesMax);
    kept += keep ? 1 : 0;
    span = keep ? std::next(span) : spans_.erase(span);
  }
  return Bytes(bytes);
}

}  // namespace ff::checkpoint
