// load_memory.cc: streams (McCalpin, "Memory Bandwidth and Machine Balance in Current High
// Performance Computers", 1995) and bit patterns.
#include <sys/sysinfo.h>

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <map>
#include <mutex>

#include "ops/validate/host.h"
#include "ops/validate/load.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/files.h"

namespace ff::validate {

namespace {

// Size of the last-level caches of all sockets together; 32 MiB if unknown.
uint64_t last_cache(const SystemTree& tree) {
  std::map<std::string, uint64_t> by_sharers;
  for (const std::string& cpu : tree.list("/sys/devices/system/cpu", "cpu")) {
    const std::string at = fmt::format("/sys/devices/system/cpu/{}/cache/index3", cpu);
    const auto size = tree.maybe_text(at + "/size");
    const auto sharers = tree.maybe_text(at + "/shared_cpu_list");
    if (!size || !sharers) continue;
    const auto bytes = parse_size(size->ends_with('K') ? *size + "iB" : *size);
    if (bytes) by_sharers[*sharers] = *bytes;
  }
  uint64_t all = 0;
  for (const auto& [sharers, bytes] : by_sharers) all += bytes;
  return all > 0 ? all : 32 * kMiB;
}

enum Stream : size_t { kCopy, kScale, kAdd, kTriad, kTriadPast, kStreams };
constexpr std::array<const char*, kStreams> kStreamNames = {"copy", "scale", "add", "triad",
                                                            "triad past the caches"};
constexpr std::array<double, kStreams> kStreamArrays = {2, 2, 3, 3, 3};  // arrays moved per stream

struct Arrays {
  double* a;
  double* b;
  double* c;
};

// STREAM kernels on a, b and the scalar 3; `first` and `last` index doubles, multiples of two.
void run_stream(Stream which, const Arrays& on, size_t first, size_t last) {
  double* const a = on.a;
  double* const b = on.b;
  double* const c = on.c;
  switch (which) {
    case kCopy:
      for (size_t i = first; i < last; i++) c[i] = a[i];
      break;
    case kScale:
      for (size_t i = first; i < last; i++) b[i] = 3 * c[i];
      break;
    case kAdd:
      for (size_t i = first; i < last; i++) c[i] = a[i] + b[i];
      break;
    case kTriad:
      for (size_t i = first; i < last; i++) c[i] = a[i] + 3 * b[i];
      break;
    case kTriadPast: {
      const __m128d three = _mm_set1_pd(3);
      for (size_t i = first; i < last; i += 2) {
        const __m128d product = _mm_mul_pd(three, _mm_load_pd(b + i));
        _mm_stream_pd(c + i, _mm_add_pd(_mm_load_pd(a + i), product));
      }
      _mm_sfence();
      break;
    }
    case kStreams: break;
  }
  asm volatile("" : : "r"(a), "r"(b), "r"(c) : "memory");
}

struct StreamRun {
  Clock& clock;
  Arrays arrays;
  size_t count;  // doubles of an array
  int passes;
};

// Seconds of the fastest pass of each stream, all these cores together.
std::array<double, kStreams> time_streams(const StreamRun& run, const std::vector<unsigned>& cpus) {
  std::array<TurnTimes, kStreams> spans;
  std::barrier together(static_cast<ptrdiff_t>(cpus.size()));
  const size_t share = run.count / cpus.size() & ~size_t{7};
  on_each(cpus, [&](size_t index) {
    const size_t first = index * share;
    const size_t last = index + 1 == cpus.size() ? run.count : first + share;
    for (size_t i = first; i < last; i++) {  // first touch by its worker, for NUMA placement
      run.arrays.a[i] = 1;
      run.arrays.b[i] = 2;
      run.arrays.c[i] = 0;
    }
    for (int pass = 0; pass < run.passes; pass++) {
      for (size_t which = 0; which < kStreams; which++) {
        together.arrive_and_wait();
        const int64_t began_ns = run.clock.steady_ns();
        run_stream(static_cast<Stream>(which), run.arrays, first, last);
        spans[which].add(pass, began_ns, run.clock.steady_ns());
      }
    }
  });
  std::array<double, kStreams> best = {};
  for (size_t which = 0; which < kStreams; which++) best[which] = spans[which].shortest_seconds();
  return best;
}

void report_stream(const CheckContext& context, std::string part, size_t which, uint64_t bytes,
                   double seconds, size_t cores) {
  Finding one{.name = "memory.stream", .part = std::move(part), .verdict = Verdict::pass};
  one.value = kStreamArrays[which] * static_cast<double>(bytes) / std::max(seconds, 1e-9);
  one.unit = "B/s";
  one.better = Better::higher;
  one.found = fmt::format("{} on {} cores, arrays of {}", format_rate(*one.value), cores,
                          format_size(bytes));
  context.report(std::move(one));
}

// The given cores by NUMA node.
std::map<std::string, std::vector<unsigned>> nodes_of(const SystemTree& tree,
                                                      const std::vector<unsigned>& cpus) {
  std::map<std::string, std::vector<unsigned>> nodes;
  for (const std::string& node : tree.list(kNumaNodes, "node")) {
    const auto list = tree.maybe_text(fmt::format("{}/{}/cpulist", kNumaNodes, node));
    for (const unsigned cpu : parse_cpu_list(list.value_or(""))) {
      if (std::ranges::binary_search(cpus, cpu)) nodes[node].push_back(cpu);
    }
  }
  return nodes;
}

constexpr uint64_t kPage = 2 * kMiB;
constexpr size_t kReportedMax = 20;  // reported addresses

struct Wrong {
  uint64_t at;
  uint64_t expected, got;
  const char* pattern;
};

// The value of a word in a pass; `at` is its index.
using Pattern = uint64_t (*)(uint64_t at, uint64_t seed);
struct NamedPattern {
  const char* name;
  Pattern make;
};
uint64_t mixed(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}
constexpr std::array kPatterns = {
    NamedPattern{"zeros and ones",
                 [](uint64_t at, uint64_t) { return at % 2 == 0 ? 0 : ~uint64_t{0}; }},
    NamedPattern{"its own address", [](uint64_t at, uint64_t) { return at * 8; }},
    NamedPattern{"walking ones", [](uint64_t at, uint64_t) { return uint64_t{1} << at % 64; }},
    NamedPattern{"walking zeros", [](uint64_t at, uint64_t) { return ~(uint64_t{1} << at % 64); }},
    NamedPattern{"random", [](uint64_t at, uint64_t seed) { return mixed(at ^ seed); }},
};

// One pass over memory, shared by the cores that execute it.
struct PatternTest {
  uint64_t* words;
  uint64_t seed;
  InjectedFault fault;
  std::mutex mutex = {};
  std::vector<Wrong> wrong = {};  // guarded by the mutex
  uint64_t wrong_words = 0;       // guarded by the mutex

