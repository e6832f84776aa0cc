// The server: one request after the other, bodies in both framings, and clients that misbehave.
#include "platform/http/server.h"

#include <gtest/gtest.h>

#include <memory>

#include "platform/base/log.h"
#include "platform/http/text_stream.h"
#include "platform/sim/sim_world.h"

namespace ff::http {
namespace {

// Replies with what it was sent, or with an error before it has read anything.
class Echo final : public Handler {
 public:
  Task<void> handle(Exchange& exchange) override {
    requests++;
    ReplyHead head{.status = 200, .fields = {{"X-Target", exchange.head().target}}};
    if (exchange.head().target == "/refused") {
      head.status = 403;
      (void)co_await exchange.reply(std::move(head), "no");
      co_return;
    }
    const auto body = co_await exchange.read_all(1000);
    if (!body) {
      error = body.error().message;
      co_return;
    }
    (void)co_await exchange.reply(std::move(head), *body);
  }
  ReplyHead refusal(int status) override { return {.status = status}; }
  std::string refusal_body(int, const std::string& why) override { return why; }

  int requests = 0;
  std::string error;
};

class HttpServerTest : public testing::Test {
 protected:
  void SetUp() override { log_setup({.level = LogLevel::error}); }
  // What the server sends for these bytes, and then for the end of the client's side.
  std::string talk(std::string_view text, size_t piece = SIZE_MAX) {
    TextStream stream(world_.loop());
    stream.cut(piece);
    stream.feed(text);
    stream.end();
    return serve(stream);
  }
  std::string serve(TextStream& stream) {
    RequestServer server(world_.loop(), echo_, {});
    run_task(world_.loop(), server.serve_stream(stream));
    EXPECT_TRUE(stream.closed());
    return stream.sent();
  }
  static size_t count(std::string_view text, std::string_view part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) found++;
    return found;
  }

  sim::SimWorld world_;
  Echo echo_;
};

TEST_F(HttpServerTest, SeveralRequestsOnAConnection) {
  const std::string requests =
      "PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
      "PUT /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n2\r\nwo\r\n3\r\nrld\r\n0\r\n\r\n"
      "GET /c HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const size_t piece : {SIZE_MAX, size_t{1}, size_t{7}}) {
    const std::string sent = talk(requests, piece);
    EXPECT_EQ(count(sent, "HTTP/1.1 200 OK\r\n"), 3U) << sent;
    EXPECT_NE(sent.find("X-Target: /a\r\nContent-Length: 5\r\n\r\nhello"), sent.npos) << sent;
    EXPECT_NE(sent.find("X-Target: /b\r\nContent-Length: 5\r\n\r\nworld"), sent.npos) << sent;
    EXPECT_NE(sent.find("X-Target: /c\r\nContent-Length: 0\r\n\r\n"), sent.npos) << sent;
  }
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  const std::string sent = talk("HEAD /refused HTTP/1.1\r\n\r\n");
  EXPECT_NE(sent.find("Content-Length: 2\r\n"), sent.npos) << sent;
  EXPECT_TRUE(sent.ends_with("\r\n\r\n")) << sent;
}

TEST_F(HttpServerTest, ClientsThatWaitAreToldToSend) {
  const std::string sent =
      talk("PUT /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_TRUE(sent.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")) << sent;
}

// Nobody knows whether the client sends the body, so that the connection must end.
TEST_F(HttpServerTest, ARefusalIsNoInvitation) {
  const std::string sent =
      talk("PUT /refused HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_TRUE(sent.starts_with("HTTP/1.1 403 Forbidden\r\n")) << sent;
  EXPECT_NE(sent.find("Connection: close\r\n"), sent.npos) << sent;
}

// boto3 takes a reply without 100 Continue for that of its next request, too, if the connection
// stays (botocore 1.29), and then waits for a minute.
TEST_F(HttpServerTest, AReplyWithoutAContinueEndsTheConnection) {
  for (const std::string_view target : {"/a", "/refused"}) {
    const std::string sent = talk(fmt::format(
        "PUT {} HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n", target));
    EXPECT_NE(sent.find("Connection: close\r\n"), sent.npos) << sent;
  }
}

TEST_F(HttpServerTest, AnUnreadBodyIsSkipped) {
  const std::string sent = talk(
      "PUT /refused HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
      "GET /next HTTP/1.1\r\n\r\n");
  EXPECT_EQ(count(sent, "HTTP/1.1 "), 2U) << sent;
  EXPECT_NE(sent.find("X-Target: /next"), sent.npos) << sent;
}

TEST_F(HttpServerTest, BadRequestsEndTheConnection) {
  for (const std::string_view request :
       {"GET /\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "PUT / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    const std::string sent = talk(std::string(request) + "GET /next HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(sent.starts_with("HTTP/1.1 400 Bad Request\r\n")) << sent;
    EXPECT_EQ(count(sent, "HTTP/1.1 "), 1U) << sent;
  }
  const std::string sent = talk("GET / HTTP/1.1\r\nA: " + std::string(kHeadMax, 'a'));
  EXPECT_TRUE(sent.starts_with("HTTP/1.1 431 ")) << sent;
  EXPECT_EQ(echo_.requests, 0);
}

TEST_F(HttpServerTest, ABodyThatEndsTooSoonHasNoReply) {
  EXPECT_EQ(talk("PUT /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhell"), "");
  EXPECT_EQ(echo_.error, "the client has left");
}

TEST_F(HttpServerTest, SlowClientsEnd) {
  // A head, a body, and a reply that nobody takes: each waits for longer than it may.
  for (const std::string_view text :
       {"GET /a HT", "PUT /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhell", ""}) {
    TextStream stream(world_.loop());
    stream.feed(text);
    const int64_t begin_ns = world_.loop().now_ns();
    serve(stream);
    EXPECT_LE(world_.loop().now_ns() - begin_ns, 2 * kRateNs) << text;
  }
  TextStream stream(world_.loop());
  stream.feed("GET /a HTTP/1.1\r\n\r\n");
  stream.take(10);
  EXPECT_EQ(serve(stream), "HTTP/1.1 2");
}

TEST_F(HttpServerTest, Dates) {
  EXPECT_EQ(format_date(1369353600), "Fri, 24 May 2013 00:00:00 GMT");
  EXPECT_EQ(parse_date("Fri, 24 May 2013 00:00:00 GMT"), 1369353600);
  EXPECT_FALSE(parse_date("yesterday"));
  EXPECT_FALSE(parse_date("Fri, 24 May 2013 00:00:00"));
}

}  // namespace
}  // namespace ff::http
