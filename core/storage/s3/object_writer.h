// Stores the bytes of a source. Pieces of them are under way at the same time: while one
// is received, others are hashed in threads (hash_threads.h), in order, and stored.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/task_group.h"
#include "platform/base/wait.h"
#include "storage/s3/hash_threads.h"
#include "storage/s3/object_source.h"
#include "storage/s3/transfer_pieces.h"

namespace ff::s3 {

class ObjectWriter {
 public:
  // Stores bytes at their offset in the source; several may run, in any order.
  using Store = std::function<Task<Result<void>>(uint64_t offset, ByteView bytes)>;
  // All outlive it.
  ObjectWriter(Loop& loop, HashThreads& threads, ObjectSource& source, const TransferPieces& pieces,
               Store store);

  // Returns when all bytes are stored and checked; the first error otherwise, and then nothing of
  // it runs any more. Once.
  Task<Result<void>> run(bool wants_md5);
  // 32 hex digits, after run(): the MD5 of the bytes, if it was wanted.
  const std::string& md5() const { return md5_; }

 private:
  Task<Result<void>> receive();
  Task<Result<void>> store(uint64_t offset, ByteView bytes);
  Task<Result<void>> hash(uint64_t number, std::vector<HashJob> jobs);
  std::vector<HashJob> take_jobs(ByteView bytes);

  Loop& loop_;
  HashThreads& threads_;
  ObjectSource& source_;
  const TransferPieces& pieces_;
  const Store store_;
  std::optional<Hasher> md5_hasher_;
  std::string md5_;
  Result<void> stored_;  // the first error
  uint64_t read_ = 0;    // pieces
  uint64_t hashed_ = 0;  // pieces
  Event turn_;           // pulsed when hashed_ has changed
  // What still uses each buffer. They end before the rest is destroyed.
  std::vector<std::unique_ptr<TaskGroup>> users_;
};

}  // namespace ff::s3
