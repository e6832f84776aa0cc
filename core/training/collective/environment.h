// A rank's place in its job, as torchrun's environment has it: RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT; and what is ff's own:
//
//   FF_PORT          where rank 0's host listens; without it MASTER_PORT + 5, since PyTorch's own
//                    store is at MASTER_PORT
//   FF_KEY_FILE      the job's key, 64 hex digits in a file that others cannot read; "-": standard
//                    input. Without one all hosts must be this one
//   FF_ZONE          a number for the part of the network that this host is in
//   FF_PIN           0: threads run on any CPU, whatever NUMA nodes there are
//   FF_ALGO, FF_WIRE, FF_DETERMINISTIC, FF_NET: as the options of `ff allreduce`
#pragma once

#include <functional>
#include <optional>

#include "platform/base/result.h"
#include "platform/io/disk.h"
#include "training/collective/communicator.h"

namespace ff::collective {

struct JobPart {
  HostRank self = {};
  Network network = {};
};

using Variables = std::function<const char*(const char* name)>;  // null: it is not set

// Whether there is such a job at all.
bool names_job(const Variables& get);
// `here`: RANK is the first of so many ranks of this host, which the caller makes; else LOCAL_RANK
// and LOCAL_WORLD_SIZE tell, and without these all ranks are on this host. Errc::usage names what
// is missing or wrong; Errc::refused and others of auth::read_key_file().
Result<JobPart> job_of(const Variables& get, std::optional<uint32_t> here, io::Disk& disk);

// What FF_PIN says, of a job on one host as well. Errc::usage: neither 0 nor 1.
Result<bool> pins(const Variables& get);

// "-": standard input.
Result<auth::Key> read_job_key(io::Disk& disk, const std::string& path);

}  // namespace ff::collective
