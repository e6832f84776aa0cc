// `ff allreduce`: collective operations between processes, in host memory.
#include "cmd/allreduce.h"

namespace ff::cmd {

void declare_allreduce(Command& command) {
  command.about(
      "Sums arrays of many processes so that each of them gets the sum, as data-parallel training "
      "does with gradients (HFReduce of the Fire-Flyer paper), and relatives of that: reduce, "
      "broadcast, all-gather, reduce-scatter. In host memory: no GPU and no MPI is needed.");
  declare_allreduce_bench(command.sub("bench", "Measure and check, with the table of nccl-tests"));
}

}  // namespace ff::cmd
