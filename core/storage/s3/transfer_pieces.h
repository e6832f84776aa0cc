// The memory of one transfer: the pieces of an object that are under way between a client, the
// threads that hash, and storage.
//
// A connection holds at most kTransferBytes of it; all connections together hold
// StoreOptions::memory, and wait for each other beyond that. What a connection has besides is the
// buffer of http/server.cc and, for signed chunks, one of 256 KiB.
#pragma once

#include <cstdint>
#include <vector>

#include "platform/base/wait.h"
#include "storage/chain/buffer_pool.h"

namespace ff::s3 {

constexpr uint64_t kTransferBytes = 8 * kMiB;

struct TransferPieces {
  Semaphore::Permit permit;
  std::vector<chain::BufferPool::Buffer> buffers;  // of the same size, at least one
  // As many bytes of a buffer belong to a piece.
  size_t bytes = 0;

  size_t count() const { return buffers.size(); }
  ByteSpan piece(uint64_t number) const {
    return buffers[number % buffers.size()].span().first(bytes);
  }
};

}  // namespace ff::s3
