// The chunked coding, however its bytes arrive.
#include "platform/http/chunk_parser.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ff::http {
namespace {

struct Parsed {
  std::string data;
  std::vector<std::string> extensions;
  std::vector<Field> trailers;
  size_t consumed = 0;
  bool ended = false;
  std::string error;
  bool operator==(const Parsed&) const = default;
};

Parsed parse(std::string_view text, size_t piece) {
  Parsed parsed;
  ChunkParser parser;
  size_t available = 0;
  while (!parsed.ended) {
    const auto step =
        parser.next(as_bytes(text.substr(parsed.consumed, available - parsed.consumed)));
    if (!step) {
      parsed.error = step.error().message;
      return parsed;
    }
    parsed.consumed += step->consumed;
    parsed.data += as_text(step->data);
    if (step->event == ChunkParser::Event::chunk_begin) {
      parsed.extensions.push_back(parser.extension());
    }
    parsed.ended = step->event == ChunkParser::Event::end;
    if (step->event == ChunkParser::Event::need_more) {
      if (available == text.size()) break;
      available = std::min(text.size(), available + piece);
    }
  }
  parsed.trailers = parser.trailers();
  return parsed;
}

TEST(ChunkParserTest, DataExtensionsAndTrailers) {
  const std::string text =
      "4;chunk-signature=ab\r\nwiki\r\n5\r\npedia\r\nE\r\n in\r\n\r\nchunks.\r\n0;x\r\n"
      "X-Sum:  abc= \r\nOther: 1\r\n\r\n";
  const Parsed whole = parse(text + "GET /", 1000);
  EXPECT_EQ(whole.data, "wikipedia in\r\n\r\nchunks.");
  EXPECT_EQ(whole.extensions, (std::vector<std::string>{"chunk-signature=ab", "", "", "x"}));
  EXPECT_EQ(whole.trailers, (std::vector<Field>{{"x-sum", "abc="}, {"other", "1"}}));
  EXPECT_EQ(whole.consumed, text.size());
  EXPECT_TRUE(whole.ended);
  for (const size_t piece : {1, 2, 3, 7}) EXPECT_EQ(parse(text + "GET /", piece), whole) << piece;
}

TEST(ChunkParserTest, RefusesWhatIsNoChunk) {
  for (const std::string_view text : {"\r\n", "x\r\n", "-1\r\n", "4\nwiki", "4\r\nwikix\r\n",
                                      "1000000000000000\r\n", " 4\r\n", "0\r\nno colon\r\n\r\n"}) {
    EXPECT_NE(parse(text, 100).error, "") << text;
    EXPECT_NE(parse(text, 1).error, "") << text;
  }
}

TEST(ChunkParserTest, LinesAndTrailersAreBounded) {
  EXPECT_NE(parse("4;" + std::string(ChunkParser::kLineMax, 'a'), 1000).error, "");
  std::string text = "0\r\n";
  for (int i = 0; i < 10'000; i++) text += "a:b\r\n";
  EXPECT_NE(parse(text + "\r\n", 1000).error, "");
}

}  // namespace
}  // namespace ff::http
