// Who runs the program, as a cluster's file system asks: `ff fs`, `ff checkpoint --store ff://…`
// and benchmarks act with that user's rights.
#pragma once

#include <cstdint>

#include "storage/meta/access.h"

namespace ff::cmd {

// Effective user and group, and the first of its groups: no more than a call may name.
meta::Caller process_caller();
// Before there are other threads: it cannot be read without being set.
uint32_t process_umask();

}  // namespace ff::cmd
