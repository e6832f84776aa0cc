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
  command.option("--deadline", duration(options.deadline_ns), "For each operation");
  command
      .option("--simd", choice(options.simd, {"avx512", "avx2", "sse2"}),
              "Instructions for sums (without it: the best this CPU has)")
      .env("FF_SIMD");
  command
      .flag("--pin", options.pin,
            "Where there are several NUMA nodes, threads of ranks are dealt out to them")
      .env("FF_PIN");
}

void declare_allreduce(Command& command) {
  command.about(
      "Sums arrays of many processes so that each of them gets the sum, as data-parallel training "
      "does with gradients (HFReduce of the Fire-Flyer paper), and relatives of that: reduce, "
      "broadcast, all-gather, reduce-scatter. In host memory: no GPU and no MPI is needed.");
  declare_allreduce_bench(command.sub("bench", "Measure and check, with the table of nccl-tests"));
  declare_allreduce_run(command.sub("run", "Reduce files of several ranks into one"));
}

}  // namespace ff::cmd