  // Writes a pattern and its inverse into [first, last), and verifies them.
  void run(const NamedPattern& pattern, size_t first, size_t last) {
    for (const uint64_t flip : {uint64_t{0}, ~uint64_t{0}}) {
      for (size_t i = first; i < last; i++) words[i] = pattern.make(i, seed) ^ flip;
      if (fault == InjectedFault::memory_bit)
        words[first + (last - first) / 2] ^= uint64_t{1} << 17;
      // Evicts it from the caches, so that the read comes from memory.
      for (size_t i = first; i < last; i += 8) _mm_clflush(words + i);
      _mm_mfence();
      for (size_t i = first; i < last; i++) {
        const uint64_t expected = pattern.make(i, seed) ^ flip;
        const uint64_t got = const_cast<volatile uint64_t&>(words[i]);
        if (got != expected) tell({i * 8, expected, got, pattern.name});
      }
    }
  }
  void tell(const Wrong& one) {
    const std::lock_guard lock(mutex);
    wrong_words++;
    if (wrong.size() < kReportedMax) wrong.push_back(one);
  }
};

// If memory runs out meanwhile, the kernel kills this process and no job.
void go_first(io::Disk& disk) {
  auto file = disk.open("/proc/self/oom_score_adj", {.access = io::AccessMode::write});
  if (file) (void)(*file)->write_at(as_bytes("1000"), 0);
}

uint64_t pattern_bytes(RunLevel level, uint64_t available) {
  constexpr uint64_t kQuickMax = 2 * kGiB;  // a short test, on large nodes too
  const double share = level == RunLevel::quick ? 0.02 : level == RunLevel::weekly ? 0.5 : 0.9;
  const auto bytes = static_cast<uint64_t>(share * static_cast<double>(available));
  return (level == RunLevel::quick ? std::min(bytes, kQuickMax) : bytes) / kPage * kPage;
}

// The remaining memory of the cgroups (v2) of this process, from its own up to the root; none: no
// limit.
std::optional<uint64_t> left_of_groups(const SystemTree& tree) {
  const std::string text = tree.maybe_text("/proc/self/cgroup").value_or("");
  std::optional<uint64_t> least;
  for (const std::string_view line : split(text, '\n')) {
    constexpr std::string_view kUnified = "0::/";
    if (!line.starts_with(kUnified)) continue;
    std::string path(line.substr(kUnified.size() - 1));
    for (;; path = io::parent(path)) {
      const std::string at = "/sys/fs/cgroup" + (path == "/" ? "" : path);
      const auto most = tree.maybe_number(at + "/memory.max");
      const auto used = tree.maybe_number(at + "/memory.current");
      if (most && used) {
        const auto left = static_cast<uint64_t>(std::max(*most - *used, 0.0));
        least = std::min(least.value_or(left), left);
      }
      if (path == "/" || path.empty()) break;
    }
  }
  return least;
}

}  // namespace

uint64_t free_memory(const SystemTree& tree) {
  const uint64_t free = meminfo(tree, "MemAvailable").value_or(0);
  return std::min(free, left_of_groups(tree).value_or(free));
}

std::optional<double> triad_past_caches(Clock& clock, uint64_t array_bytes) {
  const std::vector<unsigned> cpus = allowed_cpus();
  const uint64_t bytes = array_bytes / kPage * kPage;
  const LargePages room(3 * bytes);
  if (cpus.empty() || bytes == 0 || !room.is_allocated()) return std::nullopt;
  const Arrays arrays{room.as<double>(), room.as<double>(bytes), room.as<double>(2 * bytes)};
  constexpr int kPasses = 5;
  const auto seconds = time_streams({clock, arrays, bytes / sizeof(double), kPasses}, cpus);
  return kStreamArrays[kTriadPast] * static_cast<double>(bytes) / seconds[kTriadPast];
}

void check_memory_stream(const CheckContext& context) {
  const std::vector<unsigned> cpus = allowed_cpus();
  constexpr uint64_t kCacheTimes = 4;  // STREAM's rule
  uint64_t bytes = std::max<uint64_t>(kCacheTimes * last_cache(context.tree), 64 * kMiB);
  bytes = bytes / kPage * kPage;
  Finding finding{.name = "memory.stream"};
  if (cpus.empty() || 3 * bytes > free_memory(context.tree) * 9 / 10) {
    finding.found =
        fmt::format("three arrays of {} do not fit into free memory", format_size(bytes));
    finding.hint = "Run it on an idle node.";
    return context.report(std::move(finding));
  }
  const LargePages room(3 * bytes);
  if (!room.is_allocated()) {
    finding.found = fmt::format("no memory for three arrays of {}", format_size(bytes));
    return context.report(std::move(finding));
  }
  const Arrays arrays{room.as<double>(), room.as<double>(bytes), room.as<double>(2 * bytes)};
  const int passes = context.level == RunLevel::quick ? 5 : 10;
  const StreamRun all{context.clock, arrays, bytes / sizeof(double), passes};
  const auto seconds = time_streams(all, cpus);
  for (size_t which = 0; which < kStreams; which++) {
    report_stream(context, kStreamNames[which], which, bytes, seconds[which], cpus.size());
  }
  // Tests each NUMA node with local memory: pages are placed at first touch.
  const auto nodes = nodes_of(context.tree, cpus);
  for (const auto& [node, own] : nodes) {
    if (nodes.size() < 2) break;
    const LargePages near(3 * bytes);
    if (!near.is_allocated()) break;
    const Arrays there{near.as<double>(), near.as<double>(bytes), near.as<double>(2 * bytes)};
    const auto took = time_streams({context.clock, there, bytes / sizeof(double), passes}, own);
    report_stream(context, fmt::format("triad on {}", node), kTriad, bytes, took[kTriad],
                  own.size());
  }
}

void check_memory_pattern(const CheckContext& context) {
  const std::vector<unsigned> cpus = allowed_cpus();
  go_first(context.tree.disk());
  const uint64_t bytes = pattern_bytes(context.level, free_memory(context.tree));
  Finding finding{.name = "memory.pattern"};
  const LargePages room(std::max<uint64_t>(bytes, kPage));
  if (cpus.empty() || bytes == 0 || !room.is_allocated()) {
    finding.found = "no free memory to test";
    return context.report(std::move(finding));
  }
  PatternTest test{
      .words = room.as<uint64_t>(), .seed = context.rng.next(), .fault = context.fault};
  const int64_t end_ns = context.clock.steady_ns() + load_ns(context.level);
  const size_t count = bytes / sizeof(uint64_t);
  const size_t part = count / cpus.size() & ~size_t{7};
  on_each(cpus, [&](size_t index) {
    const size_t first = index * part;
    const size_t last = index + 1 == cpus.size() ? count : first + part;
    do {
      for (const NamedPattern& pattern : kPatterns) test.run(pattern, first, last);
    } while (context.level == RunLevel::burn_in && context.clock.steady_ns() < end_ns);
  });
  finding.value = static_cast<double>(test.wrong_words);
  finding.expected = "every bit as it was written";
  finding.source =
      fmt::format("{} patterns and their inverses, seed {}", kPatterns.size(), test.seed);
  if (test.wrong.empty()) {
    finding.verdict = Verdict::pass;
    finding.found = fmt::format("{} of free memory, no wrong word", format_size(bytes));
    return context.report(std::move(finding));
  }
  const Wrong& first = test.wrong.front();
  finding.verdict = Verdict::fail;
  finding.found = fmt::format(
      "{} wrong words in {}, first at {:#x}: {:016x} where {:016x} was written ({})",
      test.wrong_words, format_size(bytes), first.at, first.got, first.expected, first.pattern);
  finding.hint =
      "Find the DIMM with memory.edac and replace it. Do not trust results of this node.";
  context.report(std::move(finding));
}

}  // namespace ff::validate
