// The contract of connections (net/connection.h) as one test suite for all transports. A test
// program includes this once and instantiates ConnectionConformance with its factories of pairs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/net/shared_region.h"
#include "platform/net/tested_pair.h"

namespace ff::net {

class ConnectionConformance : public testing::TestWithParam<PairMaker> {
 protected:
  void SetUp() override {
    pair_ = GetParam().make();
    if (pair_ == nullptr) GTEST_SKIP() << "this transport is not offered on this machine";
    gate_.emplace(loop());
  }
  void TearDown() override {
    gate_.reset();
    // Exposures go before their connections.
    exposures_.clear();
  }
  Loop& loop() { return pair_->loop(); }
  Connection& client() { return *pair_->client; }
  Connection& server() { return *pair_->server; }

  // Keeps receiving on `connection`; frames and the final error go to the lists.
  struct Received {
    std::vector<Frame> frames;
    std::optional<Error> error;
  };
  static Task<void> receive_all(Connection& connection, Received& received) {
    for (;;) {
      auto frame = co_await connection.receive();
      if (!frame) {
        received.error = std::move(frame).error();
        co_return;
      }
      received.frames.push_back(std::move(*frame));
    }
  }
  void receive_both() {
    gate_->spawn(receive_all(client(), at_client_));
    gate_->spawn(receive_all(server(), at_server_));
  }
  // Runs until `done`, with a deadline.
  bool run_until(std::function<bool()> done) {
    const int64_t deadline = loop().now_ns() + 60 * kSecond;
    return run_task(loop(), poll(loop(), deadline, done));
  }
  static Task<bool> poll(Loop& loop, int64_t deadline_ns, std::function<bool()> done) {
    while (!done()) {
      if (loop.now_ns() > deadline_ns) co_return false;
      (void)co_await sleep_for(loop, 100 * kMicrosecond);
    }
    co_return true;
  }
  // Exposes memory and sends its buffer to the peer in a frame. Before receive_both().
  RemoteBuffer sink(Connection& owner, ByteSpan memory) {
    return told(owner, owner.expose_sink(memory));
  }
  RemoteBuffer source(Connection& owner, ByteView memory) {
    return told(owner, owner.expose_source(memory));
  }
  RemoteBuffer told(Connection& owner, Result<Connection::Exposure> exposure) {
    exposures_.push_back(std::move(exposure).value());
    owner.send({.kind = FrameKind::call});
    Connection& peer = &owner == &client() ? server() : client();
    EXPECT_TRUE(run_task(loop(), peer.receive()).ok());
    return exposures_.back().buffer();
  }

