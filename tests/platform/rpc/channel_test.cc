// One channel against a scripted server, in simulated time.
#include "platform/rpc/channel.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "platform/base/gate.h"
#include "platform/rpc/error_wire.h"
#include "rpc_world.h"
#include "scripted_stream.h"

namespace ff::rpc {
namespace {

using net::FrameKind;
using Reply = std::optional<Result<std::string>>;

constexpr uint32_t kPlaces = 3;

class ChannelTest : public testing::Test {
 protected:
  void SetUp() override { open(nullptr); }
  void open(std::unique_ptr<net::Bulk> bulk) {
    gate_.reset();
    channel_.reset();
    script_.emplace(std::move(bulk));
    Peer peer{.name = "server", .software = "ff x", .address = "script"};
    peer.calls_max = kPlaces;
    channel_.emplace(std::move(script_->connection), std::move(peer), grants_, calls_);
    gate_.emplace(script_->loop);
  }
  void TearDown() override { gate_.reset(); }

  int64_t in(int64_t ns) { return script_->loop.now_ns() + ns; }
  // A call that has been sent as far as it can be; its end will stand in the reply.
  Reply& begin(CallSpec spec = {}, std::string message = "question") {
    spec.method = 1;
    spec.name = "probe.ping";
    Reply& reply = replies_.emplace_back();
    gate_->spawn(store(channel_->call(spec, std::move(message)), reply));
    script_->settle();
    return reply;
  }
  void feed(net::FrameHeader head, std::string_view message = {}) {
    script_->stream->feed(head, message);
    script_->settle();
  }
  void answer(uint64_t call, std::string_view message = "answer") {
    feed({.kind = FrameKind::reply, .call = call}, message);
  }
  // Of the connection, after which nothing is left of it.
  void expect_broken(std::string_view words) {
    ASSERT_TRUE(channel_->connection().failed());
    EXPECT_FALSE(channel_->usable());
    EXPECT_EQ(channel_->connection().fault(), net::FrameFault::protocol);
    const Error& error = *channel_->connection().close_reason();
    EXPECT_EQ(error.code, Errc::corrupt);
    EXPECT_NE(error.message.find(words), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("server at script"), std::string::npos) << error.message;
  }
  uint64_t counted(std::string_view code) { return made_calls(metrics_, "probe.ping", code); }

  Metrics metrics_;
  ClientCallMetrics calls_{metrics_};
  GrantScheduler grants_{1};
  std::deque<Reply> replies_;
  std::optional<Scripted> script_;
  std::optional<Channel> channel_;
  std::optional<Gate> gate_;
};

TEST_F(ChannelTest, HeadsCarryTheTimeLeft) {
  struct Case {
    int64_t left_ns;  // INT64_MAX: no deadline
    uint32_t ms;
  };
  for (const Case& one : {Case{INT64_MAX, 0}, Case{1500 * kMillisecond + 1, 1501}, Case{1, 1},
                          Case{int64_t{1} << 60, UINT32_MAX}}) {
    begin({.deadline_ns = one.left_ns == INT64_MAX ? INT64_MAX : in(one.left_ns)});
    const auto sent = script_->stream->sent();
    ASSERT_FALSE(sent.empty());
    EXPECT_EQ(sent[0].head.kind, FrameKind::call);
    EXPECT_EQ(sent[0].head.deadline_ms, one.ms);
    EXPECT_EQ(sent[0].message, "question");
    answer(sent[0].head.call);
  }
}

TEST_F(ChannelTest, ACallThatFindsNoPlaceEndsWithItsDeadlineOrItsCaller) {
  for (uint32_t i = 0; i < kPlaces; i++) begin();
  EXPECT_EQ(script_->sent().size(), kPlaces);
  const Reply& late = begin({.deadline_ns = in(kSecond)});
  Reply given_up;
  {
    Gate gate(script_->loop);
    const CallSpec spec{.method = 1, .name = "probe.ping"};
    gate.spawn(store(channel_->call(spec, ""), given_up));
    script_->settle();
    run_task(script_->loop, gate.close(fail(Errc::interrupted, "enough")));
  }
  ASSERT_TRUE(given_up.has_value());
  EXPECT_EQ(given_up->error().message, "enough");
  EXPECT_FALSE(late.has_value());
  script_->world.run_for(kSecond);
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->error().code, Errc::deadline);
  EXPECT_NE(late->error().message.find("probe.ping on server at script"), std::string::npos);
  EXPECT_TRUE(script_->sent().empty());  // the server has heard of neither
  EXPECT_EQ(counted("deadline"), 1u);
  EXPECT_EQ(counted("interrupted"), 1u);
  // A place that becomes free is taken.
  const Reply& next = begin();
  EXPECT_TRUE(script_->sent().empty());
  answer(1);
  ASSERT_EQ(script_->sent().size(), 1u);
  EXPECT_FALSE(next.has_value());
}

TEST_F(ChannelTest, AMessageOverTheLimitIsNotSent) {
  const Reply& reply = begin({}, std::string(net::kMessageMax + 1, 'x'));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error().code, Errc::usage);
  EXPECT_NE(reply->error().message.find("the limit is"), std::string::npos);
  EXPECT_TRUE(script_->sent().empty());
  EXPECT_TRUE(channel_->usable());
  EXPECT_EQ(counted("usage"), 1u);
  begin({}, std::string(net::kMessageMax, 'x'));
  EXPECT_EQ(script_->sent().size(), 1u);
}

