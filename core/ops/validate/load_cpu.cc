// load_cpu.cc: runs kernels on every core at once. The speed is computed from the CPU time of each
// thread, so that other programs do not make a core look slow.
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "ops/validate/compute_kernels.h"
#include "ops/validate/load.h"
#include "platform/base/clock.h"
#include "platform/base/text.h"

namespace ff::validate {

namespace {

// The result of one kernel on one core.
struct Ran {
  uint64_t runs = 0;
  double fastest = 0;  // seconds of CPU time
  // The first wrong result.
  std::optional<uint64_t> wrong_run = {};
  uint32_t wrong = 0;
  uint64_t wrong_runs = 0;
};

double processor_seconds() { return to_seconds(thread_cpu_ns()); }

// Runs one kernel after the other until the time has passed.
std::vector<Ran> work(Clock& clock, int64_t end_ns, InjectedFault fault) {
  KernelMemory memory;
  std::vector<Ran> ran(compute_kernels().size());
  do {
    for (size_t i = 0; i < ran.size(); i++) {
      const ComputeKernel& kernel = compute_kernels()[i];
      const double began = processor_seconds();
      uint32_t got = kernel.run(memory);
      // Far slower than the shares of other virtual machines make a core look.
      for (int more = 1; i == 0 && fault == InjectedFault::core_slow && more < 8; more++) {
        (void)kernel.run(memory);
      }
      if (i == 0 && fault == InjectedFault::core_bit && ran[i].runs == 1) got ^= 1u << 7;
      const double took = processor_seconds() - began;
      Ran& mine = ran[i];
      mine.runs++;
      if (mine.fastest == 0 || took < mine.fastest) mine.fastest = took;
      if (got == kernel.golden) continue;
      mine.wrong_runs++;
      if (!mine.wrong_run) mine.wrong = got;
      if (!mine.wrong_run) mine.wrong_run = mine.runs;
    }
  } while (clock.steady_ns() < end_ns);
  return ran;
}

Finding of_wrong(const ComputeKernel& kernel, unsigned cpu, const Ran& ran) {
  Finding finding{.name = "cpu.kernels", .part = fmt::format("{} on core {}", kernel.name, cpu)};
  finding.verdict = Verdict::fail;
  finding.value = static_cast<double>(ran.wrong_runs);
  finding.found = fmt::format("{} of {} results wrong, first in run {}: {:08x}", ran.wrong_runs,
                              ran.runs, *ran.wrong_run, ran.wrong);
  finding.expected = fmt::format("{:08x}", kernel.golden);
  finding.source = "the kernel's known result";
  finding.hint =
      fmt::format("Core {} computes wrong results ({}): drain the node, replace the processor.",
                  cpu, kernel.what);
  return finding;
}

// A core that is much slower than the others, by its own CPU time.
constexpr double kSlowCore = 0.8;

Finding of_speed(const ComputeKernel& kernel, size_t index, const std::vector<unsigned>& cpus,
                 const std::vector<std::vector<Ran>>& all) {
  std::vector<std::pair<double, unsigned>> speeds;
  uint64_t runs = 0;
  for (size_t i = 0; i < cpus.size(); i++) {
    runs += all[i][index].runs;
    speeds.emplace_back(kernel.work / std::max(all[i][index].fastest, 1e-9), cpus[i]);
  }
  std::ranges::sort(speeds);
  const double median = speeds[speeds.size() / 2].first;
  Finding finding{.name = "cpu.kernels", .part = kernel.name};
  finding.verdict = Verdict::pass;
  finding.value = median;
  finding.unit = fmt::format("{}/s", kernel.unit);
  finding.better = Better::higher;
  finding.found = fmt::format("{} right results on {} cores, {} a core", runs, cpus.size(),
                              value_text(median, finding.unit));
  finding.expected = "the known result on every core";
  std::vector<std::string> slow;
  for (const auto& [speed, cpu] : speeds) {
    if (speed < kSlowCore * median) slow.push_back(fmt::format("{}", cpu));
  }
  if (!slow.empty()) {
    finding.verdict = Verdict::degraded;
    finding.found += fmt::format(", slow: core {}", fmt::join(slow, ", "));
    finding.source = "the other cores";
    finding.hint = "See host.throttle, and check which other programs run on that core.";
  }
  return finding;
}

}  // namespace

int64_t load_ns(RunLevel level) {
  switch (level) {
    case RunLevel::quick: return 1500 * kMillisecond;
    case RunLevel::weekly: return 20 * kSecond;
    case RunLevel::burn_in: return 600 * kSecond;
  }
  return 0;
}

std::vector<unsigned> allowed_cpus() {
  std::vector<unsigned> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

bool pin_to(unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

void on_each(const std::vector<unsigned>& cpus, const std::function<void(size_t index)>& work) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < cpus.size(); i++) {
    threads.emplace_back([&, i] {
      (void)pin_to(cpus[i]);
      work(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

LargePages::LargePages(uint64_t bytes) : bytes_(bytes) {
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return;
  at_ = at;
  ::madvise(at_, bytes, MADV_HUGEPAGE);
}

LargePages::~LargePages() {
  if (at_ != nullptr) ::munmap(at_, bytes_);
}

void TurnTimes::add(int turn, int64_t began_ns, int64_t ended_ns) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_first] = turns_.try_emplace(turn, Span{began_ns, ended_ns});
  if (is_first) return;
  at->second.began_ns = std::min(at->second.began_ns, began_ns);
  at->second.ended_ns = std::max(at->second.ended_ns, ended_ns);
}

double TurnTimes::shortest_seconds() const {
  int64_t shortest_ns = INT64_MAX;
  for (const auto& [turn, span] : turns_) {
    shortest_ns = std::min(shortest_ns, span.ended_ns - span.began_ns);
  }
  return to_seconds(std::max<int64_t>(shortest_ns, 1));
}

void check_cpu_kernels(const CheckContext& context) {
  const std::vector<unsigned> cpus = allowed_cpus();
  if (cpus.empty()) {
    return context.report({.name = "cpu.kernels", .found = "no processor that may be used"});
  }
  std::vector<std::vector<Ran>> all(cpus.size());
  const int64_t end_ns = context.clock.steady_ns() + load_ns(context.level);
  on_each(cpus, [&](size_t index) {
    const bool last = index + 1 == cpus.size();
    all[index] = work(context.clock, end_ns, last ? context.fault : InjectedFault::none);
  });
  for (size_t i = 0; i < compute_kernels().size(); i++) {
    const ComputeKernel& kernel = compute_kernels()[i];
    bool wrong = false;
    for (size_t core = 0; core < cpus.size(); core++) {
      if (all[core][i].wrong_runs == 0) continue;
      wrong = true;
      context.report(of_wrong(kernel, cpus[core], all[core][i]));
    }
    if (!wrong) context.report(of_speed(kernel, i, cpus, all));
  }
}

}  // namespace ff::validate
