// net_load.cc: workers with one call in flight each, and the statistics of their calls.
#include "lab/bench/net_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "lab/bench/net_service.h"
#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/io/alignment.h"
#include "platform/rpc/error_wire.h"
#include "platform/simd/crc32c.h"

namespace ff::bench {

namespace {

constexpr double kSecondNs = 1e9;
// A call that takes longer is an error.
constexpr int64_t kCallNs = 30 * kSecond;
constexpr int64_t kStopLookNs = 50 * kMillisecond;

uint64_t slot_bytes(const NetLoad& load) { return align_up(load.size, io::kDirectAlign); }

// Shared by all workers.
class Tally {
 public:
  Tally(Loop& loop, const NetLoad& load)
      : loop_(loop),
        count_from_ns_(loop.now_ns() + load.duration_ns / 10),
        until_ns_(count_from_ns_ + load.duration_ns) {
    times_ns_.reserve(1 << 20);
  }

  // However slow it is, one call is counted.
  bool over() const { return error_ || (loop_.now_ns() >= until_ns_ && !times_ns_.empty()); }
  void count(int64_t began_ns) {
    const int64_t now_ns = loop_.now_ns();
    if (now_ns < count_from_ns_ || (now_ns >= until_ns_ && !times_ns_.empty())) return;
    times_ns_.push_back(now_ns - began_ns);
    until_ns_ = std::max(until_ns_, now_ns);
  }
  void fail_with(Error error) {
    if (!error_) error_ = std::move(error);
  }
  Result<NetResult> figures(uint64_t size) {
    if (error_) return *error_;
    NetResult figures;
    figures.calls = times_ns_.size();
    figures.seconds = static_cast<double>(until_ns_ - count_from_ns_) / kSecondNs;
    figures.calls_per_second = static_cast<double>(figures.calls) / figures.seconds;
    figures.bytes_per_second = figures.calls_per_second * static_cast<double>(size);
    figures.p50_seconds = quantile(0.50);
    figures.p99_seconds = quantile(0.99);
    return figures;
  }

 private:
  double quantile(double share) {
    const auto at = static_cast<size_t>(share * static_cast<double>(times_ns_.size() - 1));
    const auto place = times_ns_.begin() + static_cast<ptrdiff_t>(at);
    std::nth_element(times_ns_.begin(), place, times_ns_.end());
    return static_cast<double>(*place) / kSecondNs;
  }

