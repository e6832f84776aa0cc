// A ring in shared memory: the library puts requests into one queue and the mount's daemon answers
// into another. Each queue has one writer and one reader; its numbers only grow (and wrap), and say
// which entry is meant when cut to the capacity, a power of two.
//
//      0  RingHead   numbers of both queues, each on a cache line of who writes it
//    512  Request    x capacity, written by the library
//     ..  Outcome    x capacity, written by the daemon
//
// Nobody makes a system call while the other side is awake: who has found nothing to do says so
// (`asleep`, `waiting`), looks once more and then waits; who adds something looks there, and wakes.
//
// What the library writes is whatever a program pleases: the daemon copies it once, and checks the
// copy. Numbers of places are checked against the daemon's own, never followed.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ff::usrbio {

constexpr uint32_t kRingMagic = 0x676e7266;  // "frng"
constexpr uint32_t kRingVersion = 1;
constexpr uint32_t kEntriesMax = 1 << 16;

struct Request {
  uint8_t memory[16];  // hf3fs_iov::id
  uint64_t at;         // in that memory, bytes
  uint64_t length;
  uint64_t file;  // inode
  uint64_t offset;
  uint32_t slot;  // comes back in the outcome
  uint32_t reserved[3];
};
static_assert(sizeof(Request) == 64);

struct Outcome {
  uint32_t slot;
  uint32_t reserved;
  int64_t result;  // bytes or -errno
};
static_assert(sizeof(Outcome) == 16);

using Shared32 = std::atomic<uint32_t>;
static_assert(Shared32::is_always_lock_free && sizeof(Shared32) == 4);

struct RingHead {
  uint32_t magic;
  uint32_t version;
  uint32_t entries;                // that the program has asked for
  alignas(64) Shared32 submitted;  // by the library: requests before this number are there
  alignas(64) Shared32 asleep;     // by the daemon: 1: it has to be woken; by who wakes it: 0
  alignas(64) Shared32 completed;  // by the daemon: outcomes before this number are there
  alignas(64) Shared32 waiting;    // by the library: threads that wait for `completed` to change
  uint8_t reserved[192];
};
static_assert(sizeof(RingHead) == 512);

// Entries of a queue that has room for so many.
constexpr uint32_t capacity_of(uint32_t entries) { return std::bit_ceil(entries); }

// 0: no ring has so many entries.
constexpr size_t ring_bytes(int64_t entries) {
  if (entries <= 0 || entries > kEntriesMax) return 0;
  const size_t capacity = capacity_of(static_cast<uint32_t>(entries));
  constexpr size_t kPage = 4096;
  const size_t bytes = sizeof(RingHead) + capacity * (sizeof(Request) + sizeof(Outcome));
  return (bytes + kPage - 1) / kPage * kPage;
}

// A ring where it is mapped. The number of entries is that of who maps it, not what stands there.
class Ring {
 public:
  Ring() = default;
  Ring(void* base, uint32_t entries)
      : base_(static_cast<std::byte*>(base)), capacity_(capacity_of(entries)) {}

  RingHead& head() const { return *reinterpret_cast<RingHead*>(base_); }
  uint32_t capacity() const { return capacity_; }
  Request& request(uint32_t number) const {
    return reinterpret_cast<Request*>(base_ + sizeof(RingHead))[number & (capacity_ - 1)];
  }
  Outcome& outcome(uint32_t number) const {
    std::byte* const first = base_ + sizeof(RingHead) + capacity_ * sizeof(Request);
    return reinterpret_cast<Outcome*>(first)[number & (capacity_ - 1)];
  }

 private:
  std::byte* base_ = nullptr;
  uint32_t capacity_ = 0;
};

}  // namespace ff::usrbio
