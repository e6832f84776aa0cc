// Descriptors that may block for any time (pipes, terminals, standard input) from tasks: a thread
// of its own does each call, in memory of its own, so that a task that is cancelled leaves nothing
// of its own behind. One call at a time.
#pragma once

#include <string>

#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"

namespace ff::io {

// So many bytes; fewer: that was the end.
Task<Result<std::string>> read_pipe(Loop& loop, int fd, size_t size);
// All of it. EPIPE: nobody reads any more.
Task<Result<void>> write_pipe(Loop& loop, int fd, std::string bytes);

}  // namespace ff::io
