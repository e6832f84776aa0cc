// Checks that load the machine: processors with kernels of known results, memory with patterns and
// streams. Each reports what it covered, and names the core or address of each wrong bit.
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

// Duration of a load at a level.
int64_t load_ns(RunLevel level);
// Processors in the affinity mask of this process.
std::vector<unsigned> allowed_cpus();
// Pins the calling thread. False: the processor is not allowed.
bool pin_to(unsigned cpu);
// Memory that can be allocated without causing shortage: of the machine and of the cgroups of this
// process (limit of a container). 0: unknown.
uint64_t free_memory(const SystemTree& tree);
// Bandwidth of the STREAM triad on all these processors together, in bytes per second, with
// non-temporal stores: the bandwidth for data that is read and written once. Arrays of
// `array_bytes`; nothing: not enough memory.
std::optional<double> triad_past_caches(Clock& clock, uint64_t array_bytes);
// Runs `work` on one pinned thread for each of these processors, and waits for all.
void on_each(const std::vector<unsigned>& cpus, const std::function<void(size_t index)>& work);

// Memory of a load, in huge pages if possible, for reproducible measurements.
class LargePages {
 public:
  explicit LargePages(uint64_t bytes);
  ~LargePages();
  LargePages(const LargePages&) = delete;
  LargePages& operator=(const LargePages&) = delete;
  bool is_allocated() const { return at_ != nullptr; }  // false: not enough memory
  template <class T>
  T* as(uint64_t from = 0) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(at_) + from);
  }

 private:
  uint64_t bytes_;
  void* at_ = nullptr;
};

// Rounds of work of several threads, timed from the first start to the last end: a thread that the
// kernel delayed must not look fast.
class TurnTimes {
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

void check_cpu_kernels(const CheckContext& context);
void check_memory_stream(const CheckContext& context);
void check_memory_pattern(const CheckContext& context);
void check_collective_reduce(const CheckContext& context);

}  // namespace ff::validate
