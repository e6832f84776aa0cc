// Many operations on one queue, a fixed number of them in flight: the load of a yardstick.
#pragma once

#include <cstdint>
#include <functional>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::io {

// Operations are numbered from 0. `more`: whether there is one of this number. `start` begins it;
// `slot`, below `depth`, is its own until it has ended. `ended`: it has, well. The first error ends
// it all: nothing more is begun, and what is in flight is waited for.
Result<void> drive(IoQueue& queue, size_t depth, const std::function<bool(uint64_t number)>& more,
                   const std::function<void(size_t slot, uint64_t number, IoQueue::Done)>& start,
                   const std::function<void(size_t slot, uint64_t number)>& ended);

}  // namespace ff::io
