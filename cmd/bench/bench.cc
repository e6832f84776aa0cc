// `ff bench`: measures disks, CPU and memory of this machine, and declares the other benchmarks.
#include <algorithm>
#include <vector>

#include "cmd/bench/bench.h"
#include "cmd/bench/device_speed.h"
#include "cmd/cli/cli.h"
#include "lab/bench/raw_speed.h"
#include "platform/base/clock.h"
#include "platform/base/median.h"
#include "platform/base/rng.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"
#include "platform/simd/crc32c.h"
#include "platform/simd/digest.h"

namespace ff::cmd {
namespace {

struct DiskOptions {
  std::string dir = ".";
  uint64_t size = kGiB;
};

Result<void> run_disk(Session& session, const DiskOptions& options) {
  io::SystemDisk disk;
  Clock& clock = session.stop.clock();
  SeededRng rng(system_seed());
  Progress progress;
  auto bar = session.out.progress("bench disk", progress, session.stop);
  FF_TRY(const auto speed,
         bench::measure_raw_speed(
             disk, session.stop, progress,
             {.dir = options.dir, .bytes = options.size, .name = "ff-bench-" + rng.hex_id()}));
  bar.reset();
  if (!speed.direct) {
    session.out.warn("{} has no direct I/O: the result includes memory speed", options.dir);
  }
  std::string warning;
  const DeviceSpeed measured{speed.read, speed.write, clock.wall_ns()};
  if (auto kept = save_device_speed(clock, options.dir, measured, warning); !kept) {
    session.out.warn("ff could not keep the results: {}", kept.error().message);
  }
  if (!warning.empty()) session.out.warn("{}", warning);
  session.out.data({{"dir", options.dir},
                    {"bytes", options.size},
                    {"direct", speed.direct},
                    {"queue", disk.queue_kind()},
                    {"write_bytes_per_second", speed.write},
                    {"read_bytes_per_second", speed.read},
                    {"both_bytes_per_second", speed.both}});
  auto table = session.out.table({{"DISK"}, {"RATE", Align::right}});
  table.row({"write", format_rate(speed.write)});
  table.row({"read", format_rate(speed.read)});
  table.row({"both at once, the slower one", format_rate(speed.both)});
  return {};
}

struct DigestOptions {
  uint64_t size = 4 * kMiB;
};

struct Measured {
  std::string name;
  double rate = 0;  // bytes a second on one core, the median
};

// The median of several passes over memory.
template <class Work>
Measured measure(Clock& clock, std::string name, uint64_t bytes, Work work) {
  constexpr int kPasses = 15;
  constexpr uint64_t kPassBytes = 256 * kMiB;  // long enough to time, short enough to wait for
  const uint64_t rounds = std::max<uint64_t>(1, kPassBytes / bytes);
  std::vector<double> rates;
  for (int i = 0; i < kPasses; i++) {
    const int64_t began = clock.steady_ns();
    for (uint64_t round = 0; round < rounds; round++) work();
    const double seconds = to_seconds(clock.steady_ns() - began);
    rates.push_back(static_cast<double>(rounds * bytes) / std::max(seconds, 1e-9));
  }
  return {std::move(name), median(std::move(rates))};
}

Result<void> run_digest(Session& session, const DigestOptions& options) {
  if (options.size == 0) return fail(Errc::usage, "--size must be greater than 0");
  std::vector<std::byte> data(options.size);
  SeededRng rng(1);
  for (auto& byte : data) byte = static_cast<std::byte>(rng.next());
  Clock& clock = session.stop.clock();
  volatile uint32_t sink = 0;  // prevents that the compiler removes the work
  std::vector<Measured> rows;
  rows.push_back(measure(clock, fmt::format("crc32c ({})", simd::crc32c_path()), data.size(),
                         [&] { sink = simd::crc32c(data); }));
  for (const auto kind : {simd::DigestKind::xxh128, simd::DigestKind::sha256}) {
    FF_TRY(session.stop.check());
    const std::string name(simd::digest_kind_name(kind));
    rows.push_back(measure(clock, name, data.size(), [&] {
      simd::Digester digester(kind);
      digester.update(data);
      sink = static_cast<uint32_t>(digester.finish().bytes[0]);
    }));
    rows.push_back(measure(clock, name + " and crc32c in one pass", data.size(),
                           [&] { sink = simd::fingerprint(kind, data).crc32c; }));
  }
  Json list = Json::array();
  auto table = session.out.table({{"DIGEST"}, {"ONE CORE", Align::right}});
  for (const auto& row : rows) {
    table.row({row.name, format_rate(row.rate)});
    list.push_back({{"name", row.name}, {"bytes_per_second", row.rate}});
  }
  session.out.data({{"bytes", options.size}, {"digests", std::move(list)}});
  return {};
}

}  // namespace

void declare_bench(Command& bench) {
  bench.about(
      "Measures the speed of disks, networks and clusters with the code that ff itself uses.");
  auto& disk = bench.sub("disk", "Raw speed of the disk under a directory");
  auto& disk_options = disk.keep<DiskOptions>();
  disk.about(
      "Writes and reads two files in DIR with direct I/O, 1 MiB blocks and 8 blocks in flight, and "
      "removes them. ff keeps the results in its local state; save and load then print their rate "
      "in relation to them.");
  disk.argument("DIR", dir(disk_options.dir), "Directory on the disk").optional();
  disk.option("--size", size(disk_options.size), "Size of each file");
  disk.example("ff bench disk /data", "the speed of the disk at /data");
  disk.blocking();
  disk.run([&disk_options](Session& s) { return run_disk(s, disk_options); });

  auto& digest = bench.sub("digest", "Speed of checksums and digests on one core");
  auto& digest_options = digest.keep<DigestOptions>();
  digest.about(
      "Computes CRC32C and digests of data in memory, and prints the median of 15 passes.");
  digest.option("--size", size(digest_options.size), "Size of the data; 4MiB is a chunk");
  digest.example("ff bench digest", "which CPU instructions ff uses, and their speed");
  digest.run([&digest_options](Session& s) { return run_digest(s, digest_options); });

  declare_bench_chain(bench.sub("chain", "Speed of the chains of a cluster"));
  declare_bench_io(bench.sub("io", "Speed of a file in a cluster"));
  declare_bench_files(bench.sub("files", "Speed of small files in any directory, as mdtest"));
  declare_bench_ring(bench.sub("ring", "Speed of a file on a mount, through USRBIO"));
  declare_bench_meta(bench.sub("meta", "Speed of the metadata service"));
  declare_bench_kv(bench.sub("kv", "Rules and speed of a store for metadata"));
  declare_bench_chunk(bench.sub("chunk", "Speed of a chunk store, compared with its disk"));
  declare_bench_net(bench.sub("net", "Speed of calls and bulk transfers"));
}

}  // namespace ff::cmd
