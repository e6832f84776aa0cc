// Heads of requests: what is valid, what is refused, and how long bodies are.
#include "platform/http/request_head.h"

#include <gtest/gtest.h>

namespace ff::http {
namespace {

RequestHead head_of(std::string_view text) {
  auto head = parse_head(text);
  EXPECT_TRUE(head) << text;
  return head ? std::move(*head) : RequestHead();
}

TEST(RequestHeadTest, LineAndFields) {
  const RequestHead head = head_of(
      "PUT /a%20b?c=d HTTP/1.1\r\nHost: x:1\r\nX-Amz-Meta-A: \t one  two \r\nEmpty:\r\n\r\n");
  EXPECT_EQ(head.method, "PUT");
  EXPECT_EQ(head.target, "/a%20b?c=d");
  EXPECT_EQ(head.minor, 1);
  EXPECT_EQ(head.value("host"), "x:1");
  EXPECT_EQ(head.value("x-amz-meta-a"), "one  two");
  ASSERT_NE(head.find("empty"), nullptr);
  EXPECT_EQ(*head.find("empty"), "");
  EXPECT_EQ(head.find("none"), nullptr);
}

TEST(RequestHeadTest, EndIsBehindTheEmptyLine) {
  EXPECT_EQ(head_end("GET / HTTP/1.1\r\n\r\nrest"), 18U);
  EXPECT_FALSE(head_end("GET / HTTP/1.1\r\n\r"));
}

TEST(RequestHeadTest, RefusesWhatPeersUnderstandDifferently) {
  for (const std::string_view text : {
           "GET /\r\n\r\n",
           "GET / HTTP/2.0\r\n\r\n",
           "GET  / HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1 \r\n\r\n",
           "G(T / HTTP/1.1\r\n\r\n",
           "GET /\x01 HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1\nHost: a\r\n\r\n",
           "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
           "GET / HTTP/1.1\r\nno colon\r\n\r\n",
           "GET / HTTP/1.1\r\n: no name\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\x01\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
           "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
           "\r\n\r\n",
           "GET / HTTP/1.1\r\n",
       }) {
    EXPECT_FALSE(parse_head(text)) << text;
  }
}

TEST(RequestHeadTest, RefusesTooManyFields) {
  std::string text = "GET / HTTP/1.1\r\n";
  for (size_t i = 0; i < kFieldsMax; i++) text += "a: b\r\n";
  EXPECT_TRUE(parse_head(text + "\r\n"));
  EXPECT_FALSE(parse_head(text + "a: b\r\n\r\n"));
}

TEST(RequestHeadTest, LengthOfTheBody) {
  const auto length = [](std::string_view fields) {
    return body_length(head_of("PUT / HTTP/1.1\r\n" + std::string(fields) + "\r\n"));
  };
  EXPECT_EQ(*length(""), 0U);
  EXPECT_EQ(*length("Content-Length: 17\r\n"), 17U);
  EXPECT_FALSE(length("Transfer-Encoding: Chunked\r\n")->has_value());
  EXPECT_FALSE(length("Content-Length: -1\r\n"));
  EXPECT_FALSE(length("Content-Length: 1, 1\r\n"));
  EXPECT_FALSE(length("Content-Length: 18446744073709551615\r\n"));
  EXPECT_FALSE(length("Content-Length: 1\r\nContent-Length: 1\r\n"));
  EXPECT_FALSE(length("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"));
  EXPECT_FALSE(length("Transfer-Encoding: gzip, chunked\r\n"));
  EXPECT_FALSE(body_length(head_of("PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n")));
}

TEST(RequestHeadTest, ConnectionStaysOpen) {
  EXPECT_TRUE(keeps_connection(head_of("GET / HTTP/1.1\r\n\r\n")));
  EXPECT_FALSE(keeps_connection(head_of("GET / HTTP/1.1\r\nConnection: te, Close\r\n\r\n")));
  EXPECT_FALSE(keeps_connection(head_of("GET / HTTP/1.0\r\n\r\n")));
  EXPECT_TRUE(keeps_connection(head_of("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")));
}

}  // namespace
}  // namespace ff::http
