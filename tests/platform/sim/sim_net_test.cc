// The conformance suite over simulated connections, and what a simulated network does to them.
#include "platform/sim/sim_net.h"
#include "platform/base/clock.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "platform/net/connection_conformance.h"

namespace ff::sim {
namespace {

using net::Connection;
using net::Frame;
using net::FrameKind;

// Two nodes, a and b, with one connection between them.
class SimPair final : public net::TestedPair {
 public:
  static constexpr size_t kShared = 64 * kMiB;
  // `shared`: the server reaches the client's memory itself.
  explicit SimPair(uint64_t seed, bool shared = false) : net(world, seed) {
    if (shared) shared_ = net.share_memory("a", "b", kShared);
    auto listener = *b_side->listen(b_loop, {"", 7000, ""});
    run_task(world.loop(), connect(*listener));
  }
  ~SimPair() override {
    client.reset();
    server.reset();
  }
  Loop& loop() override { return world.loop(); }
  ByteSpan memory(size_t size) override {
    if (size <= shared_.size()) {
      const ByteSpan part = shared_.first(size);
      shared_ = shared_.subspan(size);
      return part;
    }
    return memory_.emplace_back(std::vector<std::byte>(size));
  }

  SimWorld world;
  SimNet net;
  SimLoop a_loop{world};
  SimLoop b_loop{world};

 private:
  Task<void> connect(net::Listener& listener) {
    auto made = co_await a_side->connect(a_loop, listener.address(), auth::Service());
    FF_CHECK(made.ok());
    client = std::move(*made);
    auto arrival = co_await listener.accept();
    FF_CHECK(arrival.ok());
    server = *co_await (*arrival)->open(b_loop);
  }

  std::unique_ptr<net::Transport> a_side = net.transport("a");
  std::unique_ptr<net::Transport> b_side = net.transport("b");
  std::deque<std::vector<std::byte>> memory_;
  ByteSpan shared_;
};

}  // namespace
}  // namespace ff::sim

namespace ff::net {
namespace {

std::string maker_name(const testing::TestParamInfo<PairMaker>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Sim, ConnectionConformance,
    testing::Values(PairMaker{"seed1", [] { return std::make_unique<sim::SimPair>(1); }},
                    PairMaker{"seed2", [] { return std::make_unique<sim::SimPair>(2); }},
                    PairMaker{"shared", [] { return std::make_unique<sim::SimPair>(3, true); }}),
    maker_name);

}  // namespace
}  // namespace ff::net

