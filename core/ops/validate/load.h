// Checks that load the machine: processors with kernels whose results are known, memory with
// patterns and with streams. Each says what it has run on, and names the core or the place of every
// wrong bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "ops/validate/check.h"

namespace ff::validate {

// How long a load goes on at a level.
int64_t load_ns(Level level);
// Processors that this process may run on.
std::vector<unsigned> allowed_cpus();
// Pins the calling thread. False: that processor may not be used.
bool pin_to(unsigned cpu);
// Memory that may be taken without others running out of it: of the machine, and of the groups that
// this process is in (a container's limit). 0: unknown.
uint64_t free_memory(const Tree& tree);
// Bytes a second of STREAM's triad on all these processors together, its results written past the
// caches: what memory gives that is read and written once. Arrays of so many bytes; nothing: no
// memory for them.
std::optional<double> triad_past_caches(Clock& clock, uint64_t array_bytes);
// Runs `work` on a thread of each of these processors, pinned there, and waits for all.
void on_each(const std::vector<unsigned>& cpus, const std::function<void(size_t index)>& work);

// Memory of a load, in large pages where there are any, so that it measures the same each time.
class LargePages {
 public:
  explicit LargePages(uint64_t bytes);
  ~LargePages();
  LargePages(const LargePages&) = delete;
  LargePages& operator=(const LargePages&) = delete;
  bool there() const { return at_ != nullptr; }  // false: there is not so much memory
  template <class T>
  T* as(uint64_t from = 0) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(at_) + from);
  }

 private:
  uint64_t bytes_;
  void* at_ = nullptr;
};

// What several threads do in turns, timed from the first that begins one to the last that ends it:
// a thread that the kernel has held up is not to look fast.
class Spans {
 public:
  void add(int turn, int64_t began_ns, int64_t ended_ns);
  double shortest_seconds() const;  // above 0

 private:
  struct Span {
    int64_t began_ns = 0, ended_ns = 0;
  };
  std::mutex mutex_;
  std::map<int, Span> turns_;
};

void check_cpu_kernels(const Context& context);
void check_memory_stream(const Context& context);
void check_memory_pattern(const Context& context);
void check_collective_reduce(const Context& context);

}  // namespace ff::validate