TEST_F(ChannelTest, TheCallThatHasASenderSlotCarriesTheGrant) {
  const CallSpec bulk{.sink_bytes = kUngrantedMax + 1};
  const auto granted = [this] {
    const auto sent = script_->sent();
    return sent.size() == 1 && (sent[0].head.flags & net::kFlagGranted) != 0;
  };
  begin({.sink_bytes = kUngrantedMax});  // small bulk needs none
  EXPECT_FALSE(granted());
  answer(1);
  begin(bulk);
  EXPECT_TRUE(granted());
  const Reply& second = begin(bulk);
  EXPECT_FALSE(granted());
  feed({.kind = FrameKind::request_to_send, .call = 3});
  EXPECT_TRUE(script_->sent().empty());  // not its turn
  answer(2);
  const auto sent = script_->sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].head.kind, FrameKind::grant);
  EXPECT_EQ(sent[0].head.call, 3u);
  answer(3);
  EXPECT_TRUE(second.has_value());
  begin(bulk);
  EXPECT_TRUE(granted());
  feed({.kind = FrameKind::request_to_send, .call = 4});  // it holds one already
  ASSERT_EQ(script_->sent().size(), 1u);
}

TEST_F(ChannelTest, ACallThatEndsLeavesTheQueueOfSenders) {
  const CallSpec bulk{.deadline_ns = in(kSecond), .sink_bytes = kUngrantedMax + 1};
  ASSERT_TRUE(grants_.try_acquire());
  const Reply& reply = begin(bulk);
  feed({.kind = FrameKind::request_to_send, .call = 1});
  script_->world.run_for(2 * kSecond);
  ASSERT_TRUE(reply.has_value());
  (void)script_->sent();
  grants_.release();
  EXPECT_TRUE(grants_.try_acquire());
  EXPECT_TRUE(script_->sent().empty());
}

TEST_F(ChannelTest, AReplyThatComesTooLateHarmsNothing) {
  const Reply& late = begin({.deadline_ns = in(kSecond)});
  script_->world.run_for(2 * kSecond);
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->error().code, Errc::deadline);
  answer(1);
  feed({.kind = FrameKind::request_to_send, .call = 1});
  EXPECT_TRUE(channel_->usable());
  const Reply& next = begin();
  answer(2, "here");
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(**next, "here");
}

TEST_F(ChannelTest, AReplyToNoCallBreaksTheConnection) {
  const Reply& reply = begin();
  answer(2);
  expect_broken("a reply to call 2, which was never made");
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error().code, Errc::unreachable);
}

TEST_F(ChannelTest, AnAskForNoCallBreaksTheConnection) {
  feed({.kind = FrameKind::request_to_send, .call = 1});
  expect_broken("a request to send for call 1, which was never made");
}

