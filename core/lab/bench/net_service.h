// The server's side of `ff bench net`: echoes messages, and moves bulk out of its memory or from a
// file, as a storage server would: what the disk gives lands in the client's memory where that can
// be reached, else in a buffer that is pushed.
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

// The largest bulk of one call.
constexpr uint64_t kBulkMax = 4 * kMiB;
// A file of random bytes for reads of whole blocks of the asked size.
constexpr uint64_t kFileBytes = kGiB;

// A nameless file in `dir`, kFileBytes of random bytes, with direct I/O.
Result<std::unique_ptr<io::File>> make_bench_file(io::Disk& disk, const std::string& dir);

class NetService {
 public:
  // Bytes of memory it wants: sources, and buffers for what comes.
  static constexpr size_t kSources = 8;
  static constexpr size_t kBuffers = 64;
  static constexpr uint64_t kMemoryBytes = (kSources + kBuffers) * kBulkMax;

  // All outlive it. Queue and file may be null: then there is nothing to read from disk.
  NetService(rpc::Router& router, Loop& loop, ByteSpan memory, io::AsyncQueue* queue,
             io::File* file);

 private:
  // One of the buffers, as long as it lives.
  class Buffer;

  Task<Result<wire::EchoReply>> echo(rpc::ServerCall& call, wire::EchoRequest request);
  Task<Result<wire::ReadReply>> read(rpc::ServerCall& call, wire::ReadRequest request);
  Task<Result<wire::WriteReply>> write(rpc::ServerCall& call, wire::WriteRequest request);
  Task<Result<void>> read_disk(rpc::ServerCall& call, net::Slice sink);
  // CRC32C of the first bytes of a source, computed once.
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
