// Requests of the Redis protocol from anywhere: no crash, bounded memory, and the same requests and
// the same error however the bytes are cut.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/check.h"
#include "storage/gateway/resp_parser.h"

namespace {

using namespace ff;
using namespace ff::gateway;

struct Outcome {
  std::vector<RespRequest> requests;
  std::string error;
  bool operator==(const Outcome&) const = default;
};

Outcome parse(std::string_view text, size_t piece) {
  constexpr size_t kSpaceMax = 256 * kKiB;
  Outcome outcome;
  RespParser parser;
  while (!text.empty()) {
    const ByteSpan space = parser.space();
    FF_CHECK(!space.empty() && space.size() <= kSpaceMax);
    const size_t part = std::min({piece, text.size(), space.size()});
    std::memcpy(space.data(), text.data(), part);
    parser.commit(part);
    text.remove_prefix(part);
    for (;;) {
      auto request = parser.next();
      if (!request) {
        outcome.error = request.error().message;
        return outcome;
      }
      if (!*request) break;
      FF_CHECK(!(*request)->empty());
      outcome.requests.push_back(std::move(**request));
    }
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Outcome whole = parse(text, SIZE_MAX);
  FF_CHECK(parse(text, 1) == whole);
  FF_CHECK(parse(text, 7) == whole);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const std::string set = "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nva\r\nl\r\n";
  return {set, set + "PING\r\n" + set,
          "*1\r\n$4\r\nPING\r\n*0\r\n*-1\r\n\r\nGET \"a b\\x41\" 'c'\r\n",
          "*2\r\n$0\r\n\r\n$40000\r\n" + std::string(40'000, 'v') + "\r\n",
          "*1048576\r\n$536870912\r\n"};
}
