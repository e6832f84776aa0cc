// verbs_registration_cache.cc: lookup, creation and eviction of registrations.
#include "platform/net/verbs_registration_cache.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>

#include "platform/base/check.h"

namespace ff::net {

namespace {

constexpr int kRemote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

int rights_of(VerbsRegistrationCache::Use use) {
  switch (use) {
    case VerbsRegistrationCache::Use::send: return 0;
    case VerbsRegistrationCache::Use::receive: return IBV_ACCESS_LOCAL_WRITE;
    case VerbsRegistrationCache::Use::source: return IBV_ACCESS_REMOTE_READ;
    case VerbsRegistrationCache::Use::sink: return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  }
  FF_CHECK(!"no such use");
  return 0;
}

// A peer gets a key with exactly the rights that it needs; local keys may have more.
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

class VerbsRegistrationCache::Registration final : public ListLink<Registration> {
 public:
  Registration(VerbsRegistrationCache& memory, const Range& range, int rights,
               VerbsPtr<ibv_mr> registration)
      : cache_(memory), range_(range), rights_(rights), registration_(std::move(registration)) {}

  VerbsRegistrationCache& cache_;
  Range range_;
  int rights_;
  VerbsPtr<ibv_mr> registration_;
  size_t holds_ = 0;
  RegistrationMap::iterator place_;
};

VerbsRegistrationCache::Reference::~Reference() {
  if (registration_ != nullptr) registration_->cache_.release(*registration_);
}

uint32_t VerbsRegistrationCache::Reference::local_key() const {
  return registration_->registration_->lkey;
}
uint32_t VerbsRegistrationCache::Reference::remote_key() const {
  return registration_->registration_->rkey;
}

VerbsRegistrationCache::CacheableRange::CacheableRange(VerbsRegistrationCache& memory,
                                                       ByteView range)
    : cache_(&memory) {
  const Range whole = range_of(range);
  begin_ = whole.begin;
  FF_CHECK(memory.cacheable_.emplace(whole.begin, whole.end).second);
}

VerbsRegistrationCache::CacheableRange::~CacheableRange() {
  if (cache_ != nullptr) cache_->end_cacheable(begin_);
}

VerbsRegistrationCache::VerbsRegistrationCache(ibv_pd* domain, std::string device)
    : domain_(domain), device_(std::move(device)) {}

VerbsRegistrationCache::~VerbsRegistrationCache() {
  FF_CHECK(unused_count_ == registrations_by_begin_.size() && cacheable_.empty());
}

VerbsRegistrationCache::Range VerbsRegistrationCache::range_of(ByteView memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  return {begin, begin + memory.size()};
}

// A larger registration can be shared only inside a cacheable range: elsewhere a user of one part
// does not guarantee that the rest stays mapped.
VerbsRegistrationCache::Registration* VerbsRegistrationCache::find(const Range& range, int rights) {
  for (auto next = registrations_by_begin_.upper_bound(range.begin);
       next != registrations_by_begin_.begin();) {
    --next;
    if (range.end - next->first > longest_) break;
    Registration& region = *next->second;
    if (!region.range_.contains(range) || !serves(region.rights_, rights)) continue;
    if (region.range_.size() == range.size() || is_cacheable(region.range_)) return &region;
  }
  return nullptr;
}

Result<VerbsRegistrationCache::Reference> VerbsRegistrationCache::acquire(ByteView memory,
                                                                          Use use) {
  const Range range = range_of(memory);
  const int rights = rights_of(use);
  Registration* region = find(range, rights);
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
    const auto place = registrations_by_begin_.emplace(
        range.begin, std::make_unique<Registration>(*this, range, rights, std::move(made)));
    region = place->second.get();
    region->place_ = place;
  } else if (region->holds_ == 0) {
    region->unlink();
    unused_count_--;
  }
  region->holds_++;
  return Reference(*region);
}

bool VerbsRegistrationCache::is_cacheable(const Range& range) const {
  const auto next = cacheable_.upper_bound(range.begin);
  return next != cacheable_.begin() && range.end <= std::prev(next)->second;
}

void VerbsRegistrationCache::release(Registration& region) {
  if (--region.holds_ > 0) return;
  unused_.push_back(region);
  unused_count_++;
  if (!is_cacheable(region.range_)) return drop(region);
  drop_unused(kUnusedMax);
}

// Removes an unused registration.
void VerbsRegistrationCache::drop(Registration& region) {
  region.unlink();
  unused_count_--;
  registrations_by_begin_.erase(region.place_);
}

void VerbsRegistrationCache::drop_unused(size_t keep) {
  while (unused_count_ > keep) drop(unused_.front());
}

// Registrations in use are removed with their last reference.
void VerbsRegistrationCache::end_cacheable(uintptr_t begin) {
  const auto place = cacheable_.find(begin);
  const Range range{begin, place->second};
  cacheable_.erase(place);
  for (auto next = registrations_by_begin_.lower_bound(range.begin);
       next != registrations_by_begin_.end();) {
    Registration& region = *(next++)->second;
    if (region.range_.begin >= range.end) break;
    if (region.holds_ == 0) drop(region);
  }
}

}  // namespace ff::net
