// How the bytes of a file lie in its chunks, and the errors of programs that read and write them.
#pragma once

#include <cstdint>
#include <vector>

#include "platform/base/result.h"
#include "storage/chunk/chunk.h"
#include "storage/cluster/routing.h"
#include "storage/meta/inode.h"

namespace ff::client {

// A range within one chunk.
struct FilePart {
  cluster::ChainId chain = 0;
  chunk::ChunkId id = {};
  uint64_t offset = 0;  // offset in the chunk
  uint64_t size = 0;
  uint64_t at = 0;  // offset in the memory of the caller
};

// `chains`: of the stripe, in order.
std::vector<FilePart> file_parts(meta::InodeId inode, uint64_t chunk_size,
                                 const std::vector<cluster::ChainId>& chains, uint64_t offset,
                                 uint64_t size);

// The error of a chain with an errno (Error::sys) for the program.
Error with_errno(Error error);

}  // namespace ff::client
