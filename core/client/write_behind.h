// What a file's writer need not wait for: bytes are gathered by chunk and written when a chunk is
// full, when what comes next does not follow, when memory is short, or after a while. One write of
// a chunk is under way at a time, so that they keep their order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/gate.h"
#include "base/wait.h"
#include "chain/memory.h"

namespace ff::client {

class WriteBehind {
 public:
  using Write = std::function<Task<Result<void>>(uint64_t offset, ByteView from)>;
  // `memory` and `bound` (MiB) are shared by all files. `write` must live as long as this.
  WriteBehind(Loop& loop, chain::Memory& memory, Semaphore& bound, uint64_t chunk_size,
              Write write);

  bool empty() const { return buffers_.empty() && writing_ == 0; }
  // Takes the bytes over: a copy of them, or, of whole chunks, the share of their `keeper` if there
  // is one. An error of an earlier write is told here, or by flush(), once.
  Task<Result<void>> add(uint64_t offset, ByteView from, std::shared_ptr<const void> keeper = {});
  // All of it is written when this ends.
  Task<Result<void>> flush();
  // Begins to write what has waited since before `before_ns` (steady).
  void start_old(int64_t before_ns);
  // No task is left; what is still there is dropped.
  Task<void> close();

 private:
  struct Buffer {
    chain::Memory::Bytes memory;  // of a chunk; none: the bytes are somebody's else
    std::shared_ptr<const void> keeper = {};
    ByteView kept = {};
    Semaphore::Hold hold;
    uint64_t begin = 0;  // in the file
    uint64_t size = 0;
    int64_t since_ns = 0;
  };
  using Buffers = std::map<uint64_t, Buffer>;  // by chunk

  Task<Result<void>> add_to(uint64_t chunk, uint64_t offset, ByteView from,
                            std::shared_ptr<const void> keeper);
  void start(Buffers::iterator at);
  void start_all();
  Task<void> write(uint64_t chunk, uint64_t ticket, Buffer buffer);
  Task<Result<void>> write_in_turn(uint64_t chunk, uint64_t ticket, ByteView from, uint64_t offset);
  Result<void> take_error();

  Loop& loop_;
  chain::Memory& memory_;
  Semaphore& bound_;
  const uint64_t chunk_size_;
  const Write write_;
  Buffers buffers_;
  // Of a chunk that is being written: one after the other, in the order of their tickets.
  struct Turns {
    uint64_t given = 0;
    uint64_t done = 0;
  };
  std::map<uint64_t, Turns> turns_;
  size_t writing_ = 0;
  Event done_;  // for a moment, whenever one has been written
  std::optional<Error> error_;
  Gate gate_;
};

}  // namespace ff::client
