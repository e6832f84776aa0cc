// The server side of `ff bench net`: echoes messages, and transfers bulk data from its memory or
// from a file as a storage server does: it reads the disk directly into the client's memory if that
// is mapped, else into a buffer that it pushes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "lab/bench/net.pb.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "platform/io/async.h"
#include "platform/rpc/method.h"

namespace ff::bench {

inline constexpr rpc::Method<wire::EchoRequest, wire::EchoReply> kEcho{0x7f01, "bench.echo"};
inline constexpr rpc::Method<wire::ReadRequest, wire::ReadReply> kRead{0x7f02, "bench.read"};
inline constexpr rpc::Method<wire::WriteRequest, wire::WriteReply> kWrite{0x7f03, "bench.write"};

// Maximum bulk bytes of one call.
constexpr uint64_t kBulkMax = 4 * kMiB;
// Size of the file; reads are whole blocks at random offsets.
constexpr uint64_t kFileBytes = kGiB;

// An unnamed file in `dir` with kFileBytes of random bytes, opened for direct I/O.
Result<std::unique_ptr<io::File>> make_bench_file(io::Disk& disk, const std::string& dir);

class NetService {
 public:
  // Memory that it needs: sources, and buffers for received data.
  static constexpr size_t kSources = 8;
  static constexpr size_t kBuffers = 64;
  static constexpr uint64_t kMemoryBytes = (kSources + kBuffers) * kBulkMax;

  // All arguments must outlive it. Queue and file may be null; then disk reads fail.
  NetService(rpc::Router& router, Loop& loop, ByteSpan memory, io::AsyncQueue* queue,
             io::File* file);

 private:
  // Holds one of the buffers.
  class Buffer;

  Task<Result<wire::EchoReply>> echo(rpc::ServerCall& call, wire::EchoRequest request);
  Task<Result<wire::ReadReply>> read(rpc::ServerCall& call, wire::ReadRequest request);
  Task<Result<wire::WriteReply>> write(rpc::ServerCall& call, wire::WriteRequest request);
  Task<Result<void>> read_disk(rpc::ServerCall& call, net::RemoteBuffer sink);
  // CRC32C of the first `size` bytes of a source; cached.
  uint32_t crc_of(size_t source, uint64_t size);

  ByteSpan memory_;
  io::AsyncQueue* queue_;
  io::File* file_;
  SeededRng rng_;
  size_t next_source_ = 0;
  std::map<std::pair<size_t, uint64_t>, uint32_t> crcs_;
  std::vector<size_t> free_;  // buffers
  Semaphore buffers_;
};

}  // namespace ff::bench
