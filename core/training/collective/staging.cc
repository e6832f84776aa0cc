// staging.cc: regions that operations use again and again.
#include "training/collective/staging.h"

#include <algorithm>
#include <cstring>

namespace ff::collective {

Result<std::shared_ptr<const net::SharedRegion>> StagingPool::make_region(uint64_t bytes) {
  FF_TRY(auto region, group_.make_region(bytes));
  placement_.interleave_all(region->memory());
  return region;
}

Result<std::shared_ptr<const net::SharedRegion>> StagingPool::get(uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    // The smallest that fits.
    auto fits = free_.end();
    for (auto next = free_.begin(); next != free_.end(); ++next) {
      const uint64_t size = (*next)->memory().size();
      if (size >= bytes && (fits == free_.end() || size < (*fits)->memory().size())) fits = next;
    }
    if (fits != free_.end()) {
      auto region = std::move(*fits);
      free_.erase(fits);
      return region;
    }
  }
  return make_region(bytes);
}

void StagingPool::give_back(std::shared_ptr<const net::SharedRegion> region) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(region));
}

StagedMemory::~StagedMemory() {
  if (region_ != nullptr) pool_.give_back(std::move(region_));
}

Result<SharedAddress> StagedMemory::share(uint64_t offset, uint64_t bytes, bool copies) {
  const ByteSpan part = memory_.subspan(offset, bytes);
  if (const auto shared = pool_.address_of(part)) return *shared;
  if (region_ == nullptr) {
    FF_TRY(region_, pool_.get(memory_.size()));
  }
  const ByteSpan staged = region_->memory().subspan(offset, bytes);
  if (copies) std::memcpy(staged.data(), part.data(), bytes);
  return *pool_.address_of(staged);
}

void StagedMemory::store(uint64_t offset, uint64_t bytes) {
  if (region_ == nullptr) return;
  std::memcpy(memory_.data() + offset, region_->memory().data() + offset, bytes);
}

}  // namespace ff::collective
