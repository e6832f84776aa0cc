// `ff allreduce --hosts`: starts the same command on each host with ssh.
#pragma once

#include "cmd/allreduce/allreduce.h"

namespace ff::cmd {

// Each host gets the arguments of this command without --hosts, its position in the job as
// environment variables (collective/environment.h), and the key of the job on standard input, which
// stays open as long as this process lives. Prints the output of the first host. If a host fails,
// ends the others; the error names that host.
Result<void> run_on_hosts(Session& session, const JobOptions& job);

}  // namespace ff::cmd
