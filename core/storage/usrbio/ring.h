// A ring in shared memory, similar to io_uring: the library adds submission entries and the daemon
// of the mount adds completion entries. Each queue has one writer and one reader. Counters only
// grow (and wrap); counter modulo capacity, a power of two, is the index of an entry.
//
//      0  RingHeader        counters, each on its own cache line
//    512  SubmissionEntry   x capacity, written by the library
//     ..  CompletionEntry   x capacity, written by the daemon
//
// No system calls while both sides are busy: a side without work sets its flag (`daemon_sleeping`,
// `waiters`), checks the queue once more and then waits; the other side checks the flag after
// adding entries, and wakes it.
//
// The program may write anything: the daemon copies each entry once and checks the copy. It
// compares counters with its own and never trusts them.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ff::usrbio {

constexpr uint32_t kRingMagic = 0x676e7266;  // "frng"
constexpr uint32_t kRingVersion = 1;
constexpr uint32_t kEntriesMax = 1 << 16;

struct SubmissionEntry {
  uint8_t memory[16];  // hf3fs_iov::id
  uint64_t at;         // offset in that memory, bytes
  uint64_t length;
  uint64_t file;  // inode number
  uint64_t offset;
  uint32_t slot;  // copied to the completion
  uint32_t reserved[3];
};
static_assert(sizeof(SubmissionEntry) == 64);

struct CompletionEntry {
  uint32_t slot;
  uint32_t reserved;
  int64_t result;  // bytes or -errno
};
static_assert(sizeof(CompletionEntry) == 16);

using Shared32 = std::atomic<uint32_t>;
static_assert(Shared32::is_always_lock_free && sizeof(Shared32) == 4);

struct RingHeader {
  uint32_t magic;
  uint32_t version;
  uint32_t entries;                // as requested by the program
  alignas(64) Shared32 submitted;  // written by the library: entries before this exist
  // 1: set by the daemon before it sleeps; 0: set by the waker
  alignas(64) Shared32 daemon_sleeping;
  alignas(64) Shared32 completed;  // written by the daemon: entries before this exist
  alignas(64) Shared32 waiters;    // threads of the library that wait for `completed`
  uint8_t reserved[192];
};
static_assert(sizeof(RingHeader) == 512);

// The capacity of a queue with room for `entries`.
constexpr uint32_t queue_capacity(uint32_t entries) { return std::bit_ceil(entries); }

// The size of a ring in bytes. 0: invalid number of entries.
constexpr size_t ring_bytes(int64_t entries) {
  if (entries <= 0 || entries > kEntriesMax) return 0;
  const size_t capacity = queue_capacity(static_cast<uint32_t>(entries));
  constexpr size_t kPage = 4096;
  const size_t bytes =
      sizeof(RingHeader) + capacity * (sizeof(SubmissionEntry) + sizeof(CompletionEntry));
  return (bytes + kPage - 1) / kPage * kPage;
}

// A mapped ring. The capacity comes from the side that maps it, not from the shared header.
class Ring {
 public:
  Ring() = default;
  Ring(void* base, uint32_t entries)
      : base_(static_cast<std::byte*>(base)), capacity_(queue_capacity(entries)) {}

  RingHeader& head() const { return *reinterpret_cast<RingHeader*>(base_); }
  uint32_t capacity() const { return capacity_; }
  SubmissionEntry& submission(uint32_t number) const {
    return reinterpret_cast<SubmissionEntry*>(base_ + sizeof(RingHeader))[number & (capacity_ - 1)];
  }
  CompletionEntry& completion(uint32_t number) const {
    std::byte* const first = base_ + sizeof(RingHeader) + capacity_ * sizeof(SubmissionEntry);
    return reinterpret_cast<CompletionEntry*>(first)[number & (capacity_ - 1)];
  }

 private:
  std::byte* base_ = nullptr;
  uint32_t capacity_ = 0;
};

}  // namespace ff::usrbio
