// The rank's job from environment variables: those that torchrun sets (RANK, WORLD_SIZE,
// LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and those of ff:
//
//   FF_PORT          port of rank 0's host; default: MASTER_PORT + 5, since PyTorch's store uses
//                    MASTER_PORT
//   FF_KEY_FILE      the job's key: 64 hex digits in a file that other users cannot read; "-":
//                    standard input. Without it all hosts must be this machine
//   FF_ZONE          name of the network zone of this host, default "0"; the scheduler sets it for
//                    its tasks
//   FF_PIN           0: do not pin threads to NUMA nodes
//   FF_NET_SECURITY  trusted-network: TCP connections are encrypted only until both hosts have
//                    proven the job's key; default "tls"
//   FF_ALGO, FF_WIRE, FF_DETERMINISTIC, FF_NET: as the options of `ff allreduce`
#pragma once

#include <functional>
#include <optional>

#include "platform/base/result.h"
#include "platform/io/disk.h"
#include "training/collective/communicator.h"

namespace ff::collective {

struct JobConfig {
  HostRank self = {};
  Network network = {};
};

using GetVariable = std::function<const char*(const char* name)>;  // null: not set

// Whether the environment describes a job (WORLD_SIZE is set).
bool has_job(const GetVariable& get);
// `local_ranks`: RANK is the first of so many ranks of this host, which the caller starts. Without
// it LOCAL_RANK and LOCAL_WORLD_SIZE count; if they are not set, all ranks are on this host.
// Errc::usage names the missing or wrong variable; Errc::refused and others of
// auth::read_key_file().
Result<JobConfig> read_job_config(const GetVariable& get, std::optional<uint32_t> local_ranks,
                                  io::Disk& disk);

// The value of FF_PIN, default true; of a job on one host as well. Errc::usage: neither 0 nor 1.
Result<bool> read_pin_threads(const GetVariable& get);

// `path` "-": standard input.
Result<auth::Key> read_job_key(io::Disk& disk, const std::string& path);

}  // namespace ff::collective