TEST_F(ChannelTest, ASecondReplyBreaksTheConnectionAndTheFirstCounts) {
  const Reply& reply = begin();
  script_->stream->feed({.kind = FrameKind::reply, .call = 1}, "first");
  script_->stream->feed({.kind = FrameKind::reply, .call = 1}, "second");
  script_->settle();
  expect_broken("a second reply to call 1");
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(**reply, "first");
}

TEST_F(ChannelTest, AnErrorThatCannotBeReadBreaksTheConnection) {
  begin();
  feed({.kind = FrameKind::reply, .flags = kFlagError, .call = 1}, "\xff\xff");
  expect_broken("the error in a reply is not valid protobuf");
}

TEST_F(ChannelTest, ErrorsOfTheServerAreSafeToPrint) {
  const Reply& reply = begin();
  wire::Error error;
  error.set_code("a code of the future");
  error.set_message("go \x1b[2J away");
  error.set_hint("or \x1b[1m stay");
  feed({.kind = FrameKind::reply, .flags = kFlagError, .call = 1}, error.SerializeAsString());
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error().code, Errc::failed);
  EXPECT_EQ(reply->error().message.find('\x1b'), std::string::npos);
  EXPECT_EQ(reply->error().hint.find('\x1b'), std::string::npos);
  EXPECT_NE(reply->error().message.find("away"), std::string::npos);
}

TEST_F(ChannelTest, AfterAGoodbyeCallsUnderWayGoOnAndNoNewOnesAre) {
  const Reply& under_way = begin();
  (void)script_->sent();
  feed({.kind = FrameKind::goaway});
  EXPECT_FALSE(channel_->usable());
  const Reply& late = begin();
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->error().code, Errc::unreachable);
  EXPECT_TRUE(script_->sent().empty());
  EXPECT_FALSE(under_way.has_value());
  answer(1);
  EXPECT_TRUE(under_way && under_way->ok());
}

TEST_F(ChannelTest, ACloseFailsWhatIsUnderWayAndWhatWaits) {
  for (uint32_t i = 0; i <= kPlaces; i++) begin();
  run_task(script_->loop, channel_->close());
  for (size_t i = 0; i < kPlaces; i++) EXPECT_TRUE(replies_[i].has_value());  // by now
  script_->settle();
  for (const Reply& reply : replies_) {
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->error().code, Errc::unreachable);
    EXPECT_NE(reply->error().message.find("server at script"), std::string::npos);
  }
  EXPECT_TRUE(script_->stream->closed());
  EXPECT_EQ(channel_->calls(), 0u);
}

TEST_F(ChannelTest, MayBeDestroyedOnceClosed) {
  for (uint32_t i = 0; i < kPlaces; i++) begin();
  const std::function<Task<void>()> close = [this]() -> Task<void> {
    co_await channel_->close();
    EXPECT_EQ(channel_->calls(), 0u);
    channel_.reset();
  };
  run_task(script_->loop, close());
  for (const Reply& reply : replies_) EXPECT_TRUE(reply && !reply->ok());
}

TEST_F(ChannelTest, KeepsAlive) {
  script_->world.run_for(kPingAfterNs - kSecond);
  EXPECT_TRUE(script_->sent().empty());
  feed({.kind = FrameKind::ping});
  auto sent = script_->sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].head.flags, net::kFlagAnswer);
  // Whatever comes is a sign of life; an answer is not answered.
  for (int i = 0; i < 10; i++) {
    script_->world.run_for(kDeadAfterNs - kPingAfterNs - kSecond);
    sent = script_->sent();
    EXPECT_FALSE(sent.empty());
    for (const auto& frame : sent) EXPECT_EQ(frame.head.flags, 0);
    feed({.kind = FrameKind::ping, .flags = net::kFlagAnswer});
    EXPECT_TRUE(channel_->usable());
  }
  script_->world.run_for(kDeadAfterNs - kSecond);
  EXPECT_TRUE(channel_->usable());
  script_->world.run_for(kPingAfterNs + kSecond);
  EXPECT_FALSE(channel_->usable());
  EXPECT_EQ(channel_->connection().close_reason()->code, Errc::unreachable);
}

