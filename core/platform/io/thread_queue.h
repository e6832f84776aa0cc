// IoQueue on a few threads (disk.h has the contract), for kernels and containers without io_uring.
#pragma once

#include <memory>

#include "platform/io/disk.h"

namespace ff::io {

// Uses only File's own operations. Threads start with the first operations that need them.
std::unique_ptr<IoQueue> make_thread_queue(QueueOptions options);

}  // namespace ff::io