  std::unique_ptr<TestedPair> pair_;
  Received at_client_;
  Received at_server_;
  std::vector<Connection::Exposure> exposures_;
  std::optional<Gate> gate_;
};

TEST_P(ConnectionConformance, FramesArriveInOrder) {
  receive_both();
  SeededRng rng(1);
  std::vector<std::string> sent;
  for (uint64_t i = 0; i < 2000; i++) {
    std::string message(rng.below(300), static_cast<char>('a' + i % 26));
    client().send({.kind = FrameKind::call, .call = i, .method = 7, .deadline_ms = 9}, message);
    sent.push_back(std::move(message));
  }
  ASSERT_TRUE(run_until([&] { return at_server_.frames.size() == sent.size(); }));
  for (size_t i = 0; i < sent.size(); i++) {
    const Frame& frame = at_server_.frames[i];
    EXPECT_EQ(frame.head.kind, FrameKind::call);
    EXPECT_EQ(frame.head.call, i);
    EXPECT_EQ(frame.head.method, 7u);
    EXPECT_EQ(frame.head.deadline_ms, 9u);
    ASSERT_EQ(frame.message, sent[i]);
  }
}

TEST_P(ConnectionConformance, EmptyAndBiggestMessages) {
  receive_both();
  client().send({.kind = FrameKind::call, .call = 1});
  client().send({.kind = FrameKind::call, .call = 2}, std::string(kMessageMax, 'x'));
  client().send({.kind = FrameKind::call, .call = 3});
  server().send({.kind = FrameKind::reply, .call = 1}, std::string(kMessageMax, 'y'));
  ASSERT_TRUE(
      run_until([&] { return at_server_.frames.size() == 3 && at_client_.frames.size() == 1; }));
  EXPECT_EQ(at_server_.frames[0].message, "");
  EXPECT_EQ(at_server_.frames[1].message, std::string(kMessageMax, 'x'));
  EXPECT_EQ(at_client_.frames[0].message, std::string(kMessageMax, 'y'));
}

// The memory of a file, from which some transports send without a copy.
TEST_P(ConnectionConformance, PushOfAFileFillsTheSinkBeforeTheNextFrame) {
  const ByteSpan memory = pair_->memory(4 * kMiB + 123);
  SharedRegionSet regions;
  const auto region = regions.make(memory.size() + 5000, SharedRegion::Kind::sealed).value();
  const ByteSpan from = region->memory().subspan(4999, memory.size());
  fill(from, 3);
  fill(memory, 4);
  const RemoteBuffer buffer = sink(client(), memory);
  receive_both();
  std::array<std::optional<Result<void>>, 5> done;
  size_t at = 0, next = 0;
  // Below and above the sizes that are copied into frames, and in one frame.
  for (const size_t size : {size_t{1}, size_t{100}, 70 * kKiB, 2 * kMiB + 17}) {
    gate_->spawn(keep(server().push_file(buffer, at, from.subspan(at, size),
                                         {.fd = region->fd(), .offset = 4999 + at}),
                      done[next++]));
    at += size;
  }
  gate_->spawn(keep(server().push(buffer, at, from.subspan(at)), done[next++]));
  ASSERT_TRUE(run_until(
      [&] { return std::ranges::all_of(done, &std::optional<Result<void>>::has_value); }));
  for (const auto& one : done) EXPECT_TRUE(one->ok());
  server().send({.kind = FrameKind::reply, .call = 1});
  ASSERT_TRUE(run_until([&] { return at_client_.frames.size() == 1; }));
  EXPECT_TRUE(std::ranges::equal(memory, from));
}

TEST_P(ConnectionConformance, PushFillsTheSinkBeforeTheNextFrame) {
  const ByteSpan memory = pair_->memory(5 * kMiB + 123);
  std::vector<std::byte> from(memory.size());
  fill(from, 3);
  fill(memory, 4);
  const RemoteBuffer buffer = sink(client(), memory);
  receive_both();
  std::optional<Result<void>> first;
  std::optional<Result<void>> second;
  std::optional<Result<void>> nothing;
  const size_t half = 2 * kMiB + 17;
  gate_->spawn(keep(server().push(buffer, 0, ByteView(from).first(half)), first));
  gate_->spawn(keep(server().push(buffer, half, ByteView(from).subspan(half)), second));
  gate_->spawn(keep(server().push(buffer, memory.size(), {}), nothing));
  ASSERT_TRUE(run_until([&] { return first && second && nothing; }));
  EXPECT_TRUE(first->ok());
  EXPECT_TRUE(second->ok());
  EXPECT_TRUE(nothing->ok());
  server().send({.kind = FrameKind::reply, .call = 1});
  ASSERT_TRUE(run_until([&] { return at_client_.frames.size() == 1; }));
  EXPECT_TRUE(std::equal(memory.begin(), memory.end(), from.begin()));
}

TEST_P(ConnectionConformance, PullReadsTheSource) {
  const ByteSpan memory = pair_->memory(7 * kMiB + 5);
  fill(memory, 5);
  const RemoteBuffer buffer = source(client(), memory);
  receive_both();
  std::vector<std::byte> into(memory.size() - 100);
  std::optional<Result<void>> result;
  std::optional<Result<void>> nothing;
  gate_->spawn(keep(server().pull(buffer, 100, into), result));
  gate_->spawn(keep(server().pull(buffer, 0, {}), nothing));
  ASSERT_TRUE(run_until([&] { return result && nothing; }));
  EXPECT_TRUE(result->ok());
  EXPECT_TRUE(std::equal(into.begin(), into.end(), memory.begin() + 100));
}

TEST_P(ConnectionConformance, BulkBothWaysBetweenFrames) {
  constexpr size_t kSize = 3 * kMiB;
  const ByteSpan a = pair_->memory(kSize);
  const ByteSpan b = pair_->memory(kSize);
  const ByteSpan c = pair_->memory(kSize);
  fill(a, 6);
  fill(c, 7);
  const RemoteBuffer to_client = sink(client(), b);
  const RemoteBuffer from_client = source(client(), a);
  const RemoteBuffer from_server = source(server(), c);
  std::vector<std::byte> at_server(kSize);
  std::vector<std::byte> at_client(kSize);
  receive_both();
  std::optional<Result<void>> results[3];
  gate_->spawn(keep(server().push(to_client, 0, c), results[0]));
  gate_->spawn(keep(server().pull(from_client, 0, at_server), results[1]));
  gate_->spawn(keep(client().pull(from_server, 0, at_client), results[2]));
  for (uint64_t i = 0; i < 500; i++) {
    client().send({.kind = FrameKind::ping, .call = i}, std::string(i, 'p'));
    server().send({.kind = FrameKind::ping, .call = i}, std::string(i, 'q'));
  }
  ASSERT_TRUE(run_until([&] {
    return results[0] && results[1] && results[2] && at_client_.frames.size() == 500 &&
           at_server_.frames.size() == 500;
  }));
  server().send({.kind = FrameKind::goaway});
  ASSERT_TRUE(run_until([&] { return at_client_.frames.size() == 501; }));
  EXPECT_TRUE(std::equal(b.begin(), b.end(), c.begin()));
  EXPECT_TRUE(std::equal(a.begin(), a.end(), at_server.begin()));
  EXPECT_TRUE(std::equal(c.begin(), c.end(), at_client.begin()));
}

TEST_P(ConnectionConformance, OutsideTheSliceIsRefusedAtOnce) {
  const ByteSpan memory = pair_->memory(1000);
  const RemoteBuffer buffer = sink(client(), memory);
  receive_both();
  std::vector<std::byte> bytes(1001);
  std::optional<Result<void>> results[3];
  gate_->spawn(keep(server().push(buffer, 0, bytes), results[0]));
  gate_->spawn(keep(server().pull(buffer, 1001, {}), results[1]));
  gate_->spawn(keep(server().push(buffer, UINT64_MAX, ByteView(bytes).first(2)), results[2]));
  ASSERT_TRUE(run_until([&] { return results[0] && results[1] && results[2]; }));
  for (const auto& result : results) EXPECT_EQ(result->error().code, Errc::usage);
  EXPECT_FALSE(server().failed());
}

// A forged buffer gives no access: the connection fails, on the owner's side or, if the device
// checks, on the other side.
TEST_P(ConnectionConformance, AForgedSliceFailsTheConnection) {
  const ByteSpan memory = pair_->memory(kMiB);
  fill(memory, 8);
  const std::vector<std::byte> before(memory.begin(), memory.end());
  RemoteBuffer buffer = sink(client(), memory.first(1000));
  buffer.size = 2000;
  receive_both();
  std::vector<std::byte> bytes(1000);
  std::optional<Result<void>> result;
  if (buffer.key != 0) buffer.address += uint64_t{1} << 40;
  gate_->spawn(keep(server().push(buffer, 500, bytes), result));
  ASSERT_TRUE(run_until([&] { return at_client_.error || (result && !result->ok()); }));
  EXPECT_TRUE(std::equal(memory.begin(), memory.end(), before.begin()));
}

TEST_P(ConnectionConformance, AnEndedExposureIsLeftAlone) {
  if (client().one_sided()) GTEST_SKIP() << "the peer reaches the memory itself";
  const ByteSpan memory = pair_->memory(8 * kMiB);
  fill(memory, 9);
  const std::vector<std::byte> before(memory.begin(), memory.end());
  std::vector<std::byte> bytes(memory.size());
  const RemoteBuffer to = sink(client(), memory);
  const RemoteBuffer from = source(client(), memory);
  exposures_.clear();
  receive_both();
  std::optional<Result<void>> pushed;
  std::optional<Result<void>> pulled;
  gate_->spawn(keep(server().push(to, 0, bytes), pushed));
  gate_->spawn(keep(server().pull(from, 0, bytes), pulled));
  ASSERT_TRUE(run_until([&] { return pushed && pulled; }));
  server().send({.kind = FrameKind::reply, .call = 1});
  ASSERT_TRUE(run_until([&] { return at_client_.frames.size() == 1; }));
  EXPECT_TRUE(std::equal(memory.begin(), memory.end(), before.begin()));
  EXPECT_TRUE(
      std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{}; }));
}

