// Heads and chunks of HTTP from anywhere: no crash, bounded memory, and the same data and the same
// errors however the bytes are cut.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/check.h"
#include "platform/http/chunk_parser.h"
#include "platform/http/request_head.h"

namespace {

using namespace ff;
using namespace ff::http;

struct Outcome {
  std::string data;
  std::vector<Field> trailers;
  bool failed = false;
  bool ended = false;
  bool operator==(const Outcome&) const = default;
};

Outcome parse(std::string_view text, size_t piece) {
  Outcome outcome;
  ChunkParser parser;
  size_t begin = 0, end = 0;
  for (;;) {
    const auto step = parser.next(as_bytes(text.substr(begin, end - begin)));
    if (!step) {
      outcome.failed = true;
      break;
    }
    begin += step->consumed;
    FF_CHECK(begin <= end);
    outcome.data += as_text(step->data);
    if (step->event == ChunkParser::Event::end) {
      outcome.ended = true;
      break;
    }
    if (step->event != ChunkParser::Event::need_more) continue;
    if (end == text.size()) break;
    end += std::min(piece, text.size() - end);
  }
  if (outcome.ended) outcome.trailers = parser.trailers();
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto end = head_end(text)) {
    if (const auto head = parse_head(text.substr(0, *end))) {
      FF_CHECK(head->fields.size() <= kFieldsMax && !head->method.empty());
      (void)body_length(*head);
      (void)keeps_connection(*head);
    }
    text.remove_prefix(*end);
  }
  const Outcome whole = parse(text, SIZE_MAX);
  FF_CHECK(parse(text, 1) == whole);
  FF_CHECK(parse(text, 7) == whole);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const std::string head = "PUT /a?b=c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  return {head + "4;chunk-signature=ab\r\nwiki\r\n0\r\nx-sum: abc=\r\n\r\n",
          "GET / HTTP/1.0\r\nContent-Length: 17\r\nConnection: keep-alive, x\r\n\r\n",
          "\r\n\r\n4\r\nwiki\r\n5\r\npedia\r\n0\r\n\r\n"};
}
