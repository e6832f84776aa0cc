// disk_passes.cc: workers on one loop, as many as operations in flight, each with its own memory.
#include "lab/bench/disk_passes.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/task_group.h"
#include "platform/io/cpu_use.h"

namespace ff::bench {
namespace {

enum class Kind : uint8_t { write, read, small_read, batched_read, small_write };

// One pass over a target: `count` operations, with one worker per operation in flight.
struct Pass {
  const PassContext& on;
  BenchTarget& subject;
  Kind kind = Kind::write;
  uint64_t count = 0;
  uint64_t next = 0;
  std::optional<Error> error = {};
};

BenchTarget::Small some_place(const Pass& pass, ByteSpan into) {
  const uint64_t offset = pass.on.rng.below(kChunkBytes / kSmallBytes) * kSmallBytes;
  return {pass.on.rng.below(pass.on.load.bytes / kChunkBytes), offset, into};
}

Task<Result<void>> read_some(Pass& pass, ByteSpan memory) {
  std::vector<BenchTarget::Small> reads;
  for (uint64_t at = 0; at < memory.size(); at += kSmallBytes) {
    reads.push_back(some_place(pass, memory.subspan(at, kSmallBytes)));
  }
  co_return co_await pass.subject.read_batch(std::move(reads));
}

Task<void> run_pass_slot(Pass& pass, ByteSpan memory) {
  while (pass.next < pass.count && !pass.error) {
    const uint64_t index = pass.next++;
    Result<void> done;
    if (auto stopped = pass.on.stop.check(); !stopped) {
      done = std::move(stopped);
    } else if (pass.kind == Kind::write) {
      done = co_await pass.subject.write(index, memory);
    } else if (pass.kind == Kind::read) {
      done = co_await pass.subject.read(index, 0, memory);
    } else if (pass.kind == Kind::batched_read) {
      done = co_await read_some(pass, memory);
    } else if (pass.kind == Kind::small_write) {
      const BenchTarget::Small at = some_place(pass, memory);
      done = co_await pass.subject.overwrite(at.index, at.offset, at.into);
    } else {
      const BenchTarget::Small at = some_place(pass, memory);
      done = co_await pass.subject.read(at.index, at.offset, at.into);
    }
    pass.on.progress.done += memory.size();
    if (!done) pass.error = std::move(done).error();
  }
}

Task<void> work_all(Pass& pass, uint64_t size, unsigned depth) {
  Gate gate(pass.on.loop);
  for (size_t i = 0; i < depth; ++i) {
    gate.spawn(run_pass_slot(pass, pass.on.memory.subspan(i * size, size)));
  }
  co_await gate.wait_empty();
  const bool writes = pass.kind == Kind::write || pass.kind == Kind::small_write;
  if (!writes || pass.error) co_return;
  if (auto synced = co_await pass.subject.sync(); !synced) pass.error = std::move(synced).error();
}

Result<PassResult> run_pass(const PassContext& on, BenchTarget& subject, Kind kind) {
  const bool batched = kind == Kind::batched_read;
  const bool overwrites = kind == Kind::small_write;
  const bool small = overwrites || kind == Kind::small_read;
  const uint64_t size = batched ? on.load.batch * kSmallBytes : small ? kSmallBytes : kChunkBytes;
  Pass pass{.on = on,
            .subject = subject,
            .kind = kind,
            .count = batched      ? on.load.small_reads / on.load.batch
                     : overwrites ? on.load.small_writes
                     : small      ? on.load.small_reads
                                  : on.load.bytes / kChunkBytes};
  const io::CpuMeter cpu;
  const int64_t began = on.loop.now_ns();
  // As many small reads in flight together as one by one.
  const unsigned depth = batched ? std::max(1U, on.load.small_depth / on.load.batch)
                         : small ? on.load.small_depth
                                 : on.load.depth;
  run_task(on.loop, work_all(pass, size, depth));
  if (pass.error) return std::move(*pass.error);
  const double seconds = to_seconds(on.loop.now_ns() - began);
  const auto operations = static_cast<double>(batched ? pass.count * on.load.batch : pass.count);
  return PassResult{.speed = static_cast<double>(pass.count * size) / std::max(seconds, 1e-9),
                    .cpu_seconds = cpu.seconds() / std::max(operations, 1.0)};
}

}  // namespace

Task<Result<void>> BenchTarget::read_batch(std::vector<Small> reads) {
  for (const Small& one : reads) {
    FF_CO_TRY(co_await read(one.index, one.offset, one.into));
  }
  co_return Result<void>();
}

Task<Result<void>> BenchTarget::overwrite(uint64_t, uint64_t, ByteView) {
  co_return fail(Errc::unsupported, "this benchmark does not overwrite");
}

uint64_t bytes_moved(const PassLoad& load) {
  const uint64_t reads = (load.batch > 0 ? 2 : 1) * load.small_reads;
  return 2 * load.bytes + (reads + load.small_writes) * kSmallBytes;
}

uint64_t memory_required(const PassLoad& load) {
  return std::max(load.depth * kChunkBytes, std::max(load.small_depth, load.batch) * kSmallBytes);
}

Result<std::unique_ptr<RawFile>> RawFile::make(io::Disk& disk, Loop& loop, const std::string& path,
                                               const PassLoad& load) {
  FF_TRY(auto file, disk.open(path, {.access = io::AccessMode::read_write,
                                     .create = true,
                                     .exclusive = true,
                                     .direct = true}));
  FF_TRY(file->truncate(load.bytes));
  FF_TRY(file->reserve(0, load.bytes));
  return std::unique_ptr<RawFile>(
      new RawFile(disk, loop, std::move(file), std::max(load.depth, load.small_depth)));
}

Task<Result<void>> RawFile::read_batch(std::vector<Small> reads) {
  TaskGroup all(loop_);
  for (const Small& one : reads) all.add(read(one.index, one.offset, one.into));
  co_return co_await all.join();
}

Result<void> run_passes(const PassContext& context, MeasuredTarget first,
                        const MeasuredTarget* second) {
  struct Part {
    Kind kind;
    PassResult Throughput::*speed;
  };
  const Part parts[] = {{Kind::write, &Throughput::write},
                        {Kind::read, &Throughput::read},
                        {Kind::small_read, &Throughput::small_read},
                        {Kind::batched_read, &Throughput::batched_read},
                        {Kind::small_write, &Throughput::small_write}};
  std::memset(context.memory.data(), 0x5a, context.memory.size());
  for (const Part& part : parts) {
    if (part.kind == Kind::batched_read && context.load.batch == 0) continue;
    if (part.kind == Kind::small_write && context.load.small_writes == 0) continue;
    FF_TRY(first.speed.*part.speed, run_pass(context, first.subject, part.kind));
    if (second == nullptr) continue;
    FF_TRY(second->speed.*part.speed, run_pass(context, second->subject, part.kind));
  }
  return {};
}

}  // namespace ff::bench