TEST_P(ConnectionConformance, AnExposureEndsInTheMiddleOfABulk) {
  if (client().one_sided()) GTEST_SKIP() << "the peer reaches the memory itself";
  for (uint64_t round = 0; round < 20; round++) {
    std::vector<std::byte> memory(4 * kMiB);
    std::vector<std::byte> bytes(memory.size());
    fill(bytes, round);
    auto to = client().expose_sink(memory);
    auto from = client().expose_source(memory);
    ASSERT_TRUE(to.ok() && from.ok());
    if (round == 0) receive_both();
    std::optional<Result<void>> pushed;
    std::optional<Result<void>> pulled;
    gate_->spawn(keep(server().push(to->buffer(), 0, bytes), pushed));
    std::vector<std::byte> into(memory.size());
    gate_->spawn(keep(server().pull(from->buffer(), 0, into), pulled));
    const size_t mark = static_cast<size_t>(round) * kMiB / 8;
    ASSERT_TRUE(run_until([&] { return memory[mark] == bytes[mark] || pushed; }));
    to = Connection::Exposure();
    from = Connection::Exposure();
    const std::vector<std::byte> then = memory;
    ASSERT_TRUE(run_until([&] { return pushed && pulled; }));
    EXPECT_TRUE(pushed->ok());
    EXPECT_TRUE(pulled->ok());
    server().send({.kind = FrameKind::reply, .call = round});
    ASSERT_TRUE(run_until([&] { return at_client_.frames.size() == round + 1; }));
    EXPECT_EQ(memory, then);
  }
}

