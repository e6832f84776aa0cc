// The bodies of requests for a KV cache: one JSON object with known members; others are ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/result.h"

namespace ff::kvcache {

constexpr size_t kBodyMax = 16 * 1024 * 1024;  // bytes of a body
constexpr size_t kBatchMax = 65'536;           // keys or pages in one array

struct CacheRequest {
  // How `keys` has its keys: alone, or each in an array with the key of its prefix behind it.
  enum class Keys : uint8_t { alone, with_prefix };

  // Errc::usage: not JSON, wrong types, too much of anything.
  static Result<CacheRequest> parse(std::string_view body, Keys keys);

  std::string_view name_space = "kv";
  std::optional<int64_t> pages = {};                               // num_pages
  std::optional<std::vector<std::string_view>> keys = {};          // keys; without prefixes
  std::vector<std::pair<std::string_view, int64_t>> written = {};  // written_keys_to_confirm
  std::vector<int64_t> released = {};                              // pages_to_release

  std::deque<std::string> strings = {};  // what the views above are of
};

}  // namespace ff::kvcache
