// Common parts of saves and loads in libff.so: process check, store path, number of workers.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "platform/base/result.h"

namespace ff::bindings {

// Errc::usage: this process is a forked child of the one that made the `what`.
Result<void> check_process(std::string_view what, pid_t maker);

// A directory. Errc::usage: a store in a cluster. Its client needs protobuf, and Debian's static
// protobuf cannot be part of a shared library (it has thread-local data of the program).
Result<std::string> store_path(const char* given);

// `wanted`, or for 0 the default of `ff checkpoint`.
unsigned worker_count(unsigned wanted);

}  // namespace ff::bindings
