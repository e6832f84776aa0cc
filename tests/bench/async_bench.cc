// Small direct reads, 64 in flight, of a queue driven by run() and of co_await on a loop: what the
// loop costs. Random 4 KiB of a 1 GiB file under TMPDIR. Compare with
//   async_bench --benchmark_repetitions=7 --benchmark_enable_random_interleaving=true
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/base/system_loop.h"
#include "platform/io/async.h"
#include "platform/io/buffers.h"
#include "platform/io/system_disk.h"
#include "platform/io/thread_queue.h"
#include "platform/io/uring_queue.h"

namespace ff::io {
namespace {

constexpr unsigned kInFlight = 64;
constexpr size_t kBlock = 4 * kKiB;
constexpr uint64_t kFileBytes = kGiB;
constexpr uint64_t kReads = 20'000;  // of one iteration

using QueueMaker = std::unique_ptr<IoQueue> (*)(QueueOptions);

// A file full of random bytes, made once, with no name.
File& file() {
  static const std::unique_ptr<File> made = [] {
    SystemDisk disk;
    const char* dir = std::getenv("TMPDIR");
    const std::string path = std::string(dir != nullptr ? dir : "/tmp") + "/ff_async_bench";
    const OpenOptions options{.access = AccessMode::read_write, .create = true, .direct = true};
    auto opened = disk.open(path, options).value();
    FF_CHECK(disk.remove(path).ok());
    auto buffers = Buffers::make(1, 4 * kMiB).value();
    SeededRng rng(1);
    for (size_t i = 0; i < buffers.all().size(); i += 8) store_le(&buffers.all()[i], rng.next());
    for (uint64_t at = 0; at < kFileBytes; at += buffers.all().size()) {
      FF_CHECK(opened->write_at(buffers.all(), at).ok());
    }
    FF_CHECK(opened->sync().ok());
    return opened;
  }();
  return *made;
}

// The reads of one iteration, shared by all that are in flight.
struct Load {
  Buffers buffers = Buffers::make(kInFlight, kBlock).value();
  SeededRng rng{2};
  uint64_t left = 0;

  uint64_t offset() { return rng.below(kFileBytes / kBlock) * kBlock; }
};

void start_next(IoQueue& queue, Load& load, unsigned slot) {
  if (load.left == 0) return;
  --load.left;
  queue.read(file(), load.buffers.slot(slot), load.offset(), [&queue, &load, slot](auto got) {
    FF_CHECK(got.ok() && *got == kBlock);
    start_next(queue, load, slot);
  });
}

Task<void> read_on(AsyncQueue& queue, Load& load, unsigned slot) {
  while (load.left > 0) {
    --load.left;
    const auto got = co_await queue.read(file(), load.buffers.slot(slot), load.offset());
    FF_CHECK(got.ok() && *got == kBlock);
  }
}

Task<void> read_all(Loop& loop, AsyncQueue& queue, Load& load) {
  Gate gate(loop);
  for (unsigned slot = 0; slot < kInFlight; ++slot) gate.spawn(read_on(queue, load, slot));
  co_await gate.wait_empty();
}

void by_run(benchmark::State& state, QueueMaker make) {
  auto queue = make({.depth = kInFlight});
  if (!queue) return state.SkipWithError("not offered here");
  Load load;
  file();
  for (auto _ : state) {
    load.left = kReads;
    for (unsigned slot = 0; slot < kInFlight; ++slot) start_next(*queue, load, slot);
    while (queue->in_flight() > 0) queue->run();
  }
  state.SetItemsProcessed(static_cast<int64_t>(kReads) * state.iterations());
}

void by_loop(benchmark::State& state, QueueMaker make) {
  SystemClock clock;
  SystemLoop loop(clock);
  auto made = make({.depth = kInFlight, .loop = &loop});
  if (!made) return state.SkipWithError("not offered here");
  AsyncQueue queue(std::move(made), loop);
  Load load;
  file();
  for (auto _ : state) {
    load.left = kReads;
    run_task(loop, read_all(loop, queue, load));
  }
  state.SetItemsProcessed(static_cast<int64_t>(kReads) * state.iterations());
}

BENCHMARK_CAPTURE(by_run, io_uring, make_uring_queue)->UseRealTime();
BENCHMARK_CAPTURE(by_loop, io_uring, make_uring_queue)->UseRealTime();
BENCHMARK_CAPTURE(by_run, threads, make_thread_queue)->UseRealTime();
BENCHMARK_CAPTURE(by_loop, threads, make_thread_queue)->UseRealTime();

}  // namespace
}  // namespace ff::io
