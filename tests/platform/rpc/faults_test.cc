// Faulty peers over real sockets: each gets or causes an error with its code that names the other
// side; it is counted, and other connections are not affected.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/system_loop.h"
#include "platform/net/broken_frames.h"
#include "platform/net/socket_ends.h"
#include "platform/net/system_transport.h"
#include "rpc_world.h"

namespace ff::rpc {
namespace {

const net::Address kLoopback{"127.0.0.1", 0, ""};

// A server and its port on this machine, on a loop that runs only inside of run().
class TcpWorld {
 public:
  explicit TcpWorld(ServerLimits limits = {})
      : server(loop, transport, router, metrics, identity("server"), limits) {
    auto listening = server.listen(kLoopback);
    EXPECT_TRUE(listening.ok());
    if (listening) at = *listening;
  }
  ~TcpWorld() { run_task(loop, server.close(0)); }

  static Identity identity(std::string name) {
    return {.name = std::move(name), .software = "ff test"};
  }
  bool run_until(std::function<bool()> done) { return run_task(loop, poll(loop, std::move(done))); }
  uint64_t broken(net::FrameFault fault) const {
    return series(metrics,
                  fmt::format("ff_rpc_broken_total{{cause=\"{}\"}}", net::fault_name(fault)));
  }

  SystemClock clock;
  SystemLoop loop{clock};
  SeededRng rng{1};
  net::SystemTransport transport{{.mode = net::NetMode::tcp}};
  Metrics metrics;
  Router router;
  ProbeService probe{router};
  Server server;
  net::Address at;

 private:
  static Task<bool> poll(Loop& loop, std::function<bool()> done) {
    const int64_t deadline_ns = loop.now_ns() + 60 * kSecond;
    while (!done()) {
      if (loop.now_ns() > deadline_ns) co_return false;
      (void)co_await sleep_for(loop, kMillisecond);
    }
    co_return true;
  }
};

// A client with metrics of its own.
class TcpClient {
 public:
  TcpClient(TcpWorld& of, const std::string& name, const net::Address& to)
      : world(of),
        context{of.loop, of.transport, grants, metrics, of.rng, TcpWorld::identity(name)},
        client(context, to, auth::Service{auth::Role::rank, {}}) {}
  ~TcpClient() { run_task(world.loop, client.close()); }

  Result<wire::PingReply> ping(wire::PingRequest request = {}, int64_t within_ns = 60 * kSecond) {
    const int64_t deadline_ns = world.loop.now_ns() + within_ns;
    return run_task(world.loop, call_method(client, kPing, std::move(request), deadline_ns));
  }
  Channel* channel() {
    auto made = run_task(world.loop, client.channel(world.loop.now_ns() + 60 * kSecond));
    return made ? made->get() : nullptr;
  }

  TcpWorld& world;
  Metrics metrics;
  GrantScheduler grants;
  ClientContext context;
  Client client;
};

// One end of a connection on which the test can also write any bytes.
class RawEnd {
 public:
  RawEnd(Loop& loop, net::Socket socket) {
    auto stream = net::stream_of(loop, std::move(socket));
    stream_ = stream.get();
    connection_ = std::make_unique<net::Connection>(loop, std::move(stream), nullptr);
  }
  net::Connection& connection() { return *connection_; }
  // What comes before the first frame (net/preface.h).
  Task<Result<void>> offer() {
    const auto offered =
        net::encode_offer({static_cast<net::TransportKinds>(net::TransportKind::stream)});
    FF_CO_TRY(co_await net::write_all(*stream_, offered));
    std::array<std::byte, net::kChoiceBytes> choice;
    co_return co_await net::read_all(*stream_, choice);
  }
  Task<Result<void>> choose() {
    std::array<std::byte, net::kOfferBytes> offer;
    FF_CO_TRY(co_await net::read_all(*stream_, offer));
    FF_CO_TRY(net::parse_offer(offer));
    const auto choice = net::encode_choice({net::TransportKind::stream, {}});
    co_return co_await net::write_all(*stream_, choice);
  }
  Task<Result<void>> send(std::string bytes) {
    FF_CO_TRY(co_await connection_->wait_flushed());
    const std::array<ByteView, 1> views = {as_bytes(bytes)};
    FF_CO_TRY(const auto sent, stream_->try_write(views));
    FF_CHECK(sent == bytes.size());
    co_return {};
  }

