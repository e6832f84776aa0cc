// Reads and writes descriptors that may block for any time (pipes, terminals, standard input) from
// tasks. Each call runs on a new thread with its own memory, so that cancelling the task is safe.
// One call at a time per descriptor.
#pragma once

#include <string>

#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"

namespace ff::io {

// Reads `size` bytes; fewer only at the end of the stream.
Task<Result<std::string>> read_pipe(Loop& loop, int fd, size_t size);
// Writes all bytes. The error has errno EPIPE when the reader has closed the pipe.
Task<Result<void>> write_pipe(Loop& loop, int fd, std::string bytes);

}  // namespace ff::io