// Where the server reaches the caller's memory itself, that is the server's until it has answered.
class OneSidedChannelTest : public ChannelTest {
 protected:
  void SetUp() override { open(std::make_unique<ScriptedBulk>(ByteSpan())); }
  static constexpr int64_t kDeadlineNs = kSecond;
  Reply& begin_with_memory() { return begin({.deadline_ns = in(kDeadlineNs), .has_memory = true}); }
};

TEST_F(OneSidedChannelTest, ACallGivenUpWaitsForTheServersWord) {
  const Reply& reply = begin_with_memory();
  script_->world.run_for(kDeadlineNs + kCancelConfirmNs / 2);
  EXPECT_FALSE(reply.has_value());
  const auto sent = script_->sent();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[1].head.kind, FrameKind::cancel);
  EXPECT_EQ(sent[1].head.call, 1u);
  EXPECT_EQ(sent[2].head.kind, FrameKind::ping);
  wire::Error error;
  error.set_code("interrupted");
  error.set_message("the caller has given up");
  feed({.kind = FrameKind::reply, .flags = kFlagError, .call = 1}, error.SerializeAsString());
  ASSERT_TRUE(reply.has_value());
  EXPECT_FALSE(reply->ok());
  EXPECT_TRUE(channel_->usable());
}

TEST_F(OneSidedChannelTest, WithoutThatWordTheConnectionIsClosed) {
  const Reply& reply = begin_with_memory();
  script_->world.run_for(kDeadlineNs + kCancelConfirmNs + kMillisecond);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error().code, Errc::deadline);
  EXPECT_FALSE(channel_->usable());
  EXPECT_TRUE(script_->stream->closed());
  EXPECT_NE(channel_->connection().close_reason()->message.find("did not confirm"),
            std::string::npos);
}

// Its disk hangs, and may still write to the memory of the call.
TEST_F(OneSidedChannelTest, AServerThatLivesIsWaitedFor) {
  const Reply& reply = begin_with_memory();
  script_->world.run_for(kDeadlineNs + kMillisecond);
  for (int i = 0; i < 10; i++) {
    feed({.kind = FrameKind::ping, .flags = net::kFlagAnswer});
    script_->world.run_for(kCancelConfirmNs);
    EXPECT_FALSE(reply.has_value());
    EXPECT_TRUE(channel_->usable());
  }
  script_->world.run_for(kCancelConfirmNs);
  ASSERT_TRUE(reply.has_value()) << "it is silent now";
  EXPECT_FALSE(channel_->usable());
  ASSERT_TRUE(channel_->unconfirmed_ns());
  EXPECT_GT(*channel_->unconfirmed_ns(), script_->world.now_ns() - 2 * kCancelConfirmNs);
}

// A server of this host keeps the stream until it no longer uses the memory of calls.
TEST_F(OneSidedChannelTest, TheEndOfTheStreamIsTheServersWord) {
  const Reply& reply = begin_with_memory();
  script_->stream->end();
  script_->world.run_for(kMillisecond);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error().code, Errc::unreachable);
  EXPECT_FALSE(channel_->unconfirmed_ns());
}

TEST_F(OneSidedChannelTest, AConnectionThatThisSideClosesIsUnconfirmed) {
  const Reply& reply = begin({.deadline_ns = in(2 * kDeadAfterNs), .has_memory = true});
  script_->world.run_for(kDeadAfterNs + kPingAfterNs);
  ASSERT_TRUE(reply.has_value()) << "the server is silent";
  EXPECT_EQ(reply->error().code, Errc::unreachable);
  EXPECT_TRUE(channel_->unconfirmed_ns());
}

TEST_F(OneSidedChannelTest, ACallWithoutMemoryDoesNotWait) {
  const Reply& reply = begin({.deadline_ns = in(kDeadlineNs)});
  script_->world.run_for(kDeadlineNs);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error().code, Errc::deadline);
  EXPECT_TRUE(channel_->usable());
}

TEST_F(ChannelTest, MemoryThatTheServerDoesNotReachIsNotWaitedFor) {
  const Reply& reply = begin({.deadline_ns = in(kSecond), .has_memory = true});
  script_->world.run_for(kSecond);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error().code, Errc::deadline);
  EXPECT_TRUE(channel_->usable());
}

}  // namespace
}  // namespace ff::rpc
