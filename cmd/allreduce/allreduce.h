// The parts of `ff allreduce`, one file each, and its ranks.
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

// The words of --datatype and --op.
std::vector<std::string> data_type_names();
std::vector<std::string> reduce_op_names();

// What all of them can be told of how ranks work.
struct RankOptions {
  int64_t deadline_ns = 60 * kSecond;  // for each operation
  std::optional<std::string> simd;
  bool pin = true;  // threads to NUMA nodes
};
void declare_rank_options(Command& command, RankOptions& options);

// And of where they are.
struct JobOptions {
  std::optional<uint32_t> nproc;  // ranks on each host
  std::optional<std::string> hosts;
  std::string ssh = "ssh";
  std::optional<uint16_t> port;
  std::optional<std::string> key_file;
  std::string net = "auto";
  std::string algorithm = "auto";
  std::string wire = "none";
  bool deterministic = false;
  std::optional<uint32_t> zone;

  collective::PipelineOptions pipeline() const;
};
void declare_job_options(Command& command, JobOptions& options);

// Whether neither --hosts nor the environment names others.
bool is_of_this_host(const JobOptions& job);

// Runs `body` as the ranks of a job: on the hosts of --hosts, each started over ssh with the words
// of this command; or as the part of a job that the environment names; or on this host alone, with
// `otherwise` ranks unless --nproc says how many. Ranks of a host are processes; what rank 0 prints
// is what the command prints. The error is the first rank's that has one; a rank that is killed is
// named.
Result<void> with_ranks(Session& session, const JobOptions& job, const RankOptions& options,
                        uint32_t otherwise,
                        const std::function<Result<void>(collective::Communicator&)>& body);

}  // namespace ff::cmd
