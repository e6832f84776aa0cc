// `ff bench ring`: throughput of a file of a mount through USRBIO rings, compared with one of the
// disks of the cluster. Uses the public calls of the library.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cmd/bench/bench.h"
#include "cmd/bench/disk.h"
#include "platform/auth/key.h"
#include "platform/base/clock.h"
#include "platform/base/fd.h"
#include "platform/base/system_loop.h"
#include "platform/io/cpu_use.h"
#include "platform/io/files.h"
#include "storage/chunk/aligned_buffer.h"
#include "storage/usrbio/hf3fs_usrbio.h"

namespace ff::cmd {
namespace {

struct BenchRingOptions {
  std::string dir;
  std::optional<std::string> raw;
  PassOptions passes{.depth = 64};
  unsigned batch = 1;
};

Error failed(const char* what, int64_t error) { return errno_error(static_cast<int>(error), what); }

// A file on the mount with two rings and memory for all I/O in flight, removed at the end.
class RingFile {
 public:
  RingFile() = default;
  RingFile(const RingFile&) = delete;
  RingFile& operator=(const RingFile&) = delete;
  ~RingFile() {
    hf3fs_iordestroy(&reads_);
    hf3fs_iordestroy(&writes_);
    hf3fs_iovdestroy(&memory_);
    if (file_.get() < 0) return;
    hf3fs_dereg_fd(file_.get());
    ::unlink(path_.c_str());
  }

  Result<void> make(const std::string& dir, const std::string& name, const bench::PassLoad& load) {
    std::string mount(HF3FS_MOUNT_POINT_BYTES, '\0');
    const int size = hf3fs_extract_mount_point(mount.data(), HF3FS_MOUNT_POINT_BYTES, dir.c_str());
    if (size <= 0 || size > HF3FS_MOUNT_POINT_BYTES) {
      Error error = fail(Errc::usage, "{}: not on an ff mount with USRBIO", dir);
      error.hint = "Mount the cluster first: ff mount / DIR";
      return error;
    }
    path_ = io::join(dir, name);
    file_ = Fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600));
    if (file_.get() < 0) return errno_error(errno, path_);
    const int registered = hf3fs_reg_fd(file_.get(), 0);
    if (registered > 0) return failed("reg_fd", registered);
    const auto entries = static_cast<int>(std::max(load.depth, load.small_depth));
    int made = hf3fs_iovcreate(&memory_, mount.c_str(), bench::memory_required(load), 0, -1);
    if (made == 0) made = hf3fs_iorcreate(&reads_, mount.c_str(), entries, true, 0, -1);
    if (made == 0) made = hf3fs_iorcreate(&writes_, mount.c_str(), entries, false, 0, -1);
    if (made != 0) return failed("rings", -made);
    return {};
  }
  Result<void> sync() {
    if (::fsync(file_.get()) != 0) return errno_error(errno, path_);
    return {};
  }

  struct Pass {
    bool read = true;
    uint64_t size = 0;
    uint64_t count = 0;
    unsigned depth = 0;
    unsigned batch = 1;                   // submitted together
    std::function<uint64_t()> next = {};  // offset of the next I/O
  };
  Result<bench::PassResult> run(const Pass& pass, const StopToken& stop, Progress& progress) {
    const hf3fs_ior& ring = pass.read ? reads_ : writes_;
    std::vector<hf3fs_cqe> done(pass.depth);
    std::vector<uint8_t*> free;
    for (unsigned i = 0; i < pass.depth; i++) free.push_back(memory_.base + i * pass.size);
    const io::CpuMeter cpu;
    const int64_t began_ns = stop.clock().steady_ns();
    uint64_t ended = 0;
    for (uint64_t begun = 0; ended < pass.count;) {
      FF_TRY(stop.check());
      const uint64_t room = std::min<uint64_t>(free.size(), pass.count - begun);
      for (uint64_t i = 0; i < room; i++, begun++) {
        uint8_t* const at = free.back();
        free.pop_back();
        const int slot =
            hf3fs_prep_io(&ring, &memory_, pass.read, at, file_.get(), pass.next(), pass.size, at);
        if (slot < 0) return failed("prep_io", -slot);
      }
      const int sent = hf3fs_submit_ios(&ring);
      if (sent != 0) return failed("submit_ios", -sent);
      const auto least = std::min<uint64_t>(pass.batch, begun - ended);
      const int got = hf3fs_wait_for_ios(&ring, done.data(), static_cast<int>(done.size()),
                                         static_cast<int>(least), nullptr);
      if (got < 0) return failed("wait_for_ios", -got);
      for (int i = 0; i < got; i++) {
        if (done[i].result < 0) return failed("a ring", -done[i].result);
        if (done[i].result != static_cast<int64_t>(pass.size)) {
          return fail(Errc::corrupt, "{} bytes of {}", done[i].result, pass.size);
        }
        free.push_back(static_cast<uint8_t*>(const_cast<void*>(done[i].userdata)));
      }
      ended += static_cast<uint64_t>(got);
      progress.done += static_cast<uint64_t>(got) * pass.size;
    }
    if (!pass.read) FF_TRY(sync());
    const double seconds = to_seconds(stop.clock().steady_ns() - began_ns);
    const auto operations = static_cast<double>(std::max<uint64_t>(pass.count, 1));
    return bench::PassResult{
        .speed = static_cast<double>(pass.count * pass.size) / std::max(seconds, 1e-9),
        .cpu_seconds = cpu.seconds() / operations};
  }

