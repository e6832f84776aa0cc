// Detects other load on the machine during a measurement: otherwise a busy neighbour looks like
// slow hardware.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "ops/validate/system_tree.h"
#include "platform/base/clock.h"

namespace ff::validate {

// Resource use of the machine up to a point in time.
struct MachineUsage {
  struct Process {
    std::string name;
    double seconds = 0;  // CPU time
    uint64_t moved = 0;  // bytes of disk I/O; 0 where only root may read them
  };
  std::map<uint64_t, Process> processes = {};  // by PID
  double busy = 0;                             // CPU seconds of all processes
  double stolen = 0;  // CPU seconds that the hypervisor gave to other guests
  int64_t at_ns = 0;
};
MachineUsage usage_of(const SystemTree& tree, Clock& clock);

// Other load between two points in time: "stress-ng (1234) used 1.9 cores"; empty: none to speak
// of, or the time is too short. `measured`: the measured process and its CPU time; `watcher`: the
// process that measures, whose I/O includes that of its children.
struct MeasuredProcess {
  pid_t pid = 0;
  double seconds = 0;
};
std::string other_load(const MachineUsage& before, const MachineUsage& after,
                       const MeasuredProcess& measured, pid_t watcher);

// Whether this machine is a virtual machine: load of its neighbours on the host is invisible.
bool is_guest(const SystemTree& tree);

// A job on this node, found by its process: a Slurm step, a rank of `ff schedule`, or a process
// with an open GPU. Empty: none.
std::string running_job(const SystemTree& tree);

}  // namespace ff::validate