// Cancels a bulk transfer in the middle; later frames still arrive.
TEST_P(ConnectionConformance, ACancelledBulkLeavesTheConnectionUsable) {
  const ByteSpan memory = pair_->memory(16 * kMiB / pair_->scale());
  const RemoteBuffer to = sink(client(), memory);
  const RemoteBuffer from = source(client(), memory);
  receive_both();
  for (uint64_t round = 0; round < 10; round++) {
    {
      std::vector<std::byte> bytes(memory.size());
      std::vector<std::byte> into(memory.size());
      std::optional<Result<void>> pushed;
      std::optional<Result<void>> pulled;
      Gate inner(loop());
      inner.spawn(keep(server().push(to, 0, bytes), pushed));
      inner.spawn(keep(server().pull(from, 0, into), pulled));
      if (round > 0)
        run_task(loop(), [](Loop& on) -> Task<void> {
          (void)co_await sleep_for(on, 200 * kMicrosecond);
        }(loop()));
      run_task(loop(), inner.close(fail(Errc::interrupted, "enough")));
      EXPECT_TRUE(pushed && pulled);
    }
    server().send({.kind = FrameKind::reply, .call = round});
    ASSERT_TRUE(run_until([&] { return at_client_.frames.size() == round + 1; }));
  }
  EXPECT_FALSE(client().failed());
  EXPECT_FALSE(server().failed());
}

// The client does not read: pushes stop at the limit, and continue when it reads.
TEST_P(ConnectionConformance, ASlowReaderHoldsTheSenderBack) {
  if (client().one_sided()) GTEST_SKIP() << "bulk does not pass through the reader";
  constexpr size_t kSize = 32 * kMiB;
  const ByteSpan memory = pair_->memory(kSize);
  const RemoteBuffer buffer = sink(client(), memory);
  std::vector<std::byte> bytes(kSize);
  fill(bytes, 11);
  std::optional<Result<void>> pushed;
  gate_->spawn(keep(server().push(buffer, 0, bytes), pushed));
  gate_->spawn(receive_all(server(), at_server_));
  run_task(loop(),
           [](Loop& on) -> Task<void> { (void)co_await sleep_for(on, 50 * kMillisecond); }(loop()));
  EXPECT_FALSE(pushed.has_value());
  gate_->spawn(receive_all(client(), at_client_));
  ASSERT_TRUE(run_until([&] { return pushed.has_value(); }));
  server().send({.kind = FrameKind::reply, .call = 1});
  ASSERT_TRUE(run_until([&] { return at_client_.frames.size() == 1; }));
  EXPECT_TRUE(std::equal(memory.begin(), memory.end(), bytes.begin()));
}

