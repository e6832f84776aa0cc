// Files from and to what has no length and only goes forward: pipes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "platform/base/progress.h"
#include "storage/client/transfer.h"
#include "storage/client/tree.h"

namespace ff::client {

// So many bytes, fewer only at the end.
using ReadSome = std::function<Task<Result<std::string>>(size_t size)>;
// All of them.
using WriteAll = std::function<Task<Result<void>>(std::string bytes)>;

// Into a file that gets its name when it is whole, as Copy's do; its length.
Task<Result<uint64_t>> store_stream(TransferMemory& memory, Tree& to, std::string path,
                                    uint32_t mode, ReadSome read, Progress& progress);

// All of an open file, in order, while what comes next is read; its length.
Task<Result<uint64_t>> give_stream(TransferMemory& memory, OpenFile& from, WriteAll write,
                                   Progress& progress);

}  // namespace ff::client
