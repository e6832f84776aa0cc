// CPU time that the whole machine has used, from /proc/stat (proc(5)): what an operation costs on
// all of its processors, whichever process, daemon or kernel thread works for it.
#pragma once

#include <optional>
#include <string_view>

namespace ff::io {

// Seconds since the machine started, summed over all processors.
struct CpuUse {
  double programs = 0;    // user, nice and system
  double interrupts = 0;  // hardware and software interrupts
  double stolen = 0;      // a hypervisor gave the processor to other guests
  double busy() const { return programs + interrupts; }
};
// Reads the text of /proc/stat; nothing if its first line is not that of Linux.
std::optional<CpuUse> parse_cpu_use(std::string_view text);

// Measures the CPU time of the machine since it was made.
class CpuMeter {
 public:
  CpuMeter();
  // Seconds; 0 if /proc/stat cannot be read. The kernel counts in hundredths of a second.
  double seconds() const;

 private:
  double began_;
};

}  // namespace ff::io
