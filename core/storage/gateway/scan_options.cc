// scan_options.cc: checks words in the order in which Redis does.
#include "storage/gateway/scan_options.h"

#include <algorithm>

#include "platform/base/text.h"
#include "storage/gateway/redis_numbers.h"

namespace ff::gateway {

namespace {

constexpr int64_t kScanCountMax = 100'000;  // of one page: the loop serves others between pages

}  // namespace

Result<ScanOptions> parse_scan_options(const CommandCall& call, size_t cursor, bool takes_type) {
  ScanOptions options;
  const auto from = parse_u64(call.word(cursor));
  if (!from) return fail(Errc::usage, "ERR invalid cursor");
  options.cursor = *from;
  for (size_t i = cursor + 1; i < call.size(); i += 2) {
    if (i + 1 == call.size()) return syntax_error();
    if (call.is_option(i, "COUNT")) {
      const auto count = parse_integer(call.word(i + 1));
      if (!count) return not_an_integer();
      if (*count < 1) return syntax_error();
      options.count = static_cast<size_t>(std::min(*count, kScanCountMax));
    } else if (call.is_option(i, "MATCH")) {
      options.pattern = call.word(i + 1);
    } else if (call.is_option(i, "TYPE") && takes_type) {
      options.type = lower_case(call.word(i + 1));
    } else {
      return syntax_error();
    }
  }
  return options;
}

}  // namespace ff::gateway
