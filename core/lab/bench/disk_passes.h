// One load for whatever keeps chunks, and for a plain file beside it: write them all and sync, read
// them all, read 4 KiB anywhere in them. Both are moved by the same loop at the same depth, from
// the same memory, each pass of one beside that of the other.
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
#include "platform/base/stop.h"
#include "platform/base/task.h"
#include "platform/io/async.h"
#include "platform/io/disk.h"

namespace ff::bench {

constexpr uint64_t kChunkBytes = kMiB;
constexpr uint64_t kSmallBytes = 4 * kKiB;

struct PassLoad {
  uint64_t bytes = 0;         // whole chunks
  unsigned depth = 8;         // chunks in flight
  unsigned small_depth = 64;  // small reads in flight
  uint64_t small_reads = 0;
  unsigned batch = 0;  // small reads asked for together, once more; 0: they are not
};
// Chunks, then small reads, of one who does all passes: for progress.
uint64_t bytes_moved(const PassLoad& load);
// That operations in flight take.
uint64_t memory_wanted(const PassLoad& load);

// Bytes a second.
struct Speed {
  double write = 0;  // the final sync included
  double read = 0;   // whole chunks
  double small_read = 0;
  double batched_read = 0;  // 0: not measured
};

// What is measured.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual Task<Result<void>> write(uint64_t index, ByteView from) = 0;
  virtual Task<Result<void>> read(uint64_t index, uint64_t offset, ByteSpan into) = 0;
  virtual Task<Result<void>> sync() = 0;
  struct Small {
    uint64_t index = 0;
    uint64_t offset = 0;
    ByteSpan into = {};
  };
  // Together, where that is another matter than one by one.
  virtual Task<Result<void>> read_batch(std::vector<Small> reads);
};

// A file in newly reserved space: new blocks cost a device more than old ones.
class RawFile final : public Subject {
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
  Task<Result<void>> sync() override { return queue_.sync(*file_); }
  Task<Result<void>> read_batch(std::vector<Small> reads) override;

 private:
  RawFile(io::Disk& disk, Loop& loop, std::unique_ptr<io::File> file, unsigned depth)
      : loop_(loop), queue_(disk, loop, depth), file_(std::move(file)) {}

  Loop& loop_;
  io::AsyncQueue queue_;
  std::unique_ptr<io::File> file_;
};

struct Measured {
  Subject& subject;
  Speed& speed;
};
struct PassContext {
  Loop& loop;
  const Stop& stop;
  Progress& progress;
  Rng& rng;
  const PassLoad& load;
  ByteSpan memory;  // memory_wanted(load), aligned for direct I/O
};
// All passes, of those two in turns: some disks are faster for a while and slower after it, so the
// caller lets another one go first each time. `second` may be missing.
Result<void> run_passes(const PassContext& context, Measured first, const Measured* second);

}  // namespace ff::bench
