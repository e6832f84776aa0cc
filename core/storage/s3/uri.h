// The target of a request: its path and its query, decoded; and the encoding that signatures and
// listings have.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/result.h"

namespace ff::s3 {

// Decodes %XX. Empty: a '%' without two digits behind it.
std::optional<std::string> percent_decode(std::string_view text);
// Encodes all bytes but A-Z a-z 0-9 - . _ ~, and '/' if it is `slashes` that stay.
std::string percent_encode(std::string_view text, bool slashes_stay);

using Query = std::vector<std::pair<std::string, std::string>>;  // decoded, in their order

struct RequestTarget {
  std::string path;  // decoded; begins with '/'
  Query query;

  // The value of a parameter; null: there is none.
  const std::string* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
};

// Errc::corrupt: it is no path with a query.
Result<RequestTarget> parse_target(std::string_view target);

}  // namespace ff::s3
