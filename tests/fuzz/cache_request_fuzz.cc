// Bodies of requests for a KV cache, and stored blocks of its pages, from anywhere: no crash, what
// is accepted is JSON within the limits, and what a block has is stored the same again.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/check.h"
#include "platform/base/text.h"
#include "storage/kvcache/cache_request.h"
#include "storage/kvcache/page_pool.h"

namespace {

using namespace ff;
using namespace ff::kvcache;

void check_body(std::string_view body) {
  for (const auto how : {CacheRequest::Keys::alone, CacheRequest::Keys::with_prefix}) {
    const auto request = CacheRequest::parse(body, how);
    if (!request) continue;
    if (valid_utf8(body)) FF_CHECK(nlohmann::json::accept(body));
    FF_CHECK(!request->name_space.empty());
    if (!request->keys) continue;
    FF_CHECK(request->keys->size() <= kBatchMax);
    for (const std::string_view key : *request->keys) FF_CHECK(key.size() <= kKeyMax);
  }
}

void check_block(std::string_view stored) {
  PagePool pool(100, "secret");
  if (!pool.load_block(0, stored)) return;
  pool.finish_load(1, {});
  FF_CHECK(pool.used() + pool.reserved() <= kPagesPerBlock);
  const std::string again = pool.encode_block(0, {}, {});
  if (again.empty()) return;
  PagePool other(100, "other");
  FF_CHECK(other.load_block(0, again));
  other.finish_load(1, {});
  FF_CHECK(other.encode_block(0, {}, {}) == again);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_body(text);
  check_block(text);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  PagePool pool(64, "secret");
  PagePlan plan;
  plan[1] = {.state = PageState::used, .key = std::string(PackedKey("0123abcd-k").text())};
  plan[2] = {.state = PageState::reserved, .key = std::string(PackedKey("key").text())};
  PagePicker(pool, {}, {}).next();
  return {R"({"keys":["a","b\u0041\ud83d\ude00\n"],"namespace":"kv"})",
          R"({"keys":[["a",""],["b","a"]]})",
          R"({"written_keys_to_confirm":[["a",0],["b",-1]],"pages_to_release":[1,2]})",
          R"({"num_pages":100,"x":[{"y":[1.5e-3,true,false,null]}]})",
          std::string(101, '['),
          pool.encode_block(0, plan, {})};
}
