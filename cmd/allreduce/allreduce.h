// Common part of `ff allreduce`: its subcommands, options, and the start of ranks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "training/collective/communicator.h"

namespace ff::cmd {

void declare_allreduce_bench(Command& bench);
void declare_allreduce_run(Command& run);

// The values of --datatype and --op.
std::vector<std::string> data_type_names();
std::vector<std::string> reduce_op_names();

// Options for the work of each rank.
struct RankOptions {
  int64_t deadline_ns = 60 * kSecond;  // for each operation
  std::optional<std::string> simd;
  bool pin = true;  // threads to NUMA nodes
};
void declare_rank_options(Command& command, RankOptions& options);

// Options for the placement of ranks and their network.
struct JobOptions {
  std::optional<uint32_t> nproc;  // ranks on each host
  std::optional<std::string> hosts;
  std::string ssh = "ssh";
  std::optional<uint16_t> port;
  std::optional<std::string> key_file;
  std::string net = "auto";
  std::string security = "tls";
  std::string algorithm = "auto";
  std::string wire = "none";
  bool deterministic = false;
  std::optional<std::string> zone;
  std::string on_failure = "stop";  // or "shrink", for commands that can

  bool shrinks() const { return on_failure == "shrink"; }
  collective::PipelineOptions pipeline() const;
};
void declare_job_options(Command& command, JobOptions& options);

// Whether neither --hosts nor the environment names other hosts.
bool is_single_host(const JobOptions& job);

// Runs `body` in each rank of a job: on the hosts of --hosts, where ssh starts the same command; or
// as the part of a job that the environment describes; or on this host only, with --nproc ranks
// (default: `default_ranks`). Each rank is a process; the command prints the output of rank 0. The
// error is that of the first failed rank; it names a rank that was killed.
Result<void> run_ranks(Session& session, const JobOptions& job, const RankOptions& options,
                       uint32_t default_ranks,
                       const std::function<Result<void>(collective::Communicator&)>& body);

}  // namespace ff::cmd
