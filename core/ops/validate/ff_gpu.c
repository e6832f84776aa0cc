// Prints what the NVIDIA management library (NVML) reports about the GPUs of this machine, as lines
// of JSON on standard output; with arguments, what a load on one of them has found (ff_gpu_load.c).
// It is a separate program since a static program cannot load the driver library, and since that
// library may hang or crash: each line is flushed before the next call, so the last line shows
// where it stopped. `ff` embeds this program and runs it (gpu.cc, gpu_load.cc).
// Plain C with its own prototypes, by the names of NVIDIA; it needs glibc 2.34 or later.
//
//   {"event":"begin"}                          before the first call
//   {"event":"driver","driver":…,"nvml":…,"count":8}
//   {"event":"begin","gpu":0}                  before the first call about a GPU
//   {"event":"at","gpu":0,"pci":…,"name":…}    the GPU is identified
//   {"event":"gpu","gpu":0,"celsius":35,…}     values; unavailable ones are absent
//   {"event":"error","gpu":0,"call":…,"code":15,"text":…}   without "gpu": of the library itself
//   {"event":"end"}                            before the last call
#include <signal.h>
#include <sys/prctl.h>

#include "ops/validate/ff_gpu.h"

int main(int count, char** words) {
  prctl(PR_SET_NAME, "ff-gpu");      // else it has a number as its name when run from memory
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no use without its parent
  return count > 1 ? run_load(count, words) : query_nvml();
}
