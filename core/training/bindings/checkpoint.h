// What saves and loads of libff.so have in common: whose they are, which store, how many workers.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "platform/base/result.h"

namespace ff::bindings {

// Errc::usage when this is not the process that made the `what`, but a child of it.
Result<void> check_process(std::string_view what, pid_t maker);

// A directory. Errc::usage for a store in a cluster, which takes a client that is not linked here.
Result<std::string> store_path(const char* given);

// As many as the caller wants; 0: as `ff checkpoint` has.
unsigned worker_count(unsigned wanted);

}  // namespace ff::bindings