  Loop& loop_;
  const int64_t count_from_ns_;
  int64_t until_ns_;
  std::vector<int64_t> times_ns_;
  std::optional<Error> error_;
};

using Work = std::function<Task<Result<void>>(size_t worker, ByteSpan memory)>;

Task<void> repeat(Loop& loop, Tally& tally, const Work& work, size_t worker, ByteSpan memory) {
  for (;;) {
    if (tally.over()) co_return;
    const int64_t began_ns = loop.now_ns();
    auto done = co_await work(worker, memory);
    if (!done) co_return tally.fail_with(std::move(done).error());
    tally.count(began_ns);
  }
}

Task<void> watch(Loop& loop, const StopToken& stop, Tally& tally) {
  for (;;) {
    if (tally.over()) co_return;
    if (auto go_on = stop.check(); !go_on) co_return tally.fail_with(std::move(go_on).error());
    const auto waited = co_await sleep_for(loop, kStopLookNs);
    if (!waited) co_return;
  }
}

Task<Result<NetResult>> run_workers(Loop& loop, const StopToken& stop, NetLoad load,
                                    ByteSpan memory, Work work) {
  FF_CHECK(memory.size() >= memory_required(load));
  Tally tally(loop, load);
  Gate gate(loop);
  for (size_t i = 0; i < load.in_flight; i++) {
    const ByteSpan slot = memory.subspan(i * slot_bytes(load), load.size);
    gate.spawn(repeat(loop, tally, work, i, slot));
  }
  gate.spawn(watch(loop, stop, tally));
  co_await gate.wait_empty();
  co_return tally.figures(load.size);
}

Task<Result<void>> echo_once(std::shared_ptr<rpc::Channel> server, ByteSpan memory) {
  wire::EchoRequest request;
  request.set_data(std::string(as_text(memory)));
  const int64_t deadline_ns = server->loop().now_ns() + kCallNs;
  rpc::BulkCall call(std::move(server));
  FF_CO_TRY(const wire::EchoReply reply, co_await call.run(kEcho, std::move(request), deadline_ns));
  if (reply.data().size() == memory.size()) co_return Result<void>();
  co_return fail(Errc::corrupt, "the echo returned {} bytes instead of {}", reply.data().size(),
                 memory.size());
}

Task<Result<void>> read_once(std::shared_ptr<rpc::Channel> server, ByteSpan memory, bool from_disk,
                             bool check) {
  const int64_t deadline_ns = server->loop().now_ns() + kCallNs;
  rpc::BulkCall call(std::move(server));
  FF_CO_TRY(const net::RemoteBuffer sink, call.sink(memory));
  wire::ReadRequest request;
  rpc::to_wire(sink, *request.mutable_sink());
  request.set_from_disk(from_disk);
  FF_CO_TRY(const wire::ReadReply reply, co_await call.run(kRead, std::move(request), deadline_ns));
  if (!check || simd::crc32c(memory) == reply.crc()) co_return Result<void>();
  co_return fail(Errc::corrupt, "the received bytes do not match their CRC32C");
}

Task<Result<void>> write_once(std::shared_ptr<rpc::Channel> server, ByteSpan memory) {
  const int64_t deadline_ns = server->loop().now_ns() + kCallNs;
  rpc::BulkCall call(std::move(server));
  FF_CO_TRY(const net::RemoteBuffer source, call.source(memory));
  wire::WriteRequest request;
  rpc::to_wire(source, *request.mutable_source());
  FF_CO_TRY(co_await call.run(kWrite, std::move(request), deadline_ns));
  co_return Result<void>();
}

Task<Result<void>> read_raw(io::AsyncQueue& queue, io::File& file, Rng& rng, ByteSpan memory) {
  const uint64_t offset = rng.below(kFileBytes / memory.size()) * memory.size();
  FF_CO_TRY(co_await queue.read(file, memory, offset));
  co_return Result<void>();
}

}  // namespace

uint64_t memory_required(const NetLoad& load) { return load.in_flight * slot_bytes(load); }

Task<Result<NetResult>> run_net_load(Loop& loop, const StopToken& stop,
                                     std::vector<std::shared_ptr<rpc::Channel>> servers,
                                     NetLoad load, ByteSpan memory) {
  SeededRng rng(1);
  for (size_t at = 0; at < memory.size(); at += sizeof(uint64_t)) {
    store_le(memory.data() + at, rng.next());
  }
  const Work work = [&](size_t worker, ByteSpan slot) -> Task<Result<void>> {
    const auto& server = servers[worker % servers.size()];
    switch (load.kind) {
      case NetLoad::Kind::echo: return echo_once(server, slot);
      case NetLoad::Kind::read: return read_once(server, slot, false, load.crc);
      case NetLoad::Kind::disk: return read_once(server, slot, true, false);
      case NetLoad::Kind::write: break;
    }
    return write_once(server, slot);
  };
  co_return co_await run_workers(loop, stop, load, memory, work);
}

Task<Result<NetResult>> run_raw_disk(Loop& loop, const StopToken& stop, io::AsyncQueue& queue,
                                     io::File& file, NetLoad load, ByteSpan memory) {
  SeededRng rng(system_seed());
  const Work work = [&](size_t, ByteSpan slot) { return read_raw(queue, file, rng, slot); };
  co_return co_await run_workers(loop, stop, load, memory, work);
}

NetResult run_memcpy(Clock& clock, uint64_t size, int64_t duration_ns) {
  constexpr size_t kPlaces = 8;
  std::vector<std::byte> from(kPlaces * size, std::byte{1});
  std::vector<std::byte> into(kPlaces * size, std::byte{2});
  NetResult figures;
  const int64_t began_ns = clock.steady_ns();
  int64_t now_ns = began_ns;
  for (size_t i = 0; now_ns < began_ns + duration_ns; i++) {
    const size_t at = i % kPlaces * size;
    std::memcpy(into.data() + at, from.data() + at, size);
    figures.calls++;
    now_ns = clock.steady_ns();
  }
  volatile std::byte seen = into[figures.calls % into.size()];  // the copies are wanted
  (void)seen;
  figures.seconds = static_cast<double>(now_ns - began_ns) / kSecondNs;
  figures.calls_per_second = static_cast<double>(figures.calls) / figures.seconds;
  figures.bytes_per_second = figures.calls_per_second * static_cast<double>(size);
  figures.p50_seconds = figures.p99_seconds = 1 / figures.calls_per_second;
  return figures;
}

}  // namespace ff::bench