 private:
  net::SocketStream* stream_ = nullptr;  // the connection's
  std::unique_ptr<net::Connection> connection_;
};

// Connects, shakes hands if it shall, sends the bytes; gives how the server ended the connection.
Task<Result<void>> bad_client(TcpWorld& world, bool shakes_hands, std::string bytes) {
  FF_CO_TRY(auto socket, co_await net::connect_socket(world.loop, world.at));
  RawEnd raw(world.loop, std::move(socket));
  FF_CO_TRY(co_await raw.offer());
  if (shakes_hands) {
    FF_CO_TRY(co_await client_handshake(raw.connection(), world.identity("bad client")));
  }
  FF_CO_TRY(co_await raw.send(std::move(bytes)));
  for (;;) FF_CO_TRY(co_await raw.connection().receive());
}

// Accepts one connection and answers its first frame after the handshake, or before it, so.
Task<Result<void>> bad_server(TcpWorld& world, net::SocketListener& listener, bool shakes_hands,
                              std::string bytes) {
  FF_CO_TRY(auto socket, co_await listener.accept());
  RawEnd raw(world.loop, std::move(socket));
  FF_CO_TRY(co_await raw.choose());
  if (shakes_hands) {
    ServerTerms terms{.calls_max = 8};
    FF_CO_TRY(co_await server_handshake(raw.connection(), world.identity("bad server"),
                                        std::move(terms)));
  }
  FF_CO_TRY(co_await raw.connection().receive());
  FF_CO_TRY(co_await raw.send(std::move(bytes)));
  for (;;) FF_CO_TRY(co_await raw.connection().receive());
}

// Broken frames, and good ones that a peer may not send.
std::vector<net::BrokenFrame> wrong_bytes(bool after_handshake) {
  std::vector<net::BrokenFrame> all = net::broken_frames();
  const std::string call = net::frame_bytes({.kind = net::FrameKind::call, .call = 1});
  const std::string hello = net::frame_bytes({.kind = net::FrameKind::hello}, "x");
  using net::FrameFault;
  if (after_handshake) {
    all.push_back({FrameFault::protocol, Errc::corrupt, hello, "a frame of kind 1 for a"});
    const std::string push = net::frame_bytes({.kind = net::FrameKind::push}, std::string(16, 'x'));
    all.push_back({FrameFault::protocol, Errc::corrupt, push, "memory that was never exposed"});
  } else {
    all.push_back({FrameFault::handshake, Errc::corrupt, call, "the handshake was left out"});
    all.push_back({FrameFault::handshake, Errc::corrupt, hello, "the handshake was left out"});
  }
  return all;
}

void expect_words(const std::string& text, const std::vector<std::string_view>& words) {
  for (const auto word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' is not in: " << text;
  }
}

TEST(FaultsTest, AServerNamesAndCountsWhatAClientSentAndServesOn) {
  for (const bool shaken : {true, false}) {
    for (const net::BrokenFrame& wrong : wrong_bytes(shaken)) {
      TcpWorld world;
      TcpClient good(world, "good", world.at);
      Channel* const channel = good.channel();
      ASSERT_NE(channel, nullptr);
      testing::internal::CaptureStderr();
      const auto end = run_task(world.loop, bad_client(world, shaken, wrong.bytes));
      const bool alone = world.run_until([&] { return world.server.connections() == 1; });
      const std::string log = testing::internal::GetCapturedStderr();
      ASSERT_TRUE(alone);
      EXPECT_EQ(end.error().code, Errc::unreachable);
      EXPECT_EQ(world.broken(wrong.fault), 1u) << wrong.words;
      expect_words(log, {shaken ? "connection closed" : "connection refused",
                         shaken ? "bad client at 127.0.0.1:" : "127.0.0.1:", wrong.words});
      if (shaken) expect_words(log, {fmt::format("cause={}", net::fault_name(wrong.fault))});
      const std::string refused =
          fmt::format("ff_rpc_refused_total{{code=\"{}\"}}", errc_name(wrong.code));
      EXPECT_EQ(series(world.metrics, refused), shaken ? 0u : 1u);
      EXPECT_TRUE(good.ping().ok());
      EXPECT_EQ(good.channel(), channel);
    }
  }
}

TEST(FaultsTest, AClientNamesAndCountsWhatAServerSent) {
  for (const bool shaken : {true, false}) {
    for (const net::BrokenFrame& wrong : wrong_bytes(shaken)) {
      TcpWorld world;
      auto listener = net::SocketListener::listen(world.loop, kLoopback);
      ASSERT_TRUE(listener.ok());
      TcpClient good(world, "good", world.at);
      TcpClient victim(world, "victim", (*listener)->address());
      Channel* const channel = good.channel();
      ASSERT_NE(channel, nullptr);
      Gate gate(world.loop);
      std::optional<Result<void>> end;
      gate.spawn(store(bad_server(world, **listener, shaken, wrong.bytes), end));
      const auto reply = victim.ping();
      ASSERT_FALSE(reply.ok()) << wrong.words;
      // Whether a call was done that had been sent nobody knows.
      EXPECT_EQ(reply.error().code, shaken ? Errc::unreachable : wrong.code) << wrong.words;
      expect_words(reply.error().message, {wrong.words, "127.0.0.1:"});
      if (shaken) expect_words(reply.error().message, {"probe.ping on bad server at"});
      const std::string broken =
          fmt::format("ff_rpc_broken_total{{cause=\"{}\"}}", net::fault_name(wrong.fault));
      EXPECT_EQ(series(victim.metrics, broken), 1u) << wrong.words;
      ASSERT_TRUE(world.run_until([&] { return end.has_value(); }));
      EXPECT_TRUE(good.ping().ok());
      EXPECT_EQ(good.channel(), channel);
    }
  }
}

// Accepts a connection that begins without a shard word, and chooses this shard for the client.
Task<Result<void>> choose_for_client(TcpWorld& world, net::SocketListener& listener,
                                     ShardChoice choice) {
  FF_CO_TRY(auto socket, co_await listener.accept());
  RawEnd raw(world.loop, std::move(socket));
  FF_CO_TRY(co_await raw.choose());
  ServerTerms terms{.calls_max = 8};
  terms.choose_shard = [choice] { return choice; };
  FF_CO_TRY(
      co_await server_handshake(raw.connection(), world.identity("server"), std::move(terms)));
  const auto ended = co_await raw.connection().receive();
  EXPECT_FALSE(ended.ok());
  co_return Result<void>();
}

// Accepts a connection and closes it, as a server of an older version does, which takes the shard
// word for a broken offer.
Task<Result<void>> refuse_second_shard(TcpWorld& world, net::SocketListener& listener) {
  FF_CO_TRY(auto socket, co_await listener.accept());
  const auto stream = net::stream_of(world.loop, std::move(socket));
  std::array<std::byte, net::kShardWordBytes> begin;
  FF_CO_TRY(co_await net::read_all(*stream, begin));
  EXPECT_EQ(net::parse_shard_word(begin), 1u);
  co_return Result<void>();
}

Task<Result<void>> old_and_new_server(TcpWorld& world, net::SocketListener& listener) {
  for (const uint32_t shard : {1, 0}) {
    const ShardChoice choice{.count = 2, .shard = shard};
    FF_CO_TRY(co_await choose_for_client(world, listener, choice));
    FF_CO_TRY(co_await refuse_second_shard(world, listener));
  }
  co_return Result<void>();
}

// A client keeps the shard that was chosen first, but names it only after a server has told that it
// has shards: an older version may have taken its place.
TEST(FaultsTest, AClientNamesItsShardOnlyToAServerThatUnderstands) {
  TcpWorld world;
  auto listener = net::SocketListener::listen(world.loop, kLoopback);
  ASSERT_TRUE(listener.ok());
  TcpClient moved(world, "moved", (*listener)->address());
  moved.client.use_any_shard();
  Gate gate(world.loop);
  std::optional<Result<void>> end;
  gate.spawn(store(old_and_new_server(world, **listener), end));
  for (int i = 0; i < 2; i++) EXPECT_FALSE(moved.ping().ok());
  ASSERT_TRUE(world.run_until([&] { return end.has_value(); }));
  EXPECT_TRUE(end->ok()) << end->error().message;
}

// What the server refuses. Of each: the code, both sides in the words, the series of both.
struct Refusal {
  std::string_view name;
  std::function<Result<wire::PingReply>(TcpWorld&, TcpClient&)> provoke;
  Errc code = Errc::failed;
  std::vector<std::string_view> words;
  std::string_view at_server;
  std::string_view at_client;
};

Result<wire::PingReply> ping_with_too_many_bytes(TcpWorld& world, TcpClient& bad) {
  Channel* const channel = bad.channel();
  Gate gate(world.loop);
  std::optional<Result<wire::PingReply>> first;
  wire::PingRequest request = slow_ping(600'000);
  request.set_data(std::string(600, 'x'));
  gate.spawn(store(call_method(bad.client, kPing, request, INT64_MAX), first));
  EXPECT_TRUE(world.run_until([&] { return channel->calls() == 1; }));
  auto second = bad.ping(request);
  run_task(world.loop, gate.close(fail(Errc::interrupted, "enough")));
  return second;
}

std::vector<Refusal> refusals() {
  return {
      {"old version",
       [](TcpWorld&, TcpClient& bad) {
         bad.context.self.version = 0;
         bad.context.self.software = "ff of old";
         return bad.ping();
       },
       Errc::refused,
       {"refuses: bad at 127.0.0.1:", "protocol version 0 (ff of old)", "ff test here uses 2",
        "the other side is older"},
       "ff_rpc_refused_total{code=\"refused\"}",
       "ff_rpc_connects_total{code=\"refused\"}"},
      {"unknown method",
       [](TcpWorld& world, TcpClient& bad) {
         constexpr Method<wire::PingRequest, wire::PingReply> kNone{999, "none"};
         const int64_t deadline_ns = world.loop.now_ns() + 60 * kSecond;
         return run_task(world.loop,
                         call_method(bad.client, kNone, wire::PingRequest(), deadline_ns));
       },
       Errc::unsupported,
       {"none on server at 127.0.0.1:", "there is no method 999"},
       "ff_rpc_server_calls_total{method=\"unknown\",code=\"unsupported\"}",
       "ff_rpc_client_calls_total{method=\"none\",code=\"unsupported\"}"},
      {"expired deadline",
       [](TcpWorld&, TcpClient& bad) {
         EXPECT_NE(bad.channel(), nullptr);
         return bad.ping(slow_ping(600'000), 20 * kMillisecond);
       },
       Errc::deadline,
       {"probe.ping on server at 127.0.0.1:", "no answer in time"},
       "ff_rpc_server_seconds_count{method=\"probe.ping\"}",  // cancelled or by itself too late
       "ff_rpc_client_calls_total{method=\"probe.ping\",code=\"deadline\"}"},
      {"exhausted limit",
       ping_with_too_many_bytes,
       Errc::busy,
       {"probe.ping on server at 127.0.0.1:", "calls of bad at 127.0.0.1:", "bytes already"},
       "ff_rpc_server_calls_total{method=\"probe.ping\",code=\"busy\"}",
       "ff_rpc_client_calls_total{method=\"probe.ping\",code=\"busy\"}"},
  };
}

// Oversized frames and bad CRCs are in the two tests above.
TEST(FaultsTest, EveryRefusalNamesBothSidesIsCountedAndHarmsNobodyElse) {
  for (const Refusal& refusal : refusals()) {
    SCOPED_TRACE(refusal.name);
    TcpWorld world({.connection = {.message_bytes_max = 1000}});
    TcpClient good(world, "good", world.at);
    Channel* const channel = good.channel();
    ASSERT_NE(channel, nullptr);
    TcpClient bad(world, "bad", world.at);
    const auto reply = refusal.provoke(world, bad);
    ASSERT_FALSE(reply.ok());
    EXPECT_EQ(reply.error().code, refusal.code) << reply.error().message;
    expect_words(reply.error().message, refusal.words);
    EXPECT_TRUE(world.run_until([&] { return series(world.metrics, refusal.at_server) == 1; }))
        << world.metrics.text();
    EXPECT_EQ(series(bad.metrics, refusal.at_client), 1u) << bad.metrics.text();
    EXPECT_TRUE(good.ping().ok());
    EXPECT_EQ(good.channel(), channel);
  }
}

}  // namespace
}  // namespace ff::rpc
