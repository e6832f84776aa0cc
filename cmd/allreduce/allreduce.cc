// `ff allreduce`: collective operations between processes, in host memory.
#include "cmd/allreduce/allreduce.h"

namespace ff::cmd {

std::vector<std::string> data_type_names() {
  std::vector<std::string> names;
  for (size_t i = 0; i < simd::kDataTypes; i++) {
    names.emplace_back(simd::data_type_name(static_cast<simd::DataType>(i)));
  }
  return names;
}

std::vector<std::string> reduce_op_names() {
  std::vector<std::string> names;
  for (size_t i = 0; i < simd::kReduceOps; i++) {
    names.emplace_back(simd::reduce_op_name(static_cast<simd::ReduceOp>(i)));
  }
  return names;
}

void declare_rank_options(Command& command, RankOptions& options) {
  command.option("--deadline", duration(options.deadline_ns), "Time limit of each operation")
      .section(kCommonOptions);
  command
      .option("--simd", choice(options.simd, {"avx512", "avx2", "sse2"}),
              "Instruction set for sums; without it the best that this CPU supports")
      .env("FF_SIMD")
      .section(kCommonOptions);
  command.flag("--pin", options.pin, "Distribute the threads of ranks over the NUMA nodes")
      .env("FF_PIN")
      .section(kCommonOptions);
}

void declare_allreduce(Command& command) {
  command.about(
      "Collective operations between processes, in host memory: allreduce, reduce, broadcast, "
      "allgather and reduce-scatter (HFReduce of the Fire-Flyer paper). Data-parallel training "
      "uses "
      "allreduce for gradients: every rank gets the sum of the arrays of all ranks. It needs no "
      "GPU "
      "and no MPI.\n\nBetween hosts, ff uses RDMA, or TCP connections that are encrypted; with "
      "net.security = \"trusted-network\" (FF_NET_SECURITY) only until both ends have proven the "
      "job's key, which makes them faster where nobody can read or change what the network "
      "carries. A CRC32C protects all data in both cases.");
  declare_allreduce_bench(command.sub("bench", "Measure and check, with the table of nccl-tests"));
  declare_allreduce_run(command.sub("run", "Reduce the files of several ranks"));
}

}  // namespace ff::cmd
