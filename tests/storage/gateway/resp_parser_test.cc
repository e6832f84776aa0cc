// Requests of the Redis protocol: whatever the pieces, bad input, bounds.
#include "storage/gateway/resp_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "platform/base/rng.h"
#include "storage/gateway/inline_words.h"
#include "storage/gateway/redis_world.h"

namespace ff::gateway {
namespace {

using Requests = std::vector<RespRequest>;

// Feeds `text` in pieces of `piece` bytes; the first error ends it.
Result<Requests> parse_in_pieces(RespParser& parser, std::string_view text, size_t piece) {
  Requests requests;
  while (!text.empty()) {
    const ByteSpan space = parser.space();
    EXPECT_FALSE(space.empty());
    const size_t part = std::min({piece, text.size(), space.size()});
    std::memcpy(space.data(), text.data(), part);
    parser.commit(part);
    text.remove_prefix(part);
    for (;;) {
      FF_TRY(auto request, parser.next());
      if (!request) break;
      requests.push_back(std::move(*request));
    }
  }
  return requests;
}

std::string error_of(std::string_view text, RespLimits limits = {}) {
  RespParser parser;
  parser.set_limits(limits);
  const auto parsed = parse_in_pieces(parser, text, text.size());
  if (parsed) return "none";
  EXPECT_EQ(parser.next().error().message, parsed.error().message);
  return parsed.error().message;
}

TEST(RespParserTest, RequestsSplitAtEveryByte) {
  const Requests requests = {{"SET", "key", std::string("a\r\nb\0c", 6)},
                             {"PING"},
                             {"GET", ""},
                             {"MSET", "a", std::string(300, 'x'), "b", "*1\r\n$4\r\n"}};
  std::string text;
  for (const auto& words : requests) text += encode_request(words);
  text += "\r\nping  \"a b\"\r\n*0\r\n*-1\r\nGET k\n";
  Requests all = requests;
  all.push_back({"ping", "a b"});
  all.push_back({"GET", "k"});
  for (size_t split = 1; split < text.size(); split++) {
    RespParser parser;
    auto first = parse_in_pieces(parser, std::string_view(text).substr(0, split), split);
    const auto rest = parse_in_pieces(parser, std::string_view(text).substr(split), SIZE_MAX);
    ASSERT_TRUE(first.ok() && rest.ok()) << split;
    first->insert(first->end(), rest->begin(), rest->end());
    EXPECT_EQ(*first, all) << split;
    EXPECT_EQ(parser.buffered(), 0u);
  }
  RespParser parser;
  EXPECT_EQ(parse_in_pieces(parser, text, 1).value(), all);
}

TEST(RespParserTest, LongWordsInAnyPieces) {
  const Requests all = {{"SET", "a", std::string(32 * kKiB - 3, 'a')},
                        {"SET", "b", std::string(32 * kKiB - 2, 'b')},
                        {"SET", std::string(200 * kKiB, 'k'), std::string(kMiB + 1, 'c')},
                        {"PING"}};
  std::string text;
  for (const auto& words : all) text += encode_request(words);
  for (const size_t piece : {size_t{1021}, size_t{4096}, size_t{50'000}, text.size()}) {
    RespParser parser;
    EXPECT_TRUE(parse_in_pieces(parser, text, piece).value() == all) << piece;
    EXPECT_EQ(parser.buffered(), 0u);
  }
}

TEST(RespParserTest, RandomRequestsInRandomPieces) {
  SeededRng rng(17);
  for (int round = 0; round < 200; round++) {
    Requests all;
    std::string text;
    for (uint64_t i = 0; i < 1 + rng.next() % 20; i++) {
      RespRequest words(1 + rng.next() % 5);
      for (std::string& word : words) {
        const uint64_t size = rng.next() % 10 == 0 ? rng.next() % 70'000 : rng.next() % 50;
        for (uint64_t k = 0; k < size; k++) word += static_cast<char>(rng.next());
      }
      text += encode_request(words);
      all.push_back(std::move(words));
    }
    RespParser parser;
    const size_t piece = 1 + rng.next() % 5000;
    ASSERT_TRUE(parse_in_pieces(parser, text, piece).value() == all) << round;
  }
}

TEST(RespParserTest, BadInputHasTheErrorsOfRedis) {
  EXPECT_EQ(error_of("*a\r\n"), "Protocol error: invalid multibulk length");
  EXPECT_EQ(error_of("*1048577\r\n"), "Protocol error: invalid multibulk length");
  EXPECT_EQ(error_of("*1\r\n:1\r\n"), "Protocol error: expected '$', got ':'");
  EXPECT_EQ(error_of("*1\r\n\x1b[2J\r\n"), "Protocol error: expected '$', got '\\x1b'");
  EXPECT_EQ(error_of("*1\r\n$-1\r\n"), "Protocol error: invalid bulk length");
  EXPECT_EQ(error_of("*1\r\n$536870913\r\n"), "Protocol error: invalid bulk length");
  EXPECT_EQ(error_of("*1\r\n$99999999999999999999\r\n"), "Protocol error: invalid bulk length");
  EXPECT_EQ(error_of("*1\r\n$1\r\nabc"), "Protocol error: expected CRLF behind a bulk string");
  EXPECT_EQ(error_of("get \"a\r\n"), "Protocol error: unbalanced quotes in request");
  EXPECT_EQ(error_of(std::string(70'000, 'a')), "Protocol error: too big inline request");
  EXPECT_EQ(error_of("*" + std::string(70'000, '1')), "Protocol error: too big mbulk count string");
  EXPECT_EQ(error_of("*1\r\n$" + std::string(70'000, '1')),
            "Protocol error: too big bulk count string");
  std::string large = encode_request({std::string(40'000, 'x')});
  large[large.size() - 1] = 'y';
  EXPECT_EQ(error_of(large), "Protocol error: expected CRLF behind a bulk string");
}

TEST(RespParserTest, BoundsBeforeAuthentication) {
  EXPECT_EQ(error_of("*11\r\n", kRespLimitsBeforeAuth),
            "Protocol error: unauthenticated multibulk length");
  EXPECT_EQ(error_of("*1\r\n$16385\r\n", kRespLimitsBeforeAuth),
            "Protocol error: unauthenticated bulk length");
  EXPECT_EQ(error_of(encode_request({"AUTH", std::string(16384, 'x')}), kRespLimitsBeforeAuth),
            "none");
}

TEST(RespParserTest, AllWordsOfARequestAreBounded) {
  RespLimits limits;
  limits.request_max = 100;
  EXPECT_EQ(error_of(encode_request({std::string(60, 'x'), std::string(60, 'x')}), limits),
            "Protocol error: too big request");
  EXPECT_EQ(
      error_of(encode_request({std::string(60, 'x')}) + encode_request({std::string(60, 'x')}),
               limits),
      "none");
}

// A length costs nothing before its bytes arrive.
TEST(RespParserTest, WhatIsAnnouncedTakesNoMemory) {
  RespParser parser;
  ASSERT_TRUE(parse_in_pieces(parser, "*2\r\n$536870912\r\nabc", SIZE_MAX).ok());
  EXPECT_EQ(parser.buffered(), 3u);
  EXPECT_LE(parser.space().size(), 128 * kKiB);
}

TEST(RespParserTest, APipelineOfManyRequests) {
  constexpr size_t kRequests = 100'000;
  std::string text;
  for (size_t i = 0; i < kRequests; i++)
    text += encode_request({"SET", std::to_string(i), "value"});
  RespParser parser;
  const auto all = parse_in_pieces(parser, text, SIZE_MAX).value();
  ASSERT_EQ(all.size(), kRequests);
  EXPECT_EQ(all.back(), (RespRequest{"SET", "99999", "value"}));
  parser.release_memory();
  EXPECT_EQ(parse_in_pieces(parser, "PING\r\n", SIZE_MAX).value().size(), 1u);
}

TEST(InlineWordsTest, QuotesAndEscapes) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(split_inline("  set  k \"a b\"\t'c d' "), (Words{"set", "k", "a b", "c d"}));
  EXPECT_EQ(split_inline(R"("\x41\xff\n\r\t\a\b\"\\\q")"),
            (Words{std::string("A\xff\n\r\t\a\b\"\\q")}));
  EXPECT_EQ(split_inline(R"('it\'s \n')"), (Words{"it's \\n"}));
  EXPECT_EQ(split_inline(R"(a"b c"d)"), std::nullopt);
  EXPECT_EQ(split_inline(R"(a"b c")"), (Words{"ab c"}));
  EXPECT_EQ(split_inline("'open"), std::nullopt);
  EXPECT_EQ(split_inline("\"open\\\""), std::nullopt);
  EXPECT_EQ(split_inline("''"), (Words{""}));
  EXPECT_EQ(split_inline(" \t"), (Words{}));
}

}  // namespace
}  // namespace ff::gateway
