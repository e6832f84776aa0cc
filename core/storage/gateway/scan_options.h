// The words of SCAN and HSCAN: a cursor, then MATCH, COUNT and, for keys, TYPE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "storage/gateway/command.h"

namespace ff::gateway {

struct ScanOptions {
  uint64_t cursor = 0;
  size_t count = 10;
  std::optional<std::string> pattern;
  std::optional<std::string> type;  // in small letters
};

// `cursor`: the position of the cursor among the words; the options are behind it. The error is the
// reply.
Result<ScanOptions> parse_scan_options(const CommandCall& call, size_t cursor, bool takes_type);

}  // namespace ff::gateway
