// What only RDMA connections have: keys that a device checks, credits, memory that a device is
// using, peers and devices that go without a word, and set-ups that are none.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "platform/net/verbs_setup.h"
#include "rdma/rxe_link.h"
#include "rdma/verbs_fixture.h"

namespace ff::net {
namespace {

TEST_F(VerbsTest, ABadKeyFailsTheConnection) {
  const ByteSpan memory = pair_->memory(kMiB);
  fill(memory, 1);
  const std::vector<std::byte> before(memory.begin(), memory.end());
  const auto sink = client().expose_sink(memory);
  ASSERT_TRUE(sink.ok());
  receive_both();
  std::vector<std::byte> bytes(kMiB);
  RemoteBuffer buffer = sink->buffer();
  buffer.key ^= 0x5a5a00;
  const auto pushed = run(server().push(buffer, 0, bytes));
  ASSERT_FALSE(pushed.ok());
  EXPECT_EQ(pushed.error().code, Errc::unreachable);
  for (const std::string& word : {server().peer(), std::string("RDMA WRITE"), std::string("rxe0"),
                                  std::string("remote access error")}) {
    EXPECT_NE(pushed.error().message.find(word), std::string::npos) << pushed.error().message;
  }
  ASSERT_TRUE(run_until([&] { return at_client_.error && at_server_.error; }));
  EXPECT_TRUE(client().failed() && server().failed());
  EXPECT_TRUE(std::ranges::equal(memory, before));
}

TEST_F(VerbsTest, AKeyEndsWithItsExposure) {
  const ByteSpan memory = pair_->memory(kMiB);
  std::vector<std::byte> bytes(kMiB);
  receive_both();
  auto sink = client().expose_sink(memory);
  ASSERT_TRUE(sink.ok());
  const RemoteBuffer buffer = sink->buffer();
  ASSERT_TRUE(run(server().push(buffer, 0, bytes)).ok());
  fill(memory, 2);
  const std::vector<std::byte> before(memory.begin(), memory.end());
  sink = Connection::Exposure();
  EXPECT_FALSE(run(server().push(buffer, 0, bytes)).ok());
  EXPECT_TRUE(std::ranges::equal(memory, before));
}

// Many times the credits of both sides, in small frames over many turns: all arrive, and no message
// ever finds its receiver without a buffer.
TEST_F(VerbsTest, AFloodBothWaysNeverLacksAReceive) {
  constexpr uint64_t kTurns = 400;
  constexpr uint64_t kTurnFrames = 40;  // a turn
  const int64_t before = rxe_counter("send_rnr_err") + rxe_counter("rcvd_rnr_err");
  ASSERT_GE(before, 0) << "these counters are not there";
  receive_both();
  const auto flood = [](Connection& from) -> Task<void> {
    for (uint64_t turn = 0; turn < kTurns; turn++) {
      for (uint64_t i = 0; i < kTurnFrames; i++) {
        from.send({.kind = FrameKind::call, .call = turn * kTurnFrames + i}, std::string(i, 's'));
      }
      YieldWait yield(from.loop());
      (void)co_await yield;
    }
  };
  gate_->spawn(flood(client()));
  gate_->spawn(flood(server()));
  ASSERT_TRUE(run_until([&] {
    return at_client_.frames.size() == kTurns * kTurnFrames &&
           at_server_.frames.size() == kTurns * kTurnFrames;
  }));
  for (uint64_t i = 0; i < kTurns * kTurnFrames; i++) {
    ASSERT_EQ(at_client_.frames[i].head.call, i);
    ASSERT_EQ(at_server_.frames[i].head.call, i);
  }
  EXPECT_EQ(rxe_counter("send_rnr_err") + rxe_counter("rcvd_rnr_err"), before);
}

// Nobody reads: the sender runs out of credits, and nothing is lost or sent again.
TEST_F(VerbsTest, AReaderThatComesLateFindsEverything) {
  const int64_t before = rxe_counter("send_rnr_err") + rxe_counter("rcvd_rnr_err");
  const std::string message(1000, 'l');
  for (uint64_t i = 0; i < 5000; i++) {
    server().send({.kind = FrameKind::reply, .call = i}, message);
  }
  gate_->spawn(receive_all(server(), at_server_));
  run_for(kTestSecond / 5);
  std::optional<Result<void>> flushed;
  gate_->spawn(keep(server().wait_flushed(), flushed));
  run_for(kTestSecond / 20);
  EXPECT_FALSE(flushed.has_value());
  gate_->spawn(receive_all(client(), at_client_));
  ASSERT_TRUE(run_until([&] { return at_client_.frames.size() == 5000; }));
  EXPECT_FALSE(at_server_.error.has_value());
  EXPECT_EQ(rxe_counter("send_rnr_err") + rxe_counter("rcvd_rnr_err"), before);
}

// A pull that is given up returns when the device has let go of its memory, not before.
TEST_F(VerbsTest, ACancelledPullReturnsWithItsMemoryAtRest) {
  const ByteSpan memory = pair_->memory(8 * kMiB);
  fill(memory, 4);
  const auto source = client().expose_source(memory);
  ASSERT_TRUE(source.ok());
  receive_both();
  std::vector<std::byte> into(memory.size());
  std::optional<Result<void>> result;
  {
    Gate inner(loop());
    inner.spawn(keep(server().pull(source->buffer(), 0, into), result));
    ASSERT_TRUE(run_until([&] { return into[0] == memory[0] && into[1] == memory[1]; }));
    run_task(loop(), inner.close(fail(Errc::interrupted, "enough")));
  }
  const std::vector<std::byte> then = into;
  ASSERT_TRUE(result.has_value());
  ASSERT_FALSE(result->ok());
  EXPECT_EQ(result->error().code, Errc::interrupted);
  run_for(kTestSecond / 3);
  EXPECT_EQ(into, then);
  EXPECT_FALSE(server().failed());
}

TEST_F(VerbsTest, ADestroyedPullLeavesItsMemoryAtRest) {
  const ByteSpan memory = pair_->memory(8 * kMiB);
  fill(memory, 5);
  const auto source = client().expose_source(memory);
  ASSERT_TRUE(source.ok());
  receive_both();
  std::vector<std::byte> into(memory.size());
  std::optional<Result<void>> result;
  {
    Gate inner(loop());
    inner.spawn(keep(server().pull(source->buffer(), 0, into), result));
    ASSERT_TRUE(run_until([&] { return into[0] == memory[0] && into[1] == memory[1]; }));
  }
  const std::vector<std::byte> then = into;
  run_for(kTestSecond / 3);
  EXPECT_EQ(into, then);
  EXPECT_FALSE(result.has_value());
  ASSERT_TRUE(run_until([&] { return at_client_.error && at_server_.error; }));
}

// A closed connection lets nobody write any more, although its last messages are still on their way
// and the peer, who has not seen them yet, goes on.
TEST_F(VerbsTest, AClosedConnectionEndsTheWritesOfItsPeer) {
  const ByteSpan memory = pair_->memory(kMiB);
  std::vector<std::byte> bytes(memory.size());
  fill(bytes, 6);
  const auto sink = client().expose_sink(memory);
  ASSERT_TRUE(sink.ok());
  receive_both();
  ASSERT_TRUE(run(server().push(sink->buffer(), 0, bytes)).ok());
  std::ranges::fill(memory, std::byte{});
  std::optional<Result<void>> pushed;
  gate_->spawn(keep(server().push(sink->buffer(), 0, bytes), pushed));
  client().close(fail(Errc::unreachable, "closed by the test"));
  ASSERT_TRUE(run_until([&] { return pushed.has_value(); }));
  run_for(kTestSecond / 10);
  EXPECT_FALSE(pushed->ok());
  EXPECT_TRUE(std::ranges::all_of(memory, [](std::byte byte) { return byte == std::byte{}; }));
}

Task<void> close_once_flushed(Connection& connection) {
  (void)co_await connection.wait_flushed();
  connection.close(fail(Errc::unreachable, "closed by the test"));
}

// Frames queue up behind megabytes of a push when their connection is closed: they arrive.
TEST_F(VerbsTest, WhatWasSentArrivesAfterTheClose) {
  const ByteSpan memory = pair_->memory(4 * kMiB);
  const auto sink = server().expose_sink(memory);
  ASSERT_TRUE(sink.ok());
  gate_->spawn(receive_all(server(), at_server_));
  std::vector<std::byte> bytes(memory.size());
  std::optional<Result<void>> pushed;
  gate_->spawn(keep(client().push(sink->buffer(), 0, bytes), pushed));
  for (uint64_t i = 0; i < 10; i++) {
    client().send({.kind = FrameKind::call, .call = i}, std::string(4000, 'c'));
  }
  gate_->spawn(close_once_flushed(client()));
  ASSERT_TRUE(run_until([&] { return at_server_.error && pushed; }));
  EXPECT_EQ(at_server_.frames.size(), 10u);
  EXPECT_EQ(at_server_.error->code, Errc::unreachable);
}

TEST_F(VerbsTest, AKilledPeerIsNoticed) {
  const Address any = {"127.0.0.1", 0, ""};
  const auto listener = SocketListener::listen(loop(), any);
  ASSERT_TRUE(listener.ok());
  std::string port = std::to_string((*listener)->address().port);
  std::string program = "/proc/self/exe";
  std::string word = "hang";
  char* const words[] = {program.data(), word.data(), port.data(), nullptr};
  pid_t child = -1;
  ASSERT_EQ(::posix_spawn(&child, program.c_str(), nullptr, nullptr, words, environ), 0);
  auto socket = run_task(loop(), (*listener)->accept());
  ASSERT_TRUE(socket.ok());
  auto made = run_task(
      loop(), connect_verbs(pair_->device(), stream_of(loop(), std::move(*socket)), "peer"));
  ASSERT_TRUE(made.ok()) << made.error().message;
  Connection& connection = **made;
  Received received;
  Gate gate(loop());
  gate.spawn(receive_all(connection, received));
  ASSERT_TRUE(run_until([&] { return received.frames.size() == 1; }));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const int64_t killed = loop().now_ns();
  ASSERT_TRUE(run_until([&] { return received.error.has_value(); }));
  EXPECT_EQ(received.error->code, Errc::unreachable);
  EXPECT_LT(loop().now_ns() - killed, 10 * kTestSecond);
}

TEST_F(VerbsTest, APortThatGoesDownFailsItsConnections) {
  receive_both();
  const ByteSpan memory = pair_->memory(8 * kMiB);
  auto sink = client().expose_sink(memory);
  ASSERT_TRUE(sink.ok());
  std::vector<std::byte> bytes(memory.size());
  std::optional<Result<void>> pushed;
  gate_->spawn(keep(server().push(sink->buffer(), 0, bytes), pushed));
  run_for(kTestSecond / 100);
  ASSERT_TRUE(set_netdev_up("dummy0", false).ok());
  ASSERT_TRUE(run_until([&] { return at_client_.error && at_server_.error && pushed; }));
  for (const auto& error : {at_client_.error, at_server_.error}) {
    EXPECT_EQ(error->code, Errc::unreachable);
    EXPECT_NE(error->message.find("RDMA device rxe0"), std::string::npos) << error->message;
  }
  SocketEnds sockets = socket_ends(loop());
  auto stream = stream_of(loop(), std::move(sockets.client));
  const auto refused = run_task(loop(), connect_verbs(pair_->device(), std::move(stream), "peer"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::unreachable);
  EXPECT_NE(refused.error().message.find("is down"), std::string::npos);
  // It works again once the port is up.
  ASSERT_TRUE(set_netdev_up("dummy0", true).ok());
  gate_.emplace(loop());
  sink = Connection::Exposure();
  pair_->connect();
  at_client_ = {};
  gate_->spawn(receive_all(client(), at_client_));
  server().send({.kind = FrameKind::reply, .call = 1});
  ASSERT_TRUE(run_until([&] { return at_client_.frames.size() == 1; }));
}

// A set-up that is none.
// ----------------------------------------------------------------------------

class VerbsSetupTest : public VerbsTest {
 protected:
  Result<std::unique_ptr<Connection>> serve(Socket socket) {
    auto stream = stream_of(loop(), std::move(socket));
    return run_task(loop(), connect_verbs(pair_->device(), std::move(stream), "peer"));
  }
  // What connect_verbs() says to a client that sends `bytes`, and then keeps quiet or goes.
  Error answer_to(ByteView bytes, bool goes) {
    SocketEnds sockets = socket_ends(loop());
    const Socket peer = std::move(sockets.client);
    FF_CHECK(::send(peer.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(bytes.size()));
    if (goes) ::shutdown(peer.fd.get(), SHUT_WR);
    auto made = serve(std::move(sockets.server));
    EXPECT_FALSE(made.ok());
    return made.ok() ? Error() : made.error();
  }
  // An endpoint of no queue pair.
  std::vector<std::byte> some_endpoint() {
    const VerbsEndpoint endpoint = {.qpn = 17,
                                    .psn = 1,
                                    .gid = pair_->device().port().gid,
                                    .lid = 0,
                                    .mtu = 1024,
                                    .receives = 32,
                                    .reads = 16,
                                    .message_max = 8192};
    const auto encoded = encode_endpoint(endpoint);
    return {encoded.begin(), encoded.end()};
  }
  static std::vector<std::byte> with_ready(std::vector<std::byte> bytes) {
    bytes.resize(bytes.size() + sizeof kReadyMagic);
    store_le(bytes.data() + bytes.size() - sizeof kReadyMagic, kReadyMagic);
    return bytes;
  }
};

TEST_F(VerbsSetupTest, MalformedBytesAreRefused) {
  const auto good = some_endpoint();
  EXPECT_EQ(answer_to({}, true).code, Errc::unreachable);
  EXPECT_EQ(answer_to(ByteView(good).first(20), true).code, Errc::unreachable);
  EXPECT_EQ(answer_to(as_bytes(std::string(kEndpointBytes, 'x')), false).code, Errc::corrupt);
  auto broken = good;
  broken[9] ^= std::byte{1};
  EXPECT_EQ(answer_to(broken, false).code, Errc::corrupt);
  // All right, and then something else than a ready.
  auto more = good;
  more.resize(good.size() + sizeof kReadyMagic, std::byte{'x'});
  EXPECT_EQ(answer_to(more, false).code, Errc::corrupt);
  EXPECT_EQ(answer_to(good, true).code, Errc::unreachable);
}

TEST_F(VerbsSetupTest, AQueuePairThatNobodyReachesIsNoConnection) {
  const Error error = answer_to(with_ready(some_endpoint()), false);
  EXPECT_TRUE(error.code == Errc::unreachable || error.code == Errc::deadline) << error.message;
}

TEST_F(VerbsSetupTest, BytesBehindTheSetUpFailTheConnection) {
  auto bytes = with_ready(some_endpoint());
  bytes.push_back(std::byte{'x'});
  EXPECT_EQ(answer_to(bytes, false).code, Errc::corrupt);
}

TEST(VerbsOpen, NamesAndIndexesThatAreNotThereAreRefused) {
  SystemClock clock;
  SystemLoop loop(clock);
  if (!VerbsDevice::open(loop, {}).ok()) GTEST_SKIP() << "this machine has no RDMA device";
  VerbsOptions options;
  options.device = "mlx5_9";
  const auto named = VerbsDevice::open(loop, options);
  ASSERT_FALSE(named.ok());
  EXPECT_EQ(named.error().code, Errc::unsupported);
  EXPECT_NE(named.error().message.find("found: rxe0"), std::string::npos);
  options.device = "rxe0";
  options.gid_index = 200;
  const auto indexed = VerbsDevice::open(loop, options);
  ASSERT_FALSE(indexed.ok());
  EXPECT_EQ(indexed.error().code, Errc::usage);
  options.gid_index = -1;
  const auto device = VerbsDevice::open(loop, options);
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->port().gid[10], std::byte{0xff});  // ::ffff:10.77.0.1
  EXPECT_EQ((*device)->port().gid[15], std::byte{1});
}

}  // namespace
}  // namespace ff::net
