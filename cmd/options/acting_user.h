// Credentials of the process for the metadata service: `ff fs`, `ff checkpoint --store ff://…` and
// benchmarks act with the permissions of the user who runs them.
#pragma once

#include <cstdint>

#include "storage/meta/access.h"

namespace ff::cmd {

// Effective user and group, and as many supplementary groups as an RPC may carry.
meta::Caller process_caller();
// umask(2) of the process; 022 where /proc does not tell it.
uint32_t process_umask();

}  // namespace ff::cmd
