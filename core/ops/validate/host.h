// The machine apart from its devices: processors and what slows them down, memory and its modules,
// the clock, the kernel's own troubles, room on file systems, processes that were left behind.
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
  bool counts_throttling = false;  // Intel's, on hardware
  bool has_cpufreq = false;        // the kernel drives their frequency
};
CpuFacts cpu_facts(const Tree& tree);

// A memory module that is there, of SMBIOS (type 17, DMTF DSP0134).
struct Dimm {
  bool is_there = false;  // false: an empty slot
  std::string slot = {};  // "DIMM_A1"
  std::string bank = {};  // "P0_Node0_Channel0": tells slots of one name apart
  uint64_t bytes = 0;
  uint32_t rated_mts = 0;       // MT/s that it can do
  uint32_t configured_mts = 0;  // at which it runs
};
// None where the firmware has no such table (a guest). Errors: refused where only root may read it,
// failed where it says something else.
Result<std::vector<Dimm>> dimms(const Tree& tree);
// The raw bytes of one structure; nothing: it is none of type 17.
std::optional<Dimm> parse_dimm(std::string_view raw);

// A row of /proc/meminfo in bytes, huge pages of some sizes in pieces; nothing: it is not there.
std::optional<uint64_t> meminfo(const Tree& tree, std::string_view key);
size_t numa_nodes(const Tree& tree);  // 0: the kernel knows of none
// Those that count errors: "mc0".
std::vector<std::string> memory_controllers(const Tree& tree);

// The kernel's clock (adjtimex(2)): whether something keeps it, and how far off it was last.
struct ClockFacts {
  bool kept = false;
  double offset_seconds = 0;
};
ClockFacts clock_facts();

// A process, of proc(5).
struct ProcessFacts {
  uint64_t pid = 0;
  char state = 0;  // 'R', 'S', 'D', 'Z'
  uint64_t parent = 0;
  uint64_t ticks = 0;  // of processors, of all its threads
  uint64_t resident_pages = 0;
  std::string name = {};
};
// Nothing: it has ended.
std::optional<ProcessFacts> process_of(const Tree& tree, uint64_t pid);
// Those that run; one that ends meanwhile is left out.
std::vector<ProcessFacts> processes(const Tree& tree);
bool holds_gpu(const Tree& tree, uint64_t pid);

void check_host_cpu(const Context& context);
void check_host_throttle(const Context& context);
void check_host_frequency(const Context& context);
void check_host_memory(const Context& context);
void check_host_dimms(const Context& context);
void check_host_clock(const Context& context);
void check_host_kernel(const Context& context);
void check_host_space(const Context& context);
void check_host_processes(const Context& context);
void check_memory_edac(const Context& context);

}  // namespace ff::validate
