// The client's side of `ff bench net`: keeps calls of one kind in flight for a while, and says how
// many were answered and how long they took.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/stop.h"
#include "platform/base/task.h"
#include "platform/io/async.h"
#include "platform/rpc/client.h"

namespace ff::bench {

struct Load {
  enum class Kind : uint8_t {
    echo,   // messages there and back
    read,   // bulk from the servers' memory
    write,  // bulk into it
    disk,   // bulk from the servers' disks
  };
  Kind kind = Kind::echo;
  uint64_t size = 0;       // bytes of a call, each way for echo
  unsigned in_flight = 1;  // spread over the servers in turn
  bool crc = false;        // check the CRC32C of what was read
  int64_t duration_ns = 0;
};

struct Figures {
  uint64_t calls = 0;
  double seconds = 0;
  double calls_per_second = 0;
  double bytes_per_second = 0;  // of bulk, or of messages one way
  double p50_seconds = 0;
  double p99_seconds = 0;
};

// Bytes of memory that run_load() wants.
uint64_t memory_wanted(const Load& load);

// A tenth of the duration is not counted, to warm up. `memory` outlives it: what calls move. Errors
// of calls, and Errc::corrupt for a CRC that does not match; those of `stop`.
Task<Result<Figures>> run_load(Loop& loop, const Stop& stop,
                               std::vector<std::shared_ptr<rpc::Channel>> servers, Load load,
                               ByteSpan memory);

// The same from a file of this process (make_bench_file), without a network: what a disk gives.
Task<Result<Figures>> run_raw_disk(Loop& loop, const Stop& stop, io::AsyncQueue& queue,
                                   io::File& file, Load load, ByteSpan memory);

// memcpy of blocks of `size` bytes between eight places, on one core.
Figures run_memcpy(Clock& clock, uint64_t size, int64_t duration_ns);

}  // namespace ff::bench
