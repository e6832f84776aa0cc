// Registered memory: what an RDMA device may touch is pinned and named by keys first (ibv_reg_mr),
// which costs far more than moving a few kilobytes. Registrations are shared by all who use the
// same range, and kept a while after the last of them.
//
// Keeping is for lasting memory only. A registration holds pages, not addresses: memory that is
// unmapped and mapped again has other pages, and the device would go on with the old ones without a
// word. So the owner of a pool says how long it lasts; all other memory is registered for as long
// as it is used.
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
#include "platform/net/verbs_parts.h"

namespace ff::net {

class VerbsMemory {
 public:
  // Who touches it. Each needs other rights, and a peer gets no more than it needs.
  enum class Use : uint8_t {
    send,     // the device reads: SEND, push
    receive,  // the device writes: RECV, pull
    source,   // a peer reads
    sink,     // a peer writes
  };
  // Registrations kept without a user; devices have some thousands. The oldest goes first.
  static constexpr size_t kUnusedMax = 256;

  // `device`: its name, for messages.
  VerbsMemory(ibv_pd* domain, std::string device);
  ~VerbsMemory();
  VerbsMemory(const VerbsMemory&) = delete;
  VerbsMemory& operator=(const VerbsMemory&) = delete;

  class Region;
  // One use of a registration. Must not outlive the VerbsMemory.
  class [[nodiscard]] Hold {
   public:
    Hold() = default;
    explicit Hold(Region& region) : region_(&region) {}
    Hold(Hold&& other) noexcept : region_(std::exchange(other.region_, nullptr)) {}
    Hold& operator=(Hold&& other) noexcept {
      std::swap(region_, other.region_);
      return *this;
    }
    ~Hold();
    uint32_t local_key() const;
    uint32_t remote_key() const;  // of sources and sinks

   private:
    Region* region_ = nullptr;
  };
  // `memory` is not empty and stays mapped while held. Errc::busy: the device or the limit on
  // pinned memory allows no more; other errors: this memory cannot be registered.
  Result<Hold> acquire(ByteView memory, Use use);

  // While it lives its memory stays mapped where it is, and keys given for it may stay valid. Must
  // not outlive the VerbsMemory.
  class [[nodiscard]] Lasting {
   public:
    Lasting() = default;
    Lasting(VerbsMemory& memory, ByteView range);
    Lasting(Lasting&& other) noexcept
        : memory_(std::exchange(other.memory_, nullptr)), begin_(other.begin_) {}
    Lasting& operator=(Lasting&& other) noexcept {
      std::swap(memory_, other.memory_);
      std::swap(begin_, other.begin_);
      return *this;
    }
    ~Lasting();

   private:
    VerbsMemory* memory_ = nullptr;
    uintptr_t begin_ = 0;
  };
  // Ranges do not overlap.
  Lasting lasting(ByteView range) { return Lasting(*this, range); }

  size_t registered() const { return regions_.size(); }
  size_t unused() const { return unused_count_; }
  uint64_t registrations() const { return registrations_; }  // ever made

 private:
  friend class Region;
  struct Range {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    uintptr_t size() const { return end - begin; }
    bool contains(const Range& other) const { return begin <= other.begin && other.end <= end; }
  };
  using Regions = std::multimap<uintptr_t, std::unique_ptr<Region>>;  // by begin

  static Range range_of(ByteView memory);
  Region* find(const Range& range, int rights);
  bool is_lasting(const Range& range) const;
  void release(Region& region);
  void drop(Region& region);
  void drop_unused(size_t keep);
  void end_lasting(uintptr_t begin);

  ibv_pd* domain_;
  std::string device_;
  Regions regions_;
  uintptr_t longest_ = 0;         // of all regions ever, in bytes: how far back find() has to look
  IntrusiveList<Region> unused_;  // the oldest first
  size_t unused_count_ = 0;
  uint64_t registrations_ = 0;
  std::map<uintptr_t, uintptr_t> lasting_;  // begin -> end
};

}  // namespace ff::net
