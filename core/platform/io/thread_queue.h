// An IoQueue (contract in disk.h) on a thread pool, for kernels and containers without io_uring.
#pragma once

#include <memory>

#include "platform/io/disk.h"

namespace ff::io {

// Uses only the operations of File. Threads are started on demand.
std::unique_ptr<IoQueue> make_thread_queue(QueueOptions options);

// The queue of SystemDisk and BeneathDisk: on io_uring if this process can use it, else on threads.
std::unique_ptr<IoQueue> make_system_queue(QueueOptions options);

}  // namespace ff::io
