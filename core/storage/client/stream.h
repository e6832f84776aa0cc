// Copies between files and pipes, which have no length and cannot seek.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "platform/base/progress.h"
#include "storage/client/file_tree.h"
#include "storage/client/transfer.h"

namespace ff::client {

// Reads `size` bytes; returns fewer only at the end.
using ReadSome = std::function<Task<Result<std::string>>(size_t size)>;
// Writes all bytes.
using WriteAll = std::function<Task<Result<void>>(std::string bytes)>;

// Writes the stream to a file that gets its name when it is complete, like TreeCopier. Returns the
// length.
Task<Result<uint64_t>> stream_to_file(TransferMemory& memory, FileTree& to, std::string path,
                                      uint32_t mode, ReadSome read, Progress& progress);

// Writes the whole file to the stream, in order and with read-ahead. Returns the length.
Task<Result<uint64_t>> file_to_stream(TransferMemory& memory, OpenFile& from, WriteAll write,
                                      Progress& progress);

}  // namespace ff::client
