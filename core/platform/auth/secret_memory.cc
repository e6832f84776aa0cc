// secret_memory.cc: a pool of small blocks in locked pages. It never shrinks: keys are few and
// small.
#include "platform/auth/secret_memory.h"

#include <openssl/crypto.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <mutex>
#include <new>

#include "platform/base/bytes.h"

namespace ff::auth {

namespace {

constexpr size_t kPage = 4 * kKiB;

class LockedPages final : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t /*alignment*/) override {
    void* const memory = ::mmap(nullptr, align_up(bytes, kPage), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    // Best effort: a user may have used up the memory that he may lock.
    (void)::mlock(memory, align_up(bytes, kPage));
    (void)::madvise(memory, align_up(bytes, kPage), MADV_DONTDUMP);
    return memory;
  }
  void do_deallocate(void* memory, size_t bytes, size_t /*alignment*/) override {
    ::munmap(memory, align_up(bytes, kPage));
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

class LockedMemory final : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t alignment) override {
    const std::lock_guard lock(mutex_);
    return pool_.allocate(bytes, alignment);
  }
  void do_deallocate(void* memory, size_t bytes, size_t alignment) override {
    cleanse(memory, bytes);
    const std::lock_guard lock(mutex_);
    pool_.deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::mutex mutex_;
  LockedPages pages_;
  // Blocks above 512 bytes get pages of their own.
  std::pmr::unsynchronized_pool_resource pool_{
      {.max_blocks_per_chunk = 32, .largest_required_pool_block = 512}, &pages_};
};

}  // namespace

void cleanse(void* memory, size_t size) { ::OPENSSL_cleanse(memory, size); }

void forbid_dumps() { (void)::prctl(PR_SET_DUMPABLE, 0); }

std::pmr::memory_resource& locked_memory() {
  // Never destroyed: key rings may outlive static objects.
  static LockedMemory& memory = *new LockedMemory;
  return memory;
}

}  // namespace ff::auth
