// The read path of every bulk action (load, verify, export, salvage): workers fetch chunk files,
// several at a time, check them, and write their bytes to restored files if the action has any.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/format/lease.h"
#include "training/checkpoint/format/store.h"
#include "training/checkpoint/load/out_file.h"

namespace ff::checkpoint {

// Bytes of a chunk and their destination.
struct ReadPiece {
  uint32_t chunk_offset = 0;
  uint32_t length = 0;
  uint64_t out_offset = 0;
  // CRC32C of these bytes in the index; nothing for a part of an extent, which the CRC of the chunk
  // covers.
  std::optional<uint32_t> crc;
};

// One chunk to read, or literal bytes, or zeros, for one file.
struct ReadJob {
  std::optional<simd::Digest> chunk;
  std::vector<ReadPiece> pieces;
  std::shared_ptr<const std::string> literal;  // without a chunk: these bytes
  uint64_t out_offset = 0;                     // destination of literal or zeros
  uint64_t zeros = 0;                          // without chunk and literal: number of zeros
  std::shared_ptr<OutFile> file;               // null: check only
  uint64_t bytes() const;                      // logical bytes, for progress
};

// Makes jobs from extents in order: adjacent extents in one chunk become one job. An index may have
// millions of extents in one line, so add_all() makes jobs only when take() needs them.
class JobBuilder {
 public:
  // Bytes [from, from + length) of `extent` go to `out_offset` of `file`.
  void add(const ChunkExtent& extent, uint64_t from, uint64_t length,
           const std::shared_ptr<OutFile>& file, uint64_t out_offset);
  // All of a record's extents, one after the other. Call it, add(), literal() and flush() only when
  // take() has returned nothing since an add_all() of another record.
  using Extents = std::shared_ptr<const std::vector<ChunkExtent>>;
  void add_all(Extents extents, const std::shared_ptr<OutFile>& file, uint64_t out_offset);
  void add_all(std::vector<ChunkExtent> extents, const std::shared_ptr<OutFile>& file,
               uint64_t out_offset);
  void literal(std::shared_ptr<const std::string> bytes, const std::shared_ptr<OutFile>& file,
               uint64_t out_offset);
  // Completes the current job, so that take() returns it. Call it at the end of each file.
  void flush();
  std::optional<ReadJob> take();

 private:
  // Extents of add_all() from `next` on.
  struct Waiting {
    Extents extents;
    size_t next = 0;
    std::shared_ptr<OutFile> file;
    uint64_t out_offset = 0;
  };
  void push(ReadJob job);
  void push_open();

  std::deque<Waiting> waiting_;
  std::deque<ReadJob> ready_;
  std::optional<ReadJob> open_;
};

// The source of jobs. next() is called under a lock.
class ReadSource {
 public:
  virtual ~ReadSource() = default;
  virtual Result<std::optional<ReadJob>> next() = 0;
};

struct ReadPlan {
  Context& context;
  const Store& store;
  ReadSource& source;
  bool deep = false;       // compute the digest of every chunk again
  Lease* lease = nullptr;  // to renew
  // Called for each damaged or missing chunk, by one thread at a time; its error ends the action.
  std::function<Result<void>(const simd::Digest& chunk, const std::string& reason)> on_damage;
};

// Runs the plan on context.threads workers.
Result<void> run_reads(ReadPlan& plan);

}  // namespace ff::checkpoint
