// fuse_slots.cc: the free slots in a list, so that few of them are used often.
#include "storage/mount/fuse_slots.h"

#include <utility>

namespace ff::mount {

FuseSlots::FuseSlots(ByteSpan memory) : memory_(memory) {
  for (size_t i = size(); i > 0; i--) free_.push_back(i - 1);
}

std::optional<size_t> FuseSlots::acquire(size_t spare) {
  const std::lock_guard lock(mutex_);
  if (free_.size() <= spare) return std::nullopt;
  const size_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void FuseSlots::release(size_t slot) {
  const std::lock_guard lock(mutex_);
  free_.push_back(slot);
}

size_t FuseSlots::in_use() const {
  const std::lock_guard lock(mutex_);
  return size() - free_.size();
}

void FuseSlots::shrink(size_t count) {
  const std::lock_guard lock(mutex_);
  std::erase_if(free_, [count](size_t slot) { return slot >= count; });
  memory_ = memory_.first(count * kBytes);
}

}  // namespace ff::mount
