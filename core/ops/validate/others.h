// Who else works the machine while a load is measured: without that, a neighbour passes for slow
// hardware.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "ops/validate/tree.h"
#include "platform/base/clock.h"

namespace ff::validate {

// What has been used of the machine up to a moment.
struct Usage {
  struct Process {
    std::string name;
    double seconds = 0;  // of processors
    uint64_t moved = 0;  // bytes, to and from disks; 0 where only root may know
  };
  std::map<uint64_t, Process> processes = {};  // by PID
  double busy = 0;                             // seconds of processors, of everybody
  double stolen = 0;                           // that a hypervisor gave to other guests
  int64_t at_ns = 0;
};
Usage usage_of(const Tree& tree, Clock& clock);

// What others did between two moments, in words: "stress-ng (1234) used 1.9 cores"; empty: nothing
// to speak of, or too short a time to tell. `measured`: a process and its processor time;
// `watcher`: the one that looks, whose I/O holds that of its children.
struct Measured {
  pid_t pid = 0;
  double seconds = 0;
};
std::string load_of_others(const Usage& before, const Usage& after, const Measured& measured,
                           pid_t watcher);

// Whether this machine is a guest: what its neighbours on the host do is not seen here.
bool is_guest(const Tree& tree);

// A job that runs here, by its process: a step of Slurm, a rank of 'ff schedule', or somebody who
// has a GPU open. Empty: none.
std::string running_job(const Tree& tree);

}  // namespace ff::validate
