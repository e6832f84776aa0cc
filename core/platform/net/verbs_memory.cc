// verbs_memory.cc: finding, making and dropping registrations.
#include "platform/net/verbs_memory.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>

#include "platform/base/check.h"

namespace ff::net {

namespace {

constexpr int kRemote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

int rights_of(VerbsMemory::Use use) {
  switch (use) {
    case VerbsMemory::Use::send: return 0;
    case VerbsMemory::Use::receive: return IBV_ACCESS_LOCAL_WRITE;
    case VerbsMemory::Use::source: return IBV_ACCESS_REMOTE_READ;
    case VerbsMemory::Use::sink: return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  }
  FF_CHECK(!"no such use");
  return 0;
}

// A peer is given a key with exactly its rights; the device itself may have more.
bool serves(int have, int need) {
  return (need & kRemote) != 0 ? have == need : (have & need) == need;
}

Error refused(int err, const std::string& device, size_t bytes) {
  Error error = errno_error(err, fmt::format("{}: registering {} bytes of memory", device, bytes));
  if (err == ENOMEM || err == EAGAIN) {
    error.code = Errc::busy;
    error.hint = "Raise the limit on locked memory: ulimit -l, or LimitMEMLOCK= of the service.";
  }
  return error;
}

}  // namespace

class VerbsMemory::Region final : public ListLink<Region> {
 public:
  Region(VerbsMemory& memory, const Range& range, int rights, VerbsPtr<ibv_mr> registration)
      : memory_(memory), range_(range), rights_(rights), registration_(std::move(registration)) {}

  VerbsMemory& memory_;
  Range range_;
  int rights_;
  VerbsPtr<ibv_mr> registration_;
  size_t holds_ = 0;
  Regions::iterator place_;
};

VerbsMemory::Hold::~Hold() {
  if (region_ != nullptr) region_->memory_.release(*region_);
}

uint32_t VerbsMemory::Hold::local_key() const { return region_->registration_->lkey; }
uint32_t VerbsMemory::Hold::remote_key() const { return region_->registration_->rkey; }

VerbsMemory::Lasting::Lasting(VerbsMemory& memory, ByteView range) : memory_(&memory) {
  const Range whole = range_of(range);
  begin_ = whole.begin;
  FF_CHECK(memory.lasting_.emplace(whole.begin, whole.end).second);
}

VerbsMemory::Lasting::~Lasting() {
  if (memory_ != nullptr) memory_->end_lasting(begin_);
}

VerbsMemory::VerbsMemory(ibv_pd* domain, std::string device)
    : domain_(domain), device_(std::move(device)) {}

VerbsMemory::~VerbsMemory() { FF_CHECK(unused_count_ == regions_.size() && lasting_.empty()); }

VerbsMemory::Range VerbsMemory::range_of(ByteView memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  return {begin, begin + memory.size()};
}

// A wider registration serves only in lasting memory: elsewhere a user of one part of it says
// nothing about the rest.
VerbsMemory::Region* VerbsMemory::find(const Range& range, int rights) {
  for (auto next = regions_.upper_bound(range.begin); next != regions_.begin();) {
    --next;
    if (range.end - next->first > longest_) break;
    Region& region = *next->second;
    if (!region.range_.contains(range) || !serves(region.rights_, rights)) continue;
    if (region.range_.size() == range.size() || is_lasting(region.range_)) return &region;
  }
  return nullptr;
}

Result<VerbsMemory::Hold> VerbsMemory::acquire(ByteView memory, Use use) {
  const Range range = range_of(memory);
  const int rights = rights_of(use);
  Region* region = find(range, rights);
  if (region == nullptr) {
    auto* const address = const_cast<std::byte*>(memory.data());
    VerbsPtr<ibv_mr> made(::ibv_reg_mr(domain_, address, memory.size(), rights));
    if (made == nullptr && unused_count_ > 0) {
      drop_unused(0);
      made.reset(::ibv_reg_mr(domain_, address, memory.size(), rights));
    }
    if (made == nullptr) return refused(errno, device_, memory.size());
    registrations_++;
    longest_ = std::max(longest_, range.size());
    const auto place = regions_.emplace(
        range.begin, std::make_unique<Region>(*this, range, rights, std::move(made)));
    region = place->second.get();
    region->place_ = place;
  } else if (region->holds_ == 0) {
    region->unlink();
    unused_count_--;
  }
  region->holds_++;
  return Hold(*region);
}

bool VerbsMemory::is_lasting(const Range& range) const {
  const auto next = lasting_.upper_bound(range.begin);
  return next != lasting_.begin() && range.end <= std::prev(next)->second;
}

void VerbsMemory::release(Region& region) {
  if (--region.holds_ > 0) return;
  unused_.push_back(region);
  unused_count_++;
  if (!is_lasting(region.range_)) return drop(region);
  drop_unused(kUnusedMax);
}

// An unused one.
void VerbsMemory::drop(Region& region) {
  region.unlink();
  unused_count_--;
  regions_.erase(region.place_);
}

void VerbsMemory::drop_unused(size_t keep) {
  while (unused_count_ > keep) drop(unused_.front());
}

// What is still used goes with its last user.
void VerbsMemory::end_lasting(uintptr_t begin) {
  const auto place = lasting_.find(begin);
  const Range range{begin, place->second};
  lasting_.erase(place);
  for (auto next = regions_.lower_bound(range.begin); next != regions_.end();) {
    Region& region = *(next++)->second;
    if (region.range_.begin >= range.end) break;
    if (region.holds_ == 0) drop(region);
  }
}

}  // namespace ff::net
