// run_queue_load(): a load generator that keeps a fixed number of operations in flight on one queue
// (compare iodepth of fio).
#pragma once

#include <cstdint>
#include <functional>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::io {

// Operations are numbered from 0. `more` returns whether operation `number` exists. `start` starts
// it; the operation owns `slot` (below `depth`) until it completes. `ended` is called after
// success. After the first error no further operation starts; the function waits for those in
// flight and returns the error.
Result<void> run_queue_load(
    IoQueue& queue, size_t depth, const std::function<bool(uint64_t number)>& more,
    const std::function<void(size_t slot, uint64_t number, IoQueue::Done)>& start,
    const std::function<void(size_t slot, uint64_t number)>& ended);

}  // namespace ff::io
