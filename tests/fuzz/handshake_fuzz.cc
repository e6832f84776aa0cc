// Peers that say anything, to a server and to a client: in the handshake and after it. No crash, no
// hang, no connection that stays.
#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/frame_input.h"
#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/rpc/channel.h"
#include "platform/rpc/handshake.h"
#include "platform/rpc/probe.h"
#include "platform/rpc/server_connection.h"
#include "platform/sim/sim_world.h"

namespace {

using namespace ff;
using namespace ff::rpc;

struct Target {
  explicit Target(std::string input)
      : connection(std::make_unique<net::Connection>(
            loop, std::make_unique<net::InputStream>(loop, std::move(input)), nullptr)) {}

  static Identity identity() { return {.name = "target", .software = "ff fuzz"}; }

  sim::SimWorld world;
  Loop& loop = world.loop();
  Metrics metrics;
  Router router;
  ProbeService probe{router};
  std::unique_ptr<net::Connection> connection;
};

Task<void> serve(Target& target) {
  ServerTerms terms{.calls_max = 16};
  auto peer = co_await server_handshake(*target.connection, Target::identity(), std::move(terms));
  if (!peer) co_return;
  ServerConnectionLimits limits{.calls_max = 16, .message_bytes_max = 1 * kMiB};
  ServerMethods methods(target.router, target.metrics);
  ServerConnection connection(std::move(target.connection), std::move(*peer), methods, limits);
  co_await connection.run();
}

Task<void> call(Target& target) {
  auto peer = co_await client_handshake(*target.connection, Target::identity());
  if (!peer) co_return;
  GrantScheduler grants;
  ClientCallMetrics calls(target.metrics);
  Channel channel(std::move(target.connection), std::move(*peer), grants, calls);
  const int64_t deadline_ns = target.loop.now_ns() + 30 * kSecond;
  CallSpec spec{.method = 1, .name = "probe.ping", .deadline_ns = deadline_ns};
  (void)co_await channel.call(spec, "request");
  co_await channel.close();
}

std::string hello(const wire::Handshake& step) {
  return net::frame_seed({.kind = net::FrameKind::hello}, step.SerializeAsString());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  log_setup({.level = LogLevel::error});
  const std::string input = net::repaired(std::string(reinterpret_cast<const char*>(data), size));
  Target server(input);
  run_task(server.loop, serve(server));
  Target client(input);
  run_task(client.loop, call(client));
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  wire::Handshake client_hello;
  client_hello.mutable_client_hello()->set_wire_version(net::kProtocolVersion);
  client_hello.mutable_client_hello()->set_software("ff 0.1.0");
  client_hello.mutable_client_hello()->set_name("seed");
  client_hello.mutable_client_hello()->set_caller("0123456789abcdef");
  wire::Handshake server_hello;
  server_hello.mutable_server_hello()->set_wire_version(net::kProtocolVersion);
  server_hello.mutable_server_hello()->set_name("seed");
  server_hello.mutable_server_hello()->set_calls_max(4);
  wire::Handshake refusal;
  refusal.mutable_refusal()->mutable_error()->set_code("refused");
  refusal.mutable_refusal()->mutable_error()->set_message("go \x1b[2J away");
  wire::PingRequest ping;
  ping.set_answer_bytes(100);
  wire::ReadRequest read;
  read.mutable_sink()->set_token(1);
  read.mutable_sink()->set_size(100'000);
  read.set_size(100'000);
  wire::Error error;
  error.set_code("busy");

  using net::FrameKind;
  const std::string begin = hello(client_hello);
  const std::string calls =
      net::frame_seed({.kind = FrameKind::call, .call = 1, .method = 1, .deadline_ms = 500},
                      ping.SerializeAsString()) +
      net::frame_seed({.kind = FrameKind::call, .call = 2, .method = 2}, read.SerializeAsString()) +
      net::frame_seed({.kind = FrameKind::grant, .call = 2}, "") +
      net::frame_seed({.kind = FrameKind::cancel, .call = 1}, "") +
      net::frame_seed({.kind = FrameKind::ping}, "");
  const std::string welcomed = hello(server_hello);
  const std::string answers =
      net::frame_seed({.kind = FrameKind::request_to_send, .call = 1}, "") +
      net::frame_seed({.kind = FrameKind::reply, .flags = kFlagError, .call = 1},
                      error.SerializeAsString()) +
      net::frame_seed({.kind = FrameKind::goaway}, "");
  return {"\x01" + begin,    "\x01" + begin + calls,      "\x01" + hello(refusal),
          "\x01" + welcomed, "\x01" + welcomed + answers, "\x01" + hello(server_hello) + calls};
}
