// probe.cc: the three methods of the probe service.
#include "platform/rpc/probe.h"

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/rpc/error_wire.h"
#include "platform/simd/crc32c.h"

namespace ff::rpc {

namespace {

constexpr auth::Roles kProbes = {auth::Role::admin, auth::Role::meta, auth::Role::rank};

Result<void> check_size(uint64_t size) {
  if (size <= ProbeService::kBytesMax) return {};
  return fail(Errc::usage, "{} bytes at once (the limit is {})", size, ProbeService::kBytesMax);
}

}  // namespace

ProbeService::ProbeService(Router& router) {
  add_method(router, kPing, *this, &ProbeService::ping, kProbes);
  add_method(router, kProbeRead, *this, &ProbeService::read, kProbes);
  add_method(router, kProbeWrite, *this, &ProbeService::write, kProbes);
}

std::vector<std::byte> ProbeService::pattern(uint64_t seed, size_t size) {
  SeededRng rng(seed);
  std::vector<std::byte> bytes(align_up(size, sizeof(uint64_t)));
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    store_le(bytes.data() + at, rng.next());
  }
  bytes.resize(size);
  return bytes;
}

Task<Result<wire::PingReply>> ProbeService::ping(ServerCall& call, wire::PingRequest request) {
  if (request.wait_ms() > 0) {
    const int64_t wait_ns = request.wait_ms() * kMillisecond;
    FF_CO_TRY(co_await sleep_for(call.loop(), wait_ns));
  }
  pings_++;
  wire::PingReply reply;
  if (request.answer_bytes() > net::kMessageMax) {
    co_return fail(Errc::usage, "an answer of {} bytes", request.answer_bytes());
  }
  reply.set_data(std::string(request.answer_bytes(), 'x'));
  co_return reply;
}

Task<Result<wire::ReadReply>> ProbeService::read(ServerCall& call, wire::ReadRequest request) {
  FF_CO_TRY(check_size(request.size()));
  const auto bytes = pattern(request.seed(), request.size());
  FF_CO_TRY(co_await call.push(from_wire(request.sink()), 0, bytes));
  wire::ReadReply reply;
  reply.set_crc(simd::crc32c(bytes));
  co_return reply;
}

Task<Result<wire::WriteReply>> ProbeService::write(ServerCall& call, wire::WriteRequest request) {
  FF_CO_TRY(check_size(request.size()));
  std::vector<std::byte> bytes(request.size());
  FF_CO_TRY(co_await call.pull(from_wire(request.source()), 0, bytes));
  wire::WriteReply reply;
  reply.set_crc(simd::crc32c(bytes));
  co_return reply;
}

}  // namespace ff::rpc
