// An IoQueue (contract in disk.h) on io_uring. Operations collect in the submission ring and are
// submitted together: by run() or poll(), or on a loop in small batches and at the end of each
// turn. One system call per operation would halve the throughput of small reads.
#pragma once

#include <memory>

#include "platform/io/disk.h"

namespace ff::io {

// Null if this process cannot use io_uring (not built in, Linux older than 5.6, forbidden by
// seccomp or sysctl, out of locked memory or descriptors) or the loop cannot watch descriptors: use
// make_thread_queue() then. The queue accepts only files of a SystemDisk.
std::unique_ptr<IoQueue> make_uring_queue(QueueOptions options);

}  // namespace ff::io
