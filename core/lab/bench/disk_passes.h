// The same load for any chunk storage and for a plain file as baseline: write all chunks and sync,
// read all, read 4 KiB at random offsets, overwrite 4 KiB at random offsets. Both run in the same
// loop with the same depth and memory; each pass of one is followed by the same pass of the other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/loop.h"
#include "platform/base/progress.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/base/stop_token.h"
#include "platform/base/task.h"
#include "platform/io/async.h"
#include "platform/io/disk.h"

namespace ff::bench {

constexpr uint64_t kChunkBytes = kMiB;
constexpr uint64_t kSmallBytes = 4 * kKiB;

struct PassLoad {
  uint64_t bytes = 0;         // whole chunks
  unsigned depth = 8;         // chunks in flight
  unsigned small_depth = 64;  // small reads or writes in flight
  uint64_t small_reads = 0;
  uint64_t small_writes = 0;  // 0: no such pass
  unsigned batch = 0;         // small reads per batch, in an additional pass; 0: no such pass
};
// Bytes that all passes of one target transfer, for progress.
uint64_t bytes_moved(const PassLoad& load);
// Memory for the operations in flight.
uint64_t memory_required(const PassLoad& load);

struct PassResult {
  double speed = 0;        // bytes per second; 0: not measured
  double cpu_seconds = 0;  // of the whole machine, per chunk or small operation (io/cpu_use.h)
};
struct Throughput {
  PassResult write;  // the final sync included
  PassResult read;   // whole chunks
  PassResult small_read;
  PassResult batched_read;
  PassResult small_write;  // the final sync included
};

// The storage that is measured.
class BenchTarget {
 public:
  virtual ~BenchTarget() = default;
  virtual Task<Result<void>> write(uint64_t index, ByteView from) = 0;
  virtual Task<Result<void>> read(uint64_t index, uint64_t offset, ByteSpan into) = 0;
  // Overwrites a part of a chunk. Only for loads with small_writes.
  virtual Task<Result<void>> overwrite(uint64_t index, uint64_t offset, ByteView from);
  virtual Task<Result<void>> sync() = 0;
  struct Small {
    uint64_t index = 0;
    uint64_t offset = 0;
    ByteSpan into = {};
  };
  // Reads all in one batch if the target supports that, else one by one.
  virtual Task<Result<void>> read_batch(std::vector<Small> reads);
};

// A plain file in newly reserved space, since writing new blocks costs more than overwriting.
class RawFile final : public BenchTarget {
 public:
  static Result<std::unique_ptr<RawFile>> make(io::Disk& disk, Loop& loop, const std::string& path,
                                               const PassLoad& load);
  bool direct() const { return file_->direct(); }

  Task<Result<void>> write(uint64_t index, ByteView from) override {
    return queue_.write(*file_, from, index * kChunkBytes);
  }
  Task<Result<void>> read(uint64_t index, uint64_t offset, ByteSpan into) override {
    FF_CO_TRY(co_await queue_.read(*file_, into, index * kChunkBytes + offset));
    co_return Result<void>();
  }
  Task<Result<void>> overwrite(uint64_t index, uint64_t offset, ByteView from) override {
    return queue_.write(*file_, from, index * kChunkBytes + offset);
  }
  Task<Result<void>> sync() override { return queue_.sync(*file_); }
  Task<Result<void>> read_batch(std::vector<Small> reads) override;

 private:
  RawFile(io::Disk& disk, Loop& loop, std::unique_ptr<io::File> file, unsigned depth)
      : loop_(loop), queue_(disk, loop, depth), file_(std::move(file)) {}

  Loop& loop_;
  io::AsyncQueue queue_;
  std::unique_ptr<io::File> file_;
};

struct MeasuredTarget {
  BenchTarget& subject;
  Throughput& speed;
};
struct PassContext {
  Loop& loop;
  const StopToken& stop;
  Progress& progress;
  Rng& rng;
  const PassLoad& load;
  ByteSpan memory;  // memory_required(load), aligned for direct I/O
};
// Runs all passes of both targets in turns. Some disks are fast for a while and slow afterwards, so
// the caller should alternate which target is first. `second` may be null.
Result<void> run_passes(const PassContext& context, MeasuredTarget first,
                        const MeasuredTarget* second);

}  // namespace ff::bench