namespace ff::sim {
namespace {

// What arrives at `at`, and how it ended.
struct Heard {
  std::vector<uint64_t> calls;
  std::vector<int64_t> times;
  std::string end;
};

Task<void> listen_to(SimWorld& world, Connection& at, Heard& heard) {
  for (;;) {
    const auto frame = co_await at.receive();
    if (!frame) {
      heard.end = frame.error().message;
      co_return;
    }
    heard.calls.push_back(frame->head.call);
    heard.times.push_back(world.now_ns());
  }
}

TEST(SimNetTest, AOneWayPartitionHoldsOneDirection) {
  SimPair pair(3);
  Gate gate(pair.world.loop());
  Heard at_a;
  Heard at_b;
  gate.spawn(listen_to(pair.world, *pair.client, at_a));
  gate.spawn(listen_to(pair.world, *pair.server, at_b));
  pair.net.block("a", "b");
  pair.client->send({.kind = FrameKind::ping, .call = 1});
  pair.server->send({.kind = FrameKind::ping, .call = 2});
  pair.world.run_for(10 * kSecond);
  EXPECT_EQ(at_a.calls.size(), 1u);
  EXPECT_EQ(at_b.calls.size(), 0u);
  pair.net.unblock("a", "b");
  pair.world.run_for(kSecond);
  EXPECT_EQ(at_b.calls.size(), 1u);
}

TEST(SimNetTest, ASlowLinkIsSlow) {
  SimPair pair(3);
  pair.net.set_link("a", "b", {.bytes_per_second = 1000});
  Gate gate(pair.world.loop());
  Heard at_b;
  gate.spawn(listen_to(pair.world, *pair.server, at_b));
  const int64_t began = pair.world.now_ns();
  pair.client->send({.kind = FrameKind::ping, .call = 1}, std::string(5000, 'x'));
  pair.world.run_for(100 * kSecond);
  ASSERT_EQ(at_b.times.size(), 1u);
  EXPECT_GE(at_b.times[0] - began, 5 * kSecond);
  EXPECT_LE(at_b.times[0] - began, 6 * kSecond);
}

TEST(SimNetTest, AStoppedProcessResetsItsPeers) {
  SimPair pair(4);
  Gate gate(pair.world.loop());
  Heard at_b;
  gate.spawn(listen_to(pair.world, *pair.server, at_b));
  pair.net.stop_process("a");
  pair.client.reset();
  pair.world.run_for(kSecond);
  EXPECT_NE(at_b.end.find("reset"), std::string::npos) << at_b.end;
}

TEST(SimNetTest, AStoppedMachineIsSilentUntilItIsBack) {
  SimPair pair(5);
  Gate gate(pair.world.loop());
  Heard at_b;
  gate.spawn(listen_to(pair.world, *pair.server, at_b));
  pair.net.stop_machine("a");
  pair.client.reset();
  pair.server->send({.kind = FrameKind::ping, .call = 1});
  pair.world.run_for(100 * kSecond);
  EXPECT_EQ(at_b.end, "");
  pair.net.start_machine("a");
  pair.world.run_for(kSecond);
  EXPECT_NE(at_b.end.find("reset"), std::string::npos) << at_b.end;
}

Task<void> try_connect(net::Transport& from, Loop& loop, std::string& outcome) {
  net::Address nobody{"b", 1, ""};
  const auto made = co_await from.connect(loop, std::move(nobody), auth::Service());
  outcome = made ? "connected" : made.error().message;
}

TEST(SimNetTest, ConnectingNeedsAListenerAndAWay) {
  SimPair pair(6);
  const auto transport = pair.net.transport("a");
  std::string outcome;
  Gate gate(pair.a_loop);
  gate.spawn(try_connect(*transport, pair.a_loop, outcome));
  pair.world.run_for(kSecond);
  EXPECT_NE(outcome.find("refused"), std::string::npos);
  outcome.clear();
  pair.net.block("b", "a");
  gate.spawn(try_connect(*transport, pair.a_loop, outcome));
  pair.world.run_for(100 * kSecond);
  EXPECT_EQ(outcome, "");
  pair.net.unblock("b", "a");
  pair.world.run_for(kSecond);
  EXPECT_NE(outcome.find("refused"), std::string::npos);
}

uint64_t trace_of(uint64_t seed) {
  SimPair pair(seed);
  Gate gate(pair.world.loop());
  Heard at_a;
  Heard at_b;
  gate.spawn(listen_to(pair.world, *pair.client, at_a));
  gate.spawn(listen_to(pair.world, *pair.server, at_b));
  for (uint64_t i = 0; i < 100; i++) {
    pair.client->send({.kind = FrameKind::ping, .call = i}, std::string(i * 100, 'x'));
    pair.server->send({.kind = FrameKind::ping, .call = i}, std::string(i * 10, 'y'));
    pair.world.run_for(1000);
  }
  pair.net.break_connections(1);
  pair.world.run_for(kSecond);
  EXPECT_NE(at_a.end, "");
  EXPECT_NE(at_b.end, "");
  return pair.net.trace();
}

TEST(SimNetTest, EqualSeedsGiveEqualTraces) {
  EXPECT_EQ(trace_of(7), trace_of(7));
  EXPECT_NE(trace_of(7), trace_of(8));
}

}  // namespace
}  // namespace ff::sim
