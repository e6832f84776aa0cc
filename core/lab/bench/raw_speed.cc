// raw_speed.cc: one queue, one file, nothing else in the way.
#include "lab/bench/raw_speed.h"

#include <algorithm>
#include <thread>

#include "platform/base/clock.h"
#include "platform/io/buffers.h"
#include "platform/io/files.h"
#include "platform/io/queue_load.h"

namespace ff::bench {
namespace {

constexpr uint64_t kBlockBytes = kMiB;
constexpr size_t kRawDepth = 8;

enum class Way : uint8_t { read, write };

struct Job {
  io::Disk& disk;
  const StopToken& stop;
  Progress& progress;
  std::string path;
  uint64_t blocks = 0;
};

// Bytes a second of one pass over the file.
Result<double> pass(const Job& job, Way way, bool& direct) {
  const bool writing = way == Way::write;
  FF_TRY(auto file,
         job.disk.open(job.path, {.access = writing ? io::AccessMode::write : io::AccessMode::read,
                                  .create = writing,
                                  .truncate = writing,
                                  .direct = true}));
  direct = file->direct();
  FF_TRY(auto buffers, io::Buffers::make(kRawDepth, kBlockBytes));
  std::fill(buffers.all().begin(), buffers.all().end(), std::byte{0x5a});
  // At its size from the start: file systems let writes that make a file longer wait for each
  // other.
  if (writing) FF_TRY(file->reserve(0, job.blocks * kBlockBytes));
  if (writing) FF_TRY(file->truncate(job.blocks * kBlockBytes));
  auto queue = job.disk.make_queue({.depth = kRawDepth});
  const ByteSpan all[] = {buffers.all()};
  queue->register_buffers(all);
  Clock& clock = job.stop.clock();
  const int64_t began = clock.steady_ns();
  FF_TRY(io::run_queue_load(
      *queue, kRawDepth,
      [&](uint64_t number) { return number < job.blocks && !job.stop.requested(); },
      [&](size_t slot, uint64_t number, io::IoQueue::Done done) {
        const uint64_t offset = number * kBlockBytes;
        if (writing) {
          queue->write(*file, buffers.slot(slot), offset, std::move(done));
        } else {
          queue->read(*file, buffers.slot(slot), offset, std::move(done));
        }
      },
      [&](size_t, uint64_t) { job.progress.done += kBlockBytes; }));
  FF_TRY(job.stop.check());
  if (writing) FF_TRY(file->sync());
  const double seconds = to_seconds(clock.steady_ns() - began);
  return static_cast<double>(job.blocks * kBlockBytes) / std::max(seconds, 1e-9);
}

Result<RawSpeed> measure(const Job& job, const Job& other) {
  RawSpeed speed;
  FF_TRY(speed.write, pass(job, Way::write, speed.direct));
  FF_TRY(speed.read, pass(job, Way::read, speed.direct));
  Result<double> reading = 0.0;
  bool direct = false;
  std::jthread reader([&] { reading = pass(job, Way::read, direct); });
  bool other_direct = false;
  const auto writing = pass(other, Way::write, other_direct);
  reader.join();
  if (!reading) return std::move(reading).error();
  if (!writing) return writing.error();
  speed.both = std::min(*reading, *writing);
  return speed;
}

}  // namespace

Result<RawSpeed> measure_raw_speed(io::Disk& disk, const StopToken& stop, Progress& progress,
                                   const RawSpeedOptions& options) {
  const uint64_t blocks =
      std::max<uint64_t>(kRawDepth, align_up(options.bytes, kBlockBytes) / kBlockBytes);
  const Job job{disk, stop, progress, io::join(options.dir, options.name + ".1"), blocks};
  const Job other{disk, stop, progress, io::join(options.dir, options.name + ".2"), blocks};
  progress.total = 4 * blocks * kBlockBytes;
  auto speed = measure(job, other);
  (void)disk.remove(job.path);  // absent when its creation failed
  (void)disk.remove(other.path);
  return speed;
}

}  // namespace ff::bench
