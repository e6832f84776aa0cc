// A server and clients on a simulated network, for the tests of rpc/.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "platform/auth/test_entities.h"
#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/rpc/client.h"
#include "platform/rpc/error_wire.h"
#include "platform/rpc/probe.h"
#include "platform/rpc/server.h"
#include "platform/sim/sim_net.h"

namespace ff::rpc {

// One server "s" on port 7000 with the probe service; nodes of clients are made by name.
class RpcWorld {
 public:
  explicit RpcWorld(uint64_t seed = 1, ServerLimits limits = {})
      : rng(seed), net(world, seed), limits_(limits) {
    start_server();
  }
  ~RpcWorld() { stop_server(); }

  void start_server() {
    server.emplace(loop, *transport, router, server_metrics, identity("server"), limits_);
    auto at = server->listen({"s", 7000, ""});
    EXPECT_TRUE(at.ok()) << (at ? "" : at.error().message);
  }
  void stop_server(int64_t drain_ns = 0) {
    if (!server) return;
    run_task(loop, server->close(drain_ns));
    server.reset();
  }
  static Identity identity(std::string name) {
    return {.name = std::move(name), .software = "ff test"};
  }

  sim::SimWorld world;
  SeededRng rng;
  sim::SimNet net;
  sim::SimLoop& loop = world.loop();
  Metrics server_metrics;
  Metrics client_metrics;
  Router router;
  ProbeService probe{router};
  std::unique_ptr<net::Transport> transport = net.transport("s");
  std::optional<Server> server;

 private:
  const ServerLimits limits_;
};

// A client on a node of its own.
class TestClient {
 public:
  TestClient(RpcWorld& of, const std::string& node,
             size_t senders_max = GrantScheduler::kDefaultMax)
      : TestClient(of, node, auth::admin_entity(node), senders_max) {}
  // `self`: empty without a key.
  TestClient(RpcWorld& of, const std::string& node, std::optional<auth::Entity> self,
             size_t senders_max = GrantScheduler::kDefaultMax)
      : world(of),
        grants(senders_max),
        transport(of.net.transport(node, std::move(self))),
        context{of.loop, *transport, grants, of.client_metrics, of.rng, RpcWorld::identity(node)},
        client(context, {"s", 7000, ""}, auth::Service{auth::Role::rank, {}}) {}
  ~TestClient() { run_task(world.loop, client.close()); }

  int64_t in(int64_t ns) { return world.loop.now_ns() + ns; }
  Result<wire::PingReply> ping(wire::PingRequest request = {}, int64_t within_ns = 10 * kSecond) {
    return run_task(world.loop, call_method(client, kPing, std::move(request), in(within_ns)));
  }

  RpcWorld& world;
  GrantScheduler grants;
  std::unique_ptr<net::Transport> transport;
  ClientContext context;
  Client client;
};

// The value of one metric in the registry's text: "ff_rpc_connections", or a name with labels in
// braces. 0 if it does not exist.
inline uint64_t series(const Metrics& metrics, std::string_view name) {
  const std::string text = "\n" + metrics.text();
  const size_t at = text.find(fmt::format("\n{} ", name));
  if (at == std::string::npos) return 0;
  return std::stoull(text.substr(at + name.size() + 2));
}

// Number of calls of a method that ended with `code`, counted by the server or the client.
inline uint64_t answered_calls(const Metrics& metrics, std::string_view method,
                               std::string_view code) {
  return series(
      metrics, fmt::format("ff_rpc_server_calls_total{{method=\"{}\",code=\"{}\"}}", method, code));
}
inline uint64_t made_calls(const Metrics& metrics, std::string_view method, std::string_view code) {
  return series(
      metrics, fmt::format("ff_rpc_client_calls_total{{method=\"{}\",code=\"{}\"}}", method, code));
}

template <class T>
Task<void> store(Task<Result<T>> task, std::optional<Result<T>>& result) {
  result = co_await std::move(task);
}

// Calls probe.read with `seed` into `into`, and probe.write with `from`.
inline Task<Result<wire::ReadReply>> probe_read(Client& client, ByteSpan into, uint64_t seed,
                                                int64_t deadline_ns) {
  FF_CO_TRY(auto channel, co_await client.channel(deadline_ns));
  BulkCall call(channel);
  FF_CO_TRY(const net::RemoteBuffer buffer, call.sink(into));
  wire::ReadRequest request;
  to_wire(buffer, *request.mutable_sink());
  request.set_size(into.size());
  request.set_seed(seed);
  co_return co_await call.run(kProbeRead, std::move(request), deadline_ns);
}

inline Task<Result<wire::WriteReply>> probe_write(Client& client, ByteView from,
                                                  int64_t deadline_ns) {
  FF_CO_TRY(auto channel, co_await client.channel(deadline_ns));
  BulkCall call(channel);
  FF_CO_TRY(const net::RemoteBuffer buffer, call.source(from));
  wire::WriteRequest request;
  to_wire(buffer, *request.mutable_source());
  request.set_size(from.size());
  co_return co_await call.run(kProbeWrite, std::move(request), deadline_ns);
}

// A ping that the server answers with a delay.
inline wire::PingRequest slow_ping(uint32_t wait_ms) {
  wire::PingRequest request;
  request.set_wait_ms(wait_ms);
  return request;
}

// A slow ping that is running on the server.
class SlowPing {
 public:
  SlowPing(TestClient& client, uint32_t wait_ms, int64_t deadline_ns = INT64_MAX)
      : loop_(client.world.loop), gate_(loop_) {
    EXPECT_TRUE(client.ping().ok());
    gate_.spawn(store(call_method(client.client, kPing, slow_ping(wait_ms), deadline_ns), reply));
    client.world.world.run_for(100 * kMillisecond);
    EXPECT_FALSE(reply.has_value());
  }
  void cancel(Error reason) { run_task(loop_, gate_.close(std::move(reason))); }

  std::optional<Result<wire::PingReply>> reply;  // once it has ended

 private:
  Loop& loop_;
  Gate gate_;
};

// A frame of the test's own over a connection of the test's own.
Task<Result<std::unique_ptr<net::Connection>>> inline raw_connection(RpcWorld& world,
                                                                     net::Transport& transport) {
  net::Address address{"s", 7000, ""};
  auth::Service service{auth::Role::rank, {}};
  co_return co_await transport.connect(world.loop, std::move(address), std::move(service));
}

}  // namespace ff::rpc
