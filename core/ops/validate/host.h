// Checks of the host itself: processors and throttling, memory modules, clock, kernel warnings,
// free space, and leftover processes.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ops/validate/check.h"

namespace ff::validate {

constexpr const char* kNumaNodes = "/sys/devices/system/node";

struct CpuFacts {
  std::set<std::string> models = {};  // one, on a sound machine
  std::set<std::string> microcode = {};
  std::vector<unsigned> present = {}, online = {};
  size_t sockets = 0;
  bool counts_throttling = false;  // only Intel, not in a virtual machine
  bool has_cpufreq = false;        // the kernel controls the frequency
};
CpuFacts cpu_facts(const SystemTree& tree);

// A memory slot of SMBIOS (type 17, DMTF DSP0134).
struct Dimm {
  bool is_present = false;  // false: an empty slot
  std::string slot = {};    // "DIMM_A1"
  std::string bank = {};    // "P0_Node0_Channel0": distinguishes slots of the same name
  uint64_t bytes = 0;
  uint32_t rated_mts = 0;       // MT/s, maximum
  uint32_t configured_mts = 0;  // MT/s, current
};
// Empty if the firmware has no such table (a virtual machine). Errors: refused (needs root), failed
// (malformed).
Result<std::vector<Dimm>> dimms(const SystemTree& tree);
// Parses the raw bytes of one structure; nothing: not of type 17.
std::optional<Dimm> parse_dimm(std::string_view raw);

// A row of /proc/meminfo in bytes (HugePages rows: a count); nothing: no such row.
std::optional<uint64_t> meminfo(const SystemTree& tree, std::string_view key);
size_t numa_nodes(const SystemTree& tree);  // 0: unknown
// EDAC memory controllers: "mc0".
std::vector<std::string> memory_controllers(const SystemTree& tree);

// The state of the kernel clock (adjtimex(2)): whether it is synchronized, and its last offset.
struct ClockFacts {
  bool synchronized = false;
  double offset_seconds = 0;
};
ClockFacts clock_facts();
// An unsynchronised clock is degraded on every node: also on an adopted one.
Finding clock_finding(const ClockFacts& facts);

// A process, of proc(5).
struct ProcessFacts {
  uint64_t pid = 0;
  char state = 0;  // 'R', 'S', 'D', 'Z'
  uint64_t parent = 0;
  uint64_t ticks = 0;  // CPU time of all threads
  uint64_t resident_pages = 0;
  std::string name = {};
};
// Nothing: the process has exited.
std::optional<ProcessFacts> process_of(const SystemTree& tree, uint64_t pid);
// All processes; one that exits meanwhile is left out.
std::vector<ProcessFacts> processes(const SystemTree& tree);
bool holds_gpu(const SystemTree& tree, uint64_t pid);

void check_host_cpu(const CheckContext& context);
void check_host_throttle(const CheckContext& context);
void check_host_frequency(const CheckContext& context);
void check_host_memory(const CheckContext& context);
void check_host_dimms(const CheckContext& context);
void check_host_clock(const CheckContext& context);
void check_host_kernel(const CheckContext& context);
void check_host_space(const CheckContext& context);
void check_host_processes(const CheckContext& context);
void check_memory_edac(const CheckContext& context);

}  // namespace ff::validate
