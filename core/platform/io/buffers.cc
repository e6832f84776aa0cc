// buffers.cc: one anonymous mapping on a 2 MiB boundary, cut into slots (buffers.h).
#include "platform/io/buffers.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "platform/io/disk.h"

namespace ff::io {
namespace {

constexpr size_t kHugePage = 2 * kMiB;

}  // namespace

Result<Buffers> Buffers::make(size_t count, size_t slot_bytes) {
  FF_CHECK(count > 0 && slot_bytes > 0 && slot_bytes % kDirectAlign == 0);
  FF_CHECK(count <= (SIZE_MAX - 2 * kHugePage) / slot_bytes);
  const size_t wanted = align_up(count * slot_bytes, kHugePage);
  const size_t mapped = wanted + kHugePage;  // room for aligning the start
  void* start = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    return errno_error(errno, fmt::format("{} bytes of memory for I/O", wanted));
  }
  // Unmap the unaligned head and tail.
  auto* begin = static_cast<std::byte*>(start);
  const size_t head =
      align_up(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
  const size_t tail = kHugePage - head;
  if (head > 0) munmap(begin, head);
  if (tail > 0) munmap(begin + head + wanted, tail);
  madvise(begin + head, wanted, MADV_HUGEPAGE);  // a hint: small pages work as well
  return Buffers(begin + head, wanted, count, slot_bytes);
}

Buffers::Buffers(std::byte* base, size_t mapped, size_t count, size_t slot_bytes)
    : base_(base), mapped_(mapped), count_(count), slot_bytes_(slot_bytes) {}

Buffers Buffers::from_memory(ByteSpan memory, size_t count, size_t slot_bytes,
                             std::function<void(ByteSpan)> release) {
  FF_CHECK(count * slot_bytes <= memory.size());
  Buffers buffers(memory.data(), memory.size(), count, slot_bytes);
  buffers.release_ = std::move(release);
  return buffers;
}

Buffers::~Buffers() {
  if (base_ == nullptr) return;
  if (release_) {
    release_({base_, mapped_});
  } else {
    munmap(base_, mapped_);
  }
}

Buffers::Buffers(Buffers&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)),
      count_(std::exchange(other.count_, 0)),
      slot_bytes_(std::exchange(other.slot_bytes_, 0)),
      release_(std::move(other.release_)) {}

Buffers& Buffers::operator=(Buffers&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapped_, other.mapped_);
  std::swap(count_, other.count_);
  std::swap(slot_bytes_, other.slot_bytes_);
  std::swap(release_, other.release_);
  return *this;
}

ByteSpan Buffers::slot(size_t index) const {
  FF_CHECK(index < count_);
  return {base_ + index * slot_bytes_, slot_bytes_};
}

Result<Buffers> Disk::make_buffers(size_t count, size_t slot_bytes) {
  return Buffers::make(count, slot_bytes);
}

}  // namespace ff::io
