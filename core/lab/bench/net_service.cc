// net_service.cc: the three methods, and the file for disk reads.
#include "lab/bench/net_service.h"

#include "platform/io/alignment.h"
#include "platform/io/buffers.h"
#include "platform/rpc/error_wire.h"
#include "platform/simd/crc32c.h"

namespace ff::bench {

namespace {

// Both ends of the benchmark hold one key, as ranks do.
constexpr auth::Roles kRanks = {auth::Role::rank};

void fill_random(ByteSpan bytes, Rng& rng) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    store_le(bytes.data() + at, rng.next());
  }
}

Result<void> check_size(uint64_t size) {
  if (size > 0 && size <= kBulkMax) return {};
  return fail(Errc::usage, "{} bytes at once (the limit is {})", size, kBulkMax);
}

}  // namespace

Result<std::unique_ptr<io::File>> make_bench_file(io::Disk& disk, const std::string& dir) {
  SeededRng rng(system_seed());
  const std::string path = fmt::format("{}/ff-bench-{}", dir, rng.hex_id());
  FF_TRY(auto file, disk.open(path, {.access = io::AccessMode::read_write,
                                     .create = true,
                                     .exclusive = true,
                                     .direct = true}));
  FF_TRY(disk.remove(path));
  FF_TRY(auto buffers, io::Buffers::make(1, kBulkMax));
  fill_random(buffers.all(), rng);
  for (uint64_t at = 0; at < kFileBytes; at += buffers.all().size()) {
    store_le(buffers.all().data(), at);
    FF_TRY(file->write_at(buffers.all(), at));
  }
  FF_TRY(file->sync());
  return file;
}

class NetService::Buffer {
 public:
  Buffer(NetService& service, Semaphore::Permit hold)
      : service_(service), hold_(std::move(hold)), index_(service.free_.back()) {
    service.free_.pop_back();
  }
  ~Buffer() { service_.free_.push_back(index_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  ByteSpan first(uint64_t size) const {
    return service_.memory_.subspan((kSources + index_) * kBulkMax, size);
  }

 private:
  NetService& service_;
  Semaphore::Permit hold_;
  size_t index_;
};

NetService::NetService(rpc::Router& router, Loop& loop, ByteSpan memory, io::AsyncQueue* queue,
                       io::File* file)
    : memory_(memory), queue_(queue), file_(file), rng_(system_seed()), buffers_(loop, kBuffers) {
  FF_CHECK(memory.size() >= kMemoryBytes);
  fill_random(memory_.first(kSources * kBulkMax), rng_);
  for (size_t i = kBuffers; i > 0; i--) free_.push_back(i - 1);
  if (queue_ != nullptr) {
    const ByteSpan buffers = memory_.subspan(kSources * kBulkMax, kBuffers * kBulkMax);
    queue_->register_buffers({&buffers, 1});
  }
  rpc::add_method(router, kEcho, *this, &NetService::echo, kRanks);
  rpc::add_method(router, kRead, *this, &NetService::read, kRanks);
  rpc::add_method(router, kWrite, *this, &NetService::write, kRanks);
}

Task<Result<wire::EchoReply>> NetService::echo(rpc::ServerCall&, wire::EchoRequest request) {
  wire::EchoReply reply;
  reply.set_data(std::move(*request.mutable_data()));
  co_return reply;
}

Task<Result<wire::ReadReply>> NetService::read(rpc::ServerCall& call, wire::ReadRequest request) {
  const net::RemoteBuffer sink = rpc::from_wire(request.sink());
  FF_CO_TRY(check_size(sink.size));
  wire::ReadReply reply;
  if (request.from_disk()) {
    FF_CO_TRY(co_await read_disk(call, sink));
    co_return reply;
  }
  const size_t source = next_source_++ % kSources;
  const ByteView bytes = memory_.subspan(source * kBulkMax, sink.size);
  FF_CO_TRY(co_await call.push(sink, 0, bytes));
  reply.set_crc(crc_of(source, sink.size));
  co_return reply;
}

uint32_t NetService::crc_of(size_t source, uint64_t size) {
  const auto [place, is_new] = crcs_.try_emplace({source, size});
  if (is_new) place->second = simd::crc32c(memory_.subspan(source * kBulkMax, size));
  return place->second;
}

Task<Result<void>> NetService::read_disk(rpc::ServerCall& call, net::RemoteBuffer sink) {
  if (file_ == nullptr) {
    co_return fail(Errc::unsupported, "the server was started without --disk");
  }
  const uint64_t offset = rng_.below(kFileBytes / sink.size) * sink.size;
  const auto reached = call.mapped_memory(sink);
  if (reached && io::direct_aligned(reached->bytes(), 0)) {
    FF_CO_TRY(co_await queue_->read(*file_, reached->bytes(), offset));
    co_return Result<void>();
  }
  FF_CO_TRY(auto place, co_await buffers_.acquire(1));
  const Buffer buffer(*this, std::move(place));
  FF_CO_TRY(co_await queue_->read(*file_, buffer.first(sink.size), offset));
  co_return co_await call.push(sink, 0, buffer.first(sink.size));
}

Task<Result<wire::WriteReply>> NetService::write(rpc::ServerCall& call,
                                                 wire::WriteRequest request) {
  const net::RemoteBuffer source = rpc::from_wire(request.source());
  FF_CO_TRY(check_size(source.size));
  FF_CO_TRY(auto place, co_await buffers_.acquire(1));
  const Buffer buffer(*this, std::move(place));
  FF_CO_TRY(co_await call.pull(source, 0, buffer.first(source.size)));
  co_return wire::WriteReply();
}

}  // namespace ff::bench
