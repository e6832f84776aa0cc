// cache_request.cc: the members of a body.
#include "storage/kvcache/cache_request.h"

#include <utility>

#include "storage/kvcache/page_pool.h"
#include "storage/kvcache/pool_store.h"

namespace ff::kvcache {

namespace {

// Calls `element` for each element of an array.
template <class Element>
Result<void> read_array(JsonCursor& json, std::string_view name, Element element) {
  FF_TRY(json.enter('['));
  size_t count = 0;
  for (bool first = true;;) {
    FF_TRY(const bool another, json.more(first, ']'));
    if (!another) return {};
    if (++count > kBatchMax) {
      return fail(Errc::usage, "{}: more than {} elements", name, kBatchMax);
    }
    FF_TRY(element());
  }
}

// The end of an array of two.
Result<void> end_pair(JsonCursor& json, bool& first) {
  FF_TRY(const bool another, json.more(first, ']'));
  if (another) return fail(Errc::usage, "an array has more than two elements");
  return {};
}

Result<void> begin_second(JsonCursor& json, bool& first) {
  FF_TRY(const bool another, json.more(first, ']'));
  if (!another) return fail(Errc::usage, "an array has fewer than two elements");
  return {};
}

}  // namespace

Result<CacheRequest> CacheRequest::parse(std::string_view body, Keys keys) {
  CacheRequest request(body);
  FF_TRY(request.read(keys));
  return request;
}

Result<std::string_view> CacheRequest::read_key() {
  FF_TRY(const auto key, json_.string());
  if (key.size() > kKeyMax) {
    return fail(Errc::usage, "a key of {} bytes: the most are {}", key.size(), kKeyMax);
  }
  return key;
}

Result<void> CacheRequest::read_member(std::string_view name, Keys how) {
  if (name == "namespace") {
    FF_TRY(name_space, json_.string());
    const bool valid = !name_space.empty() && name_space.size() <= kNamespaceMax;
    if (!valid) return fail(Errc::usage, "namespace: must have 1 to {} bytes", kNamespaceMax);
    return {};
  }
  if (name == "num_pages") {
    FF_TRY(const int64_t count, json_.integer());
    pages = count;
    return {};
  }
  if (name == "keys") {
    auto& list = keys.emplace();
    return read_array(json_, name, [&]() -> Result<void> {
      bool first = true;
      if (how == Keys::with_prefix) {
        FF_TRY(json_.enter('['));
        FF_TRY(begin_second(json_, first));
      }
      FF_TRY(const auto key, read_key());
      list.push_back(key);
      if (how == Keys::alone) return {};
      FF_TRY(begin_second(json_, first));
      FF_TRY(read_key());
      return end_pair(json_, first);
    });
  }
  if (name == "written_keys_to_confirm") {
    written.clear();
    return read_array(json_, name, [&]() -> Result<void> {
      bool first = true;
      FF_TRY(json_.enter('['));
      FF_TRY(begin_second(json_, first));
      FF_TRY(const auto key, read_key());
      FF_TRY(begin_second(json_, first));
      FF_TRY(const int64_t page, json_.integer());
      written.emplace_back(key, page);
      return end_pair(json_, first);
    });
  }
  if (name == "pages_to_release") {
    released.clear();
    return read_array(json_, name, [&]() -> Result<void> {
      FF_TRY(const int64_t page, json_.integer());
      released.push_back(page);
      return {};
    });
  }
  return json_.skip();
}

Result<void> CacheRequest::read(Keys how) {
  FF_TRY(json_.enter('{'));
  for (bool first = true;;) {
    FF_TRY(const bool another, json_.more(first, '}'));
    if (!another) return json_.finish();
    FF_TRY(const auto name, json_.member());
    FF_TRY(read_member(name, how));
  }
}

}  // namespace ff::kvcache
