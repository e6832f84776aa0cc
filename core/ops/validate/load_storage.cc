// load_storage.cc: writes one file with direct I/O, in 1 MiB blocks with 8 in flight, and verifies
// every block when it is read back; then 4 KiB reads at random offsets with 32 in flight.
#include <algorithm>

#include "ops/validate/storage.h"
#include "platform/base/clock.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/buffers.h"
#include "platform/io/files.h"
#include "platform/io/queue_load.h"
#include "platform/simd/crc32c.h"

namespace ff::validate {

namespace {

constexpr uint64_t kBlock = kMiB;
constexpr uint64_t kSmall = 4 * kKiB;
constexpr size_t kDepth = 8;
constexpr size_t kSmallDepth = 32;

uint64_t bytes_of(RunLevel level) {
  switch (level) {
    case RunLevel::quick: return 256 * kMiB;
    case RunLevel::weekly: return 4 * kGiB;
    case RunLevel::burn_in: return 32 * kGiB;
  }
  return 0;
}

// The content of a block, different for every block and run.
void fill(ByteSpan block, uint64_t number, uint64_t seed) {
  uint64_t state = seed ^ number * 0x9e3779b97f4a7c15;
  for (size_t at = 0; at < block.size(); at += sizeof state) {
    state = state * 6'364'136'223'846'793'005ULL + 1'442'695'040'888'963'407ULL;  // Knuth's MMIX
    store_le(block.data() + at, state);
  }
}

struct Passes {
  io::Disk& disk;
  Clock& clock;
  Rng& rng;
  InjectedFault fault = InjectedFault::none;
  std::unique_ptr<io::File> file = {};
  uint64_t blocks = 0;
  uint64_t seed = 0;
  std::vector<uint32_t> checksums = {};
  std::vector<uint64_t> wrong = {};  // blocks
};

using Done = io::IoQueue::Done;

// An unlinked file: it disappears with this process, however that ends.
Result<void> make_file(Passes& passes, const std::string& dir) {
  const std::string path = io::join(dir, "ff-validate-" + passes.rng.hex_id());
  FF_TRY(passes.file, passes.disk.open(path, {.access = io::AccessMode::read_write,
                                              .create = true,
                                              .exclusive = true,
                                              .direct = true,
                                              .mode = 0600}));
  FF_TRY(passes.disk.remove(path));
  FF_TRY(passes.file->reserve(0, passes.blocks * kBlock));
  // Set to full size first: file systems serialize writes that extend a file.
  return passes.file->truncate(passes.blocks * kBlock);
}

double speed_of(const Passes& passes, int64_t began_ns) {
  return static_cast<double>(passes.blocks * kBlock) * 1e9 /
         static_cast<double>(std::max<int64_t>(passes.clock.steady_ns() - began_ns, 1));
}

Result<double> write_pass(Passes& passes) {
  FF_TRY(auto buffers, io::Buffers::make(kDepth, kBlock));
  auto queue = passes.disk.make_queue({.depth = kDepth});
  passes.checksums.resize(passes.blocks);
  // Filled once: blocks differ in their first bytes, and so in their checksum.
  for (size_t slot = 0; slot < kDepth; slot++) fill(buffers.slot(slot), 0, passes.seed);
  const int64_t began_ns = passes.clock.steady_ns();
  FF_TRY(io::run_queue_load(
      *queue, kDepth, [&](uint64_t number) { return number < passes.blocks; },
      [&](size_t slot, uint64_t number, Done done) {
        const ByteSpan block = buffers.slot(slot);
        fill(block.first(kSmall), number, passes.seed);
        passes.checksums[number] = simd::crc32c(block);
        queue->write(*passes.file, block, number * kBlock, std::move(done));
      },
      [](size_t, uint64_t) {}));
  FF_TRY(passes.file->sync());
  return speed_of(passes, began_ns);
}

Result<double> read_pass(Passes& passes) {
  FF_TRY(auto buffers, io::Buffers::make(kDepth, kBlock));
  auto queue = passes.disk.make_queue({.depth = kDepth});
  const int64_t began_ns = passes.clock.steady_ns();
  FF_TRY(io::run_queue_load(
      *queue, kDepth, [&](uint64_t number) { return number < passes.blocks; },
      [&](size_t slot, uint64_t number, Done done) {
        queue->read(*passes.file, buffers.slot(slot), number * kBlock, std::move(done));
      },
      [&](size_t slot, uint64_t number) {
        const ByteSpan block = buffers.slot(slot);
        if (passes.fault == InjectedFault::file_bit && number == 1) block[77] ^= std::byte{1};
        if (simd::crc32c(block) != passes.checksums[number]) passes.wrong.push_back(number);
      }));
  return speed_of(passes, began_ns);
}

// Reads per second, and the latency of each, sorted.
Result<std::pair<double, std::vector<int64_t>>> small_pass(Passes& passes, int64_t for_ns) {
  FF_TRY(auto buffers, io::Buffers::make(kSmallDepth, kSmall));
  auto queue = passes.disk.make_queue({.depth = kSmallDepth});
  std::vector<int64_t> began(kSmallDepth), took;
  const int64_t first_ns = passes.clock.steady_ns();
  FF_TRY(io::run_queue_load(
      *queue, kSmallDepth, [&](uint64_t) { return passes.clock.steady_ns() < first_ns + for_ns; },
      [&](size_t slot, uint64_t, Done done) {
        began[slot] = passes.clock.steady_ns();
        const uint64_t place = passes.rng.below(passes.blocks * kBlock / kSmall) * kSmall;
        queue->read(*passes.file, buffers.slot(slot), place, std::move(done));
      },
      [&](size_t slot, uint64_t) { took.push_back(passes.clock.steady_ns() - began[slot]); }));
  const double seconds = to_seconds(passes.clock.steady_ns() - first_ns);
  std::ranges::sort(took);
  return std::pair(static_cast<double>(took.size()) / std::max(seconds, 1e-9), std::move(took));
}

void report_speed(const CheckContext& context, const char* part, double speed,
                  const Passes& passes) {
  Finding finding{.name = "storage.speed", .part = part};
  finding.verdict = Verdict::pass;
  finding.value = speed;
  finding.unit = "B/s";
  finding.better = Better::higher;
  finding.found =
      fmt::format("{}, {}{}", format_rate(speed), format_size(passes.blocks * kBlock),
                  passes.file->direct() ? "" : " (no direct I/O here: memory was measured along)");
  context.report(std::move(finding));
}

Result<void> run_passes(const CheckContext& context, Passes& passes) {
  FF_TRY(make_file(passes, context.scratch));
  FF_TRY(const double write, write_pass(passes));
  report_speed(context, "write", write, passes);
  FF_TRY(const double read, read_pass(passes));
  if (!passes.wrong.empty()) {
    std::ranges::sort(passes.wrong);
    context.report(
        {.name = "storage.speed",
         .part = "read",
         .verdict = Verdict::fail,
         .found = fmt::format("{} of {} blocks are not what was written, first at {}",
                              passes.wrong.size(), passes.blocks, passes.wrong.front() * kBlock),
         .value = static_cast<double>(passes.wrong.size()),
         .expected = "every block as it was written",
         .source = "CRC32C of each block",
         .hint = "Do not trust this disk: save its data elsewhere and replace it."});
  } else {
    report_speed(context, "read", read, passes);
  }
  const int64_t for_ns = context.level == RunLevel::quick ? kSecond : 5 * kSecond;
  FF_TRY(const auto small, small_pass(passes, for_ns));
  const auto& [rate, took] = small;
  if (took.empty()) return fail(Errc::failed, "no read ended within {} s", for_ns / kSecond);
  const auto percentile = [&](double share) {
    return format_duration(took[static_cast<size_t>(share * static_cast<double>(took.size() - 1))]);
  };
  Finding finding{.name = "storage.speed", .part = "4 KiB reads"};
  finding.verdict = Verdict::pass;
  finding.value = rate;
  finding.unit = "1/s";
  finding.better = Better::higher;
  finding.found = fmt::format("{:.0f}/s; half within {}, 99 % within {}, 99.9 % within {}", rate,
                              percentile(0.5), percentile(0.99), percentile(0.999));
  context.report(std::move(finding));
  return {};
}

}  // namespace

void check_storage_speed(const CheckContext& context) {
  io::Disk& disk = context.tree.disk();
  Finding finding{.name = "storage.speed"};
  const auto space = disk.space(context.scratch);
  if (!space) {
    finding.found = space.error().message;
    return context.report(std::move(finding));
  }
  // The test must not fill the disk.
  const uint64_t bytes = std::min(bytes_of(context.level), space->free / 10);
  if (bytes < 16 * kMiB) {
    finding.found = fmt::format("{}: too little free space for a scratch file", context.scratch);
    finding.hint = "Name a folder with room: --scratch DIR";
    return context.report(std::move(finding));
  }
  Passes passes{.disk = disk,
                .clock = context.clock,
                .rng = context.rng,
                .fault = context.fault,
                .blocks = bytes / kBlock,
                .seed = context.rng.next()};
  const auto ran = run_passes(context, passes);
  if (ran) return;
  finding.found = ran.error().message;
  finding.verdict = ran.error().code == Errc::disk_full || ran.error().code == Errc::refused
                        ? Verdict::could_not_run
                        : Verdict::fail;
  finding.hint =
      ran.error().hint.empty() ? "Look in the kernel's log for the disk." : ran.error().hint;
  context.report(std::move(finding));
}

}  // namespace ff::validate
