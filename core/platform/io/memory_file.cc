// memory_file.cc: mapping file ranges to the memory parts that hold them.
#include "platform/io/memory_file.h"

#include <algorithm>
#include <cstring>

namespace ff::io {

MemoryFile::MemoryFile(std::string name, std::vector<ByteSpan> parts)
    : File(std::move(name)), parts_(std::move(parts)) {
  begins_.reserve(parts_.size());
  for (const auto& part : parts_) {
    begins_.push_back(size_);
    size_ += part.size();
  }
}

template <class Action>
void MemoryFile::each_extent(uint64_t offset, uint64_t length, Action action) const {
  const uint64_t begin = offset;
  auto part = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), offset) -
                                  begins_.begin());
  while (length > 0) {
    const ByteSpan memory = parts_[part - 1].subspan(offset - begins_[part - 1]);
    const ByteSpan extent = memory.first(std::min<uint64_t>(memory.size(), length));
    if (!extent.empty()) action(extent, offset - begin);
    offset += extent.size();
    length -= extent.size();
    part++;
  }
}

Result<void> MemoryFile::check_range(uint64_t offset, uint64_t length) const {
  if (offset <= size_ && length <= size_ - offset) return {};
  return fail(Errc::failed, "{}: {} bytes at offset {} exceed its size {}", path(), length, offset,
              size_);
}

Result<size_t> MemoryFile::read_at(ByteSpan into, uint64_t offset) {
  const uint64_t length = offset < size_ ? std::min<uint64_t>(into.size(), size_ - offset) : 0;
  each_extent(offset, length, [&](ByteSpan from, uint64_t at) {
    std::memcpy(into.data() + at, from.data(), from.size());
  });
  return length;
}

Result<void> MemoryFile::write_at(ByteView from, uint64_t offset) {
  FF_TRY(check_range(offset, from.size()));
  each_extent(offset, from.size(), [&](ByteSpan to, uint64_t at) {
    std::memcpy(to.data(), from.data() + at, to.size());
  });
  return {};
}

Result<bool> MemoryFile::read_cached(ByteSpan into, uint64_t offset) {
  FF_TRY(check_range(offset, into.size()));
  FF_TRY(read_at(into, offset));
  return true;
}

Result<void> MemoryFile::truncate(uint64_t size) {
  if (size == size_) return {};
  return fail(Errc::unsupported, "{}: the size of memory cannot change", path());
}

Result<void> MemoryFile::punch_hole(uint64_t offset, uint64_t length) {
  FF_TRY(check_range(offset, length));
  each_extent(offset, length, [](ByteSpan to, uint64_t) { std::ranges::fill(to, std::byte{}); });
  return {};
}

Result<DataRange> MemoryFile::next_data(uint64_t offset) {
  return DataRange{.begin = std::min(offset, size_), .end = size_};
}

Result<FileInfo> MemoryFile::info() {
  return FileInfo{.kind = FileKind::regular, .mode = 0644, .size = size_, .allocated = size_};
}

}  // namespace ff::io
