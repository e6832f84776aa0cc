// IoQueue on io_uring (disk.h has the contract). Operations gather in the submission ring and go to
// the kernel together: from run() or poll(), or on a loop in small batches and at the end of each
// turn. A call for each costs half the throughput of small reads.
#pragma once

#include <memory>

#include "platform/io/disk.h"

namespace ff::io {

// Null where the kernel does not offer io_uring to this process (not built in, older than 5.6,
// forbidden by seccomp or sysctl, out of locked memory or descriptors) or the loop watches no
// descriptors: use make_thread_queue. The files given to the queue must be a SystemDisk's.
std::unique_ptr<IoQueue> make_uring_queue(QueueOptions options);

}  // namespace ff::io