TEST_P(ConnectionConformance, APeerThatNeverReadsIsGivenUp) {
  const std::string message(kMessageMax, 'm');
  for (size_t sent = 0; sent <= 2 * kSendQueueMax && !server().failed(); sent += kMessageMax) {
    server().send({.kind = FrameKind::reply, .call = 1}, message);
  }
  EXPECT_TRUE(server().failed());
  gate_->spawn(receive_all(server(), at_server_));
  ASSERT_TRUE(run_until([&] { return at_server_.error.has_value(); }));
  EXPECT_EQ(at_server_.error->code, Errc::unreachable);
}

TEST_P(ConnectionConformance, AClosedConnectionFailsEverythingOnBothSides) {
  const ByteSpan memory = pair_->memory(32 * kMiB / pair_->scale());
  const RemoteBuffer to = sink(client(), memory);
  const RemoteBuffer from = source(client(), memory);
  std::vector<std::byte> bytes(memory.size());
  std::vector<std::byte> into(memory.size());
  gate_->spawn(receive_all(server(), at_server_));
  std::optional<Result<void>> results[3];
  gate_->spawn(keep(server().push(to, 0, bytes), results[0]));
  gate_->spawn(keep(server().pull(from, 0, into), results[1]));
  client().close(fail(Errc::unreachable, "closed by the test"));
  gate_->spawn(receive_all(client(), at_client_));
  ASSERT_TRUE(run_until([&] { return at_client_.error && at_server_.error; }));
  EXPECT_EQ(at_client_.error->message, "closed by the test");
  EXPECT_EQ(at_server_.error->code, Errc::unreachable);
  ASSERT_TRUE(run_until([&] { return results[0] && results[1]; }));
  for (int i = 0; i < 2; i++) {
    // Where the peer itself reaches the memory, it may have been done before it saw the end.
    if (client().one_sided() && results[i]->ok()) continue;
    EXPECT_EQ(results[i]->error().code, Errc::unreachable);
  }
  gate_->spawn(keep(server().push(to, 0, bytes), results[2]));
  ASSERT_TRUE(run_until([&] { return results[2].has_value(); }));
  EXPECT_EQ(results[2]->error().code, Errc::unreachable);
}

TEST_P(ConnectionConformance, ADestroyedPeerIsNoticed) {
  receive_both();
  gate_->cancellation().request(fail(Errc::interrupted, "the end"));
  run_task(loop(), gate_->wait_empty());
  exposures_.clear();
  pair_->client.reset();
  gate_.emplace(loop());
  at_server_ = {};
  gate_->spawn(receive_all(server(), at_server_));
  ASSERT_TRUE(run_until([&] { return at_server_.error.has_value(); }));
  EXPECT_EQ(at_server_.error->code, Errc::unreachable);
  EXPECT_NE(at_server_.error->message.find(server().peer()), std::string::npos);
}

// Frames sent right before a close still arrive once wait_flushed() has returned.
TEST_P(ConnectionConformance, FlushedFramesOutliveAClose) {
  gate_->spawn(receive_all(server(), at_server_));
  for (uint64_t i = 0; i < 50; i++) {
    client().send({.kind = FrameKind::call, .call = i}, std::string(10'000, 'c'));
  }
  std::optional<Result<void>> flushed;
  gate_->spawn(keep(client().wait_flushed(), flushed));
  ASSERT_TRUE(run_until([&] { return flushed.has_value(); }));
  EXPECT_TRUE(flushed->ok());
  client().close(fail(Errc::unreachable, "closed by the test"));
  ASSERT_TRUE(run_until([&] { return at_server_.error.has_value(); }));
  EXPECT_EQ(at_server_.frames.size(), 50u);
}

TEST_P(ConnectionConformance, ACancelledReceiveCanBeStartedAgain) {
  gate_->spawn(receive_all(server(), at_server_));
  client().send({.kind = FrameKind::call, .call = 1});
  ASSERT_TRUE(run_until([&] { return at_server_.frames.size() == 1; }));
  run_task(loop(), gate_->close(fail(Errc::interrupted, "enough")));
  EXPECT_EQ(at_server_.error->code, Errc::interrupted);
  EXPECT_FALSE(server().failed());
  gate_.emplace(loop());
  gate_->spawn(receive_all(server(), at_server_));
  client().send({.kind = FrameKind::call, .call = 2});
  ASSERT_TRUE(run_until([&] { return at_server_.frames.size() == 2; }));
}

}  // namespace ff::net
