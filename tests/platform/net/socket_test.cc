// Reads of a stream socket: which of them ask the kernel, and that no byte and no end is missed.
#include "platform/net/socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "platform/base/system_loop.h"
#include "platform/net/socket_ends.h"

namespace ff::net {
namespace {

class SocketTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    SocketEnds ends =
        connected_sockets(loop_, GetParam() ? unix_test_address() : Address{"127.0.0.1", 0, ""});
    peer_ = std::move(ends.client);
    stream_ = stream_of(loop_, std::move(ends.server));
    EXPECT_EQ(try_read(), "(nothing)");
  }
  void send(std::string_view text) {
    ASSERT_EQ(::send(peer_.fd.get(), text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
  }
  // "(nothing)": no bytes yet. Empty: the end.
  std::string try_read(size_t room = 100) {
    std::string text(room, '?');
    const ByteSpan piece(reinterpret_cast<std::byte*>(text.data()), text.size());
    const auto got = stream_->try_read({&piece, 1});
    if (!got) return got.error().message;
    if (!*got) return "(nothing)";
    text.resize(**got);
    return text;
  }
  void wait() { EXPECT_TRUE(run_task(loop_, wait_for(stream_->readable())).ok()); }
  SystemClock clock_;
  SystemLoop loop_{clock_};
  Socket peer_;
  std::unique_ptr<SocketStream> stream_;
};

// Without an event of the loop, the stream knows that a short read has taken everything.
TEST_P(SocketTest, AfterAShortReadAnEventAnnouncesMore) {
  send("one");
  wait();
  EXPECT_EQ(try_read(), "one");
  send("two");
  EXPECT_EQ(try_read(), "(nothing)");
  wait();
  EXPECT_EQ(try_read(), "two");
  EXPECT_EQ(try_read(), "(nothing)");
}

TEST_P(SocketTest, AFullReadIsFollowedByAnother) {
  send("onetwo");
  wait();
  EXPECT_EQ(try_read(3), "one");
  EXPECT_EQ(try_read(3), "two");
  EXPECT_EQ(try_read(3), "(nothing)");
}

// The event of the end comes with that of the bytes before it, and does not come again.
TEST_P(SocketTest, TheEndBehindAShortReadIsSeen) {
  send("last");
  ::shutdown(peer_.fd.get(), SHUT_WR);
  wait();
  EXPECT_EQ(try_read(), "last");
  EXPECT_EQ(try_read(), "");
}

TEST_P(SocketTest, TheEndAfterAShortReadIsSeen) {
  send("last");
  wait();
  EXPECT_EQ(try_read(), "last");
  ::shutdown(peer_.fd.get(), SHUT_WR);
  (void)try_read();
  wait();
  EXPECT_EQ(try_read(), "");
}

INSTANTIATE_TEST_SUITE_P(Sockets, SocketTest, testing::Values(false, true),
                         [](const auto& given) { return given.param ? "Unix" : "Tcp"; });

}  // namespace
}  // namespace ff::net
