// Reads of a stream socket: which of them ask the kernel, and that no byte and no end is missed.
// Writes of files.
#include "platform/net/socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/rng.h"
#include "platform/base/system_loop.h"
#include "platform/net/shared_region.h"
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

// Sends from a file, over TCP.
class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    SocketEnds ends = connected_sockets(loop_, Address{"127.0.0.1", 0, ""});
    peer_ = std::move(ends.client);
    stream_ = stream_of(loop_, std::move(ends.server));
    ASSERT_TRUE(stream_->writes_files());
    region_ = regions_.make(kMiB, SharedRegion::Kind::sealed).value();
  }
  // Writes once; empty: the socket takes nothing now.
  Result<std::optional<size_t>> write(ByteView head, size_t offset, size_t size) {
    return stream_->try_write_file({&head, head.empty() ? size_t{0} : size_t{1}},
                                   {.fd = region_->fd(), .offset = offset}, size);
  }
  SystemClock clock_;
  SystemLoop loop_{clock_};
  Socket peer_;
  std::unique_ptr<SocketStream> stream_;
  SharedRegionSet regions_;
  std::shared_ptr<const SharedRegion> region_;
};

TEST_F(FileTest, FollowsItsHead) {
  std::vector<std::byte> sent(900'000), got;
  SeededRng rng(1);
  for (std::byte& byte : sent) byte = static_cast<std::byte>(rng.next());
  const size_t head = 1000, offset = 4099;
  std::ranges::copy(ByteView(sent).subspan(head), region_->memory().begin() + offset);
  const int64_t until_ns = clock_.steady_ns() + 60 * kSecond;
  for (size_t at = 0; got.size() < sent.size();) {
    ASSERT_LT(clock_.steady_ns(), until_ns);
    if (at < sent.size()) {
      const size_t skipped = std::max(at, head) - head;
      const ByteView rest = ByteView(sent).first(head).subspan(std::min(at, head));
      const auto wrote = write(rest, offset + skipped, sent.size() - head - skipped);
      ASSERT_TRUE(wrote.ok()) << wrote.error().message;
      at += wrote->value_or(0);
    }
    std::array<std::byte, 65'536> part;
    const ssize_t read = ::recv(peer_.fd.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (read > 0) got.insert(got.end(), part.begin(), part.begin() + read);
  }
  EXPECT_TRUE(std::ranges::equal(got, sent));
}

// An error, and no SIGPIPE, which would end this process.
TEST_F(FileTest, APeerThatIsGoneIsAnError) {
  peer_.fd = {};
  const int64_t until_ns = clock_.steady_ns() + 60 * kSecond;
  for (;;) {
    ASSERT_LT(clock_.steady_ns(), until_ns);
    const auto wrote = write({}, 0, 1000);
    if (wrote) continue;
    EXPECT_EQ(wrote.error().code, Errc::unreachable);
    break;
  }
  EXPECT_FALSE(write({}, 0, 1000).ok());  // EPIPE from here on
  EXPECT_FALSE(write({}, 0, 1000).ok());
}

INSTANTIATE_TEST_SUITE_P(Sockets, SocketTest, testing::Values(false, true),
                         [](const auto& given) { return given.param ? "Unix" : "Tcp"; });

}  // namespace
}  // namespace ff::net
