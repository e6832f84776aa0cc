// A cache of memory registrations (ibv_reg_mr). Registering pins the memory and assigns keys; it
// costs far more than transferring a few kilobytes. Users of the same range share a registration,
// and the cache keeps it for a while after the last use.
//
// Only memory inside a CacheableRange is kept. A registration refers to pages, not addresses:
// after munmap() and mmap() the same addresses have other pages, and the device would silently use
// the old ones. So the owner of a memory pool declares its lifetime; all other memory is registered
// while in use only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "platform/base/bytes.h"
#include "platform/base/intrusive_list.h"
#include "platform/base/result.h"
#include "platform/net/verbs_handles.h"

namespace ff::net {

class VerbsRegistrationCache {
 public:
  // Who accesses the memory; determines the access flags, so that a peer gets no more than needed.
  enum class Use : uint8_t {
    send,     // the device reads: SEND, push
    receive,  // the device writes: RECV, pull
    source,   // a peer reads
    sink,     // a peer writes
  };
  // Maximum number of unused registrations (LRU); devices support some thousands.
  static constexpr size_t kUnusedMax = 256;

  // `device`: its name, for messages.
  VerbsRegistrationCache(ibv_pd* domain, std::string device);
  ~VerbsRegistrationCache();
  VerbsRegistrationCache(const VerbsRegistrationCache&) = delete;
  VerbsRegistrationCache& operator=(const VerbsRegistrationCache&) = delete;

  class Registration;
  // A reference to a registration. Must not outlive the cache.
  class [[nodiscard]] Reference {
   public:
    Reference() = default;
    explicit Reference(Registration& region) : registration_(&region) {}
    Reference(Reference&& other) noexcept
        : registration_(std::exchange(other.registration_, nullptr)) {}
    Reference& operator=(Reference&& other) noexcept {
      std::swap(registration_, other.registration_);
      return *this;
    }
    ~Reference();
    uint32_t local_key() const;
    uint32_t remote_key() const;  // of sources and sinks

   private:
    Registration* registration_ = nullptr;
  };
  // `memory` is not empty and must stay mapped while referenced. Errc::busy: the limit of the
  // device or of locked memory is reached; other errors: this memory cannot be registered.
  Result<Reference> acquire(ByteView memory, Use use);

  // While this object exists, the owner guarantees that the memory stays mapped, and the cache may
  // keep registrations of it. Must not outlive the cache.
  class [[nodiscard]] CacheableRange {
   public:
    CacheableRange() = default;
    CacheableRange(VerbsRegistrationCache& memory, ByteView range);
    CacheableRange(CacheableRange&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)), begin_(other.begin_) {}
    CacheableRange& operator=(CacheableRange&& other) noexcept {
      std::swap(cache_, other.cache_);
      std::swap(begin_, other.begin_);
      return *this;
    }
    ~CacheableRange();

   private:
    VerbsRegistrationCache* cache_ = nullptr;
    uintptr_t begin_ = 0;
  };
  // Ranges must not overlap.
  CacheableRange cacheable(ByteView range) { return CacheableRange(*this, range); }

  size_t registered() const { return registrations_by_begin_.size(); }
  size_t unused() const { return unused_count_; }
  uint64_t registrations() const { return registrations_; }  // total ibv_reg_mr calls

 private:
  friend class Registration;
  struct Range {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    uintptr_t size() const { return end - begin; }
    bool contains(const Range& other) const { return begin <= other.begin && other.end <= end; }
  };
  using RegistrationMap = std::multimap<uintptr_t, std::unique_ptr<Registration>>;  // by begin

  static Range range_of(ByteView memory);
  Registration* find(const Range& range, int rights);
  bool is_cacheable(const Range& range) const;
  void release(Registration& region);
  void drop(Registration& region);
  void drop_unused(size_t keep);
  void end_cacheable(uintptr_t begin);

  ibv_pd* domain_;
  std::string device_;
  RegistrationMap registrations_by_begin_;
  uintptr_t longest_ = 0;  // largest registration so far, in bytes: how far back find() searches
  IntrusiveList<Registration> unused_;  // LRU order
  size_t unused_count_ = 0;
  uint64_t registrations_ = 0;
  std::map<uintptr_t, uintptr_t> cacheable_;  // begin -> end
};

}  // namespace ff::net
