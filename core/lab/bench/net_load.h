// The client side of `ff bench net`: keeps calls of one kind in flight for some time, and measures
// throughput and latency.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/stop_token.h"
#include "platform/base/task.h"
#include "platform/io/async.h"
#include "platform/rpc/client.h"

namespace ff::bench {

struct NetLoad {
  enum class Kind : uint8_t {
    echo,   // messages in both directions
    read,   // bulk transfers from the servers' memory
    write,  // bulk transfers to the servers' memory
    disk,   // bulk transfers from the servers' disks
  };
  Kind kind = Kind::echo;
  uint64_t size = 0;       // bytes per call; echo: in each direction
  unsigned in_flight = 1;  // distributed round-robin over the servers
  bool crc = false;        // verify the CRC32C of the bytes read
  int64_t duration_ns = 0;
};

struct NetResult {
  uint64_t calls = 0;
  double seconds = 0;
  double calls_per_second = 0;
  double bytes_per_second = 0;  // bulk data, or messages in one direction
  double p50_seconds = 0;
  double p99_seconds = 0;
};

// Bytes of memory that run_net_load() needs.
uint64_t memory_required(const NetLoad& load);

// The first tenth of the duration is a warm-up and not counted. Calls transfer from and to
// `memory`. Errors: those of calls and `stop`; Errc::corrupt: CRC mismatch.
Task<Result<NetResult>> run_net_load(Loop& loop, const StopToken& stop,
                                     std::vector<std::shared_ptr<rpc::Channel>> servers,
                                     NetLoad load, ByteSpan memory);

// The same load on a local file (make_bench_file) without a network: the baseline of the disk.
Task<Result<NetResult>> run_raw_disk(Loop& loop, const StopToken& stop, io::AsyncQueue& queue,
                                     io::File& file, NetLoad load, ByteSpan memory);

// memcpy of blocks of `size` bytes between eight buffers, on one core.
NetResult run_memcpy(Clock& clock, uint64_t size, int64_t duration_ns);

}  // namespace ff::bench
