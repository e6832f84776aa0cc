// two_ends.cc: one conversation. The visitor says hello with buffers of a source and a sink of its;
// the server pulls the one, pushes the other and tells the CRC32C of both; then the other way
// round.
#include "rdma/two_ends.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/base/system_loop.h"
#include "platform/net/socket.h"
#include "platform/net/system_transport.h"
#include "platform/simd/crc32c.h"

namespace ff::net {

namespace {

constexpr size_t kBytes = 5 * kMiB + 123;
constexpr uint64_t kFrames = 2000;
constexpr uint64_t kLastFrames = 60;  // right before the visitor closes: many packets on their way

std::vector<std::byte> random_bytes(uint64_t seed) {
  std::vector<std::byte> bytes(kBytes);
  SeededRng rng(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.next());
  return bytes;
}

std::string crc_of(ByteView bytes) { return fmt::format("{:08x}", simd::crc32c(bytes)); }

std::string text_of(const RemoteBuffer& buffer) {
  std::string text(28, '\0');
  auto* const at = reinterpret_cast<std::byte*>(text.data());
  store_le(at, buffer.token);
  store_le(at + 8, buffer.size);
  store_le(at + 16, buffer.address);
  store_le(at + 24, buffer.key);
  return text;
}

RemoteBuffer slice_of(std::string_view text) {
  FF_CHECK(text.size() == 28);
  const std::byte* const at = as_bytes(text).data();
  return {load_le<uint64_t>(at), load_le<uint64_t>(at + 8), load_le<uint64_t>(at + 16),
          load_le<uint32_t>(at + 24)};
}

Result<void> expect(std::string_view what, std::string_view found, std::string_view wanted) {
  if (found == wanted) {
    fmt::print("ok: {}\n", what);
    return {};
  }
  return fail(Errc::corrupt, "{}: {} instead of {}", what, found, wanted);
}

// Gives the peer a source and a sink, and checks what it did with them.
Task<Result<void>> lend(Connection& connection, uint64_t seed) {
  const std::vector<std::byte> from = random_bytes(seed);
  std::vector<std::byte> into(kBytes);
  FF_CO_TRY(const auto source, connection.expose_source(from));
  FF_CO_TRY(const auto sink, connection.expose_sink(into));
  const FrameHeader call = {.kind = FrameKind::call, .call = 1};
  connection.send(call, text_of(source.buffer()) + text_of(sink.buffer()));
  FF_CO_TRY(const Frame pulled, co_await connection.receive());
  FF_CO_TRY(expect("CRC of what the peer pulled", pulled.message, crc_of(from)));
  FF_CO_TRY(const Frame pushed, co_await connection.receive());
  co_return expect("CRC of what the peer pushed", crc_of(into), pushed.message);
}

// The other end of lend().
Task<Result<void>> borrow(Connection& connection, uint64_t seed) {
  FF_CO_TRY(const Frame call, co_await connection.receive());
  const RemoteBuffer source = slice_of(std::string_view(call.message).substr(0, 28));
  const RemoteBuffer sink = slice_of(std::string_view(call.message).substr(28));
  if (source.key == 0 || sink.key == 0) co_return fail(Errc::failed, "buffers without keys");
  std::vector<std::byte> into(kBytes);
  const int64_t start = connection.loop().now_ns();
  FF_CO_TRY(co_await connection.pull(source, 0, into));
  const int64_t middle = connection.loop().now_ns();
  connection.send({.kind = FrameKind::reply, .call = 1}, crc_of(into));
  const std::vector<std::byte> from = random_bytes(seed);
  const int64_t restart = connection.loop().now_ns();
  FF_CO_TRY(co_await connection.push(sink, 0, from));
  const int64_t end = connection.loop().now_ns();
  connection.send({.kind = FrameKind::reply, .call = 2}, crc_of(from));
  fmt::print("pull {} MiB in {} ms, push in {} ms\n", kBytes / kMiB, (middle - start) / 1'000'000,
             (end - restart) / 1'000'000);
  co_return Result<void>();
}

Task<Result<void>> echo_frames(Connection& connection) {
  for (uint64_t i = 0; i < kFrames; i++) {
    FF_CO_TRY(const Frame frame, co_await connection.receive());
    connection.send({.kind = FrameKind::reply, .call = frame.head.call}, frame.message);
  }
  co_return Result<void>();
}

Task<Result<void>> exchange_frames(Connection& connection) {
  for (uint64_t i = 0; i < kFrames; i++) {
    connection.send({.kind = FrameKind::call, .call = i}, std::string(i % 700, 'f'));
  }
  for (uint64_t i = 0; i < kFrames; i++) {
    FF_CO_TRY(const Frame frame, co_await connection.receive());
    if (frame.head.call != i || frame.message != std::string(i % 700, 'f')) {
      co_return fail(Errc::corrupt, "frame {} came back as {}", i, frame.head.call);
    }
  }
  fmt::print("ok: {} frames and back\n", kFrames);
  co_return Result<void>();
}

TransportOptions options() {
  TransportOptions options;
  options.mode = NetMode::verbs;
  const auth::Entity self{.role = auth::Role::rank, .name = "test"};
  options.keyring = auth::Keyring::from_root(auth::Key{}, self);
  return options;
}

Task<Result<void>> serve_on(SystemTransport& transport, Loop& loop, uint16_t port) {
  const Address any = {"0.0.0.0", port, ""};
  FF_CO_TRY(const auto listener, transport.listen(loop, any));
  FF_CO_TRY(auto arrival, co_await listener->accept());
  FF_CO_TRY(const auto connection, co_await arrival->open(loop));
  FF_CO_TRY(co_await echo_frames(*connection));
  FF_CO_TRY(co_await borrow(*connection, 1));
  FF_CO_TRY(co_await lend(*connection, 2));
  for (uint64_t i = 0; i < kLastFrames; i++) FF_CO_TRY(co_await connection->receive());
  const auto end = co_await connection->receive();
  fmt::print("the end: {}\n", end.ok() ? "a frame" : end.error().message);
  if (end.ok()) co_return fail(Errc::failed, "a frame after the end");
  co_return Result<void>();
}

// Tried again: the other machine may start later.
Task<Result<std::unique_ptr<Connection>>> connect_patiently(SystemTransport& transport, Loop& loop,
                                                            Address address) {
  const int64_t deadline = loop.now_ns() + 30 * kSecond;
  for (;;) {
    auth::Service service{auth::Role::rank, {}};
    auto connection = co_await transport.connect(loop, address, std::move(service));
    if (connection || loop.now_ns() > deadline) co_return connection;
    FF_CO_TRY(co_await sleep_for(loop, kSecond / 10));
  }
}

Task<Result<void>> visit_on(SystemTransport& transport, Loop& loop, Address address) {
  {
    FF_CO_TRY(const auto connection, co_await connect_patiently(transport, loop, address));
    FF_CO_TRY(co_await exchange_frames(*connection));
    FF_CO_TRY(co_await lend(*connection, 3));
    FF_CO_TRY(co_await borrow(*connection, 4));
    for (uint64_t i = 0; i < kLastFrames; i++) {
      connection->send({.kind = FrameKind::call, .call = i}, std::string(4000, 'l'));
    }
    FF_CO_TRY(co_await connection->wait_flushed());
  }
  co_await transport.drain(loop);
  co_return Result<void>();
}

Task<Result<void>> hang_on(VerbsDevice& device, uint16_t port) {
  const Address here = {"127.0.0.1", port, ""};
  FF_CO_TRY(auto socket, co_await connect_socket(device.loop(), here));
  FF_CO_TRY(auto stream, SocketStream::make(device.loop(), std::move(socket)));
  std::string peer = "server";
  FF_CO_TRY(const auto connection,
            co_await connect_verbs(device, std::move(stream), std::move(peer)));
  connection->send({.kind = FrameKind::call, .call = 1});
  FF_CO_TRY(co_await connection->receive());
  co_return Result<void>();
}

}  // namespace

Result<void> serve_one(uint16_t port) {
  SystemClock clock;
  SystemLoop loop(clock);
  SystemTransport transport(options());
  return run_task(loop, serve_on(transport, loop, port));
}

Result<void> visit(const std::string& host, uint16_t port) {
  SystemClock clock;
  SystemLoop loop(clock);
  SystemTransport transport(options());
  return run_task(loop, visit_on(transport, loop, {host, port, ""}));
}

Result<void> hang(uint16_t port) {
  SystemClock clock;
  SystemLoop loop(clock);
  FF_TRY(const auto device, VerbsDevice::open(loop, {}));
  return run_task(loop, hang_on(*device, port));
}

}  // namespace ff::net