 private:
  std::string path_;
  Fd file_;
  hf3fs_iov memory_ = {};
  hf3fs_ior reads_ = {};
  hf3fs_ior writes_ = {};
};

Result<void> run_rings(Session& session, Progress& progress, const BenchRingOptions& options,
                       const bench::PassLoad& load, Rng& rng, bench::Throughput& speed) {
  RingFile file;
  FF_TRY(file.make(options.dir, "ff-bench-" + rng.hex_id(), load));
  const uint64_t chunks = load.bytes / bench::kChunkBytes;
  uint64_t at = 0;
  const auto in_order = [&] { return at++ % chunks * bench::kChunkBytes; };
  const auto anywhere = [&] {
    return rng.below(load.bytes / bench::kSmallBytes) * bench::kSmallBytes;
  };
  RingFile::Pass pass{.read = false, .size = bench::kChunkBytes, .count = chunks};
  pass.depth = load.depth;
  pass.next = in_order;
  FF_TRY(speed.write, file.run(pass, session.stop, progress));
  pass.read = true;
  FF_TRY(speed.read, file.run(pass, session.stop, progress));
  pass = {.size = bench::kSmallBytes, .count = load.small_reads, .depth = load.small_depth};
  pass.batch = options.batch;
  pass.next = anywhere;
  FF_TRY(speed.small_read, file.run(pass, session.stop, progress));
  return {};
}

Result<void> run_raw(Session& session, Progress& progress, const BenchRingOptions& options,
                     const bench::PassLoad& load, auth::SecureRng& rng, bench::Throughput& speed) {
  SystemLoop loop(session.stop.clock());
  FF_TRY(auto beside, RawBaseline::make(session, loop, *options.raw, load, rng));
  chunk::AlignedBuffer memory(bench::memory_required(load));
  SeededRng places(system_seed());
  const bench::PassContext on{loop, session.stop, progress, places, load, memory.span()};
  return bench::run_passes(on, {beside.file(), speed}, nullptr);
}

Result<void> run_ring(Session& session, const BenchRingOptions& options) {
  FF_TRY(const auto load, pass_load(options.passes));
  const unsigned least = std::min(load.depth, load.small_depth);
  if (options.batch == 0 || options.batch > least) {
    return fail(Errc::usage, "--batch {}: 1 to {}", options.batch, least);
  }
  Progress progress;
  progress.total = options.passes.rounds * (options.raw ? 2 : 1) * bench::bytes_moved(load);
  auto bar = session.out.progress("bench ring", progress, session.stop);
  auth::SecureRng rng;
  std::vector<Round> rounds;
  for (unsigned i = 0; i < options.passes.rounds; i++) {
    Round round;
    const auto raw = [&]() -> Result<void> {
      if (!options.raw) return {};
      return run_raw(session, progress, options, load, rng, round.raw);
    };
    // Some disks are faster for a while and slower after it.
    if (i % 2 == 0) FF_TRY(raw());
    FF_TRY(run_rings(session, progress, options, load, rng, round.own));
    if (i % 2 == 1) FF_TRY(raw());
    rounds.push_back(round);
  }
  auto table = session.out.table(round_columns("RING"));
  session.out.data({{"bytes", load.bytes},
                    {"batch", options.batch},
                    {"rounds", options.passes.rounds},
                    {"rows", report_rounds(table, options.passes, rounds, "RING")}});
  return {};
}

}  // namespace

void declare_bench_ring(Command& ring) {
  auto& options = ring.keep<BenchRingOptions>();
  ring.about(
      "Writes a file in a directory of an ff mount through USRBIO (the interface of "
      "libhf3fs_api_shared.so) and syncs it, reads it in pieces of 1 MiB, then reads random blocks "
      "of 4 KiB. ff checks each read with CRC32C, and removes the file at the end. With --raw ff "
      "also measures a plain file at the same depths, in newly allocated space, with direct I/O. "
      "Prints the medians of several rounds; CPU/OP is the CPU time of the whole machine per "
      "operation.");
  ring.argument("DIR", dir(options.dir), "Directory on the mount");
  declare_raw(ring, options.raw);
  declare_passes(ring, options.passes);
  ring.option("--batch", number(options.batch), "Number of small reads to wait for at once");
  ring.example("ff bench ring /mnt/ff", "a mount of this machine");
  ring.example("ff bench ring /mnt/ff --raw /disk1", "compare with its disk");
  ring.blocking();
  ring.run([&options](Session& s) { return run_ring(s, options); });
}

}  // namespace ff::cmd
