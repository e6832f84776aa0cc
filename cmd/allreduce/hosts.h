// `ff allreduce --hosts`: the same command on each host, started over ssh.
#pragma once

#include "cmd/allreduce/allreduce.h"

namespace ff::cmd {

// Each host gets the words of this command without --hosts, its place in the job as environment
// variables (collective/environment.h), and the job's key on standard input, which stays open as
// long as this process lives. What the first host prints is what this prints. The error is that of
// the first host that ends with one, which is named; the others are ended.
Result<void> run_on_hosts(Session& session, const JobOptions& job);

}  // namespace ff::cmd
