// The CPUs of this process, and threads that stay on one of them.
#pragma once

#include <cstddef>
#include <vector>

namespace ff {

// The CPUs that this process may use, as the first call found them: before any pin_thread().
std::vector<int> usable_cpus();

// This thread stays on one CPU. `number` counts the usable ones, and begins again after the last.
void pin_thread(size_t number);

// For a thread that works for a pinned one, which it inherits the CPU from: it may use all CPUs
// again. Does nothing in a process without pinned threads.
void unpin_thread();

}  // namespace ff
