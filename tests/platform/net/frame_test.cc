// Frames: round trips, and the error of every malformed frame.
#include "platform/net/frame.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "platform/base/system_loop.h"
#include "platform/net/broken_frames.h"
#include "platform/net/connection.h"
#include "platform/net/socket_ends.h"

namespace ff::net {
namespace {

TEST(FrameTest, WhatIsWrittenIsReadBack) {
  const FrameHeader head{.kind = FrameKind::call,
                         .flags = kFlagGranted,
                         .version = kProtocolVersion,
                         .call = 0x0123456789abcdef,
                         .method = 0xfedcba98,
                         .deadline_ms = 77};
  const std::string bytes = frame_bytes(head, "message");
  ASSERT_EQ(bytes.size(), kFrameHeaderBytes + 7);
  FrameFault fault = FrameFault::none;
  const auto read = parse_frame_header(as_bytes(bytes), fault);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(fault, FrameFault::none);
  EXPECT_EQ(read->kind, head.kind);
  EXPECT_EQ(read->flags, head.flags);
  EXPECT_EQ(read->version, head.version);
  EXPECT_EQ(read->call, head.call);
  EXPECT_EQ(read->method, head.method);
  EXPECT_EQ(read->deadline_ms, head.deadline_ms);
  EXPECT_EQ(read->message_len, 7u);
  EXPECT_TRUE(check_message(*read, "message", fault).ok());
}

TEST(FrameTest, AHelloMayBeOfAnyVersion) {
  FrameFault fault = FrameFault::none;
  const std::string bytes = frame_bytes({.kind = FrameKind::hello, .version = 60'000});
  const auto read = parse_frame_header(as_bytes(bytes), fault);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->version, 60'000);
}

TEST(FrameTest, FaultsHaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(FrameFault::transport); i++) {
    names.insert(fault_name(static_cast<FrameFault>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(FrameFault::transport) + 1);
}

TEST(FrameTest, ABrokenFrameFailsItsConnectionAndIsNamed) {
  for (const BrokenFrame& broken : broken_frames()) {
    SystemClock clock;
    SystemLoop loop(clock);
    SocketEnds ends = connected_sockets(loop, Address{"127.0.0.1", 0, ""});
    const auto raw = stream_of(loop, std::move(ends.client));
    Connection victim(loop, stream_of(loop, std::move(ends.server)), nullptr);
    const std::array<ByteView, 1> views = {as_bytes(broken.bytes)};
    ASSERT_TRUE(raw->try_write(views).ok());
    const auto received = run_task(loop, victim.receive());
    ASSERT_FALSE(received.ok()) << broken.words;
    EXPECT_EQ(received.error().code, broken.code);
    EXPECT_NE(received.error().message.find(broken.words), std::string::npos)
        << received.error().message;
    EXPECT_TRUE(received.error().message.starts_with(victim.peer())) << received.error().message;
    EXPECT_EQ(victim.fault(), broken.fault) << broken.words;
    EXPECT_TRUE(victim.failed());
  }
}

// An end of the stream in the middle of a frame is a peer that has gone, not one that is wrong.
TEST(FrameTest, ACutFrameIsNobodysFault) {
  SystemClock clock;
  SystemLoop loop(clock);
  SocketEnds ends = connected_sockets(loop, Address{"127.0.0.1", 0, ""});
  auto raw = stream_of(loop, std::move(ends.client));
  Connection victim(loop, stream_of(loop, std::move(ends.server)), nullptr);
  const std::string bytes = frame_bytes({.kind = FrameKind::ping}, "message");
  const std::array<ByteView, 1> views = {as_bytes(bytes).first(bytes.size() - 1)};
  ASSERT_TRUE(raw->try_write(views).ok());
  raw.reset();
  const auto received = run_task(loop, victim.receive());
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code, Errc::unreachable);
  EXPECT_EQ(victim.fault(), FrameFault::none);
}

}  // namespace
}  // namespace ff::net
