// cache_operations.cc: what each request for a KV cache does.
#include <utility>

#include "storage/kvcache/cache_service.h"

namespace ff::kvcache {

namespace {

Result<std::vector<std::string_view>> required_keys(const CacheRequest& request) {
  if (!request.keys) return fail(Errc::usage, "keys: missing");
  return *request.keys;
}

Task<Result<std::string>> run_initialize(CacheCall call) {
  const auto& pages = call.request.pages;
  if (!pages) co_return fail(Errc::usage, "num_pages: missing");
  if (*pages <= 0 || static_cast<uint64_t>(*pages) > kPagesMax) {
    co_return fail(Errc::usage, "num_pages: {} is not from 1 to {}", *pages, kPagesMax);
  }
  FF_CO_TRY(co_await call.pools.initialize(call.name, static_cast<uint64_t>(*pages)));
  co_return std::string();
}

Task<Result<std::string>> run_exists(CacheCall call) {
  FF_CO_TRY(const auto keys, required_keys(call.request));
  FF_CO_TRY(const PagePool* const pool, co_await call.pools.open(call.name));
  std::string text = "{\"exists\":[";
  for (const std::string_view key : keys) {
    text += pool->find(key) ? "true," : "false,";
  }
  if (!keys.empty()) text.pop_back();
  co_return text + "]}";
}

Task<Result<std::string>> run_get_page_indices(CacheCall call) {
  FF_CO_TRY(const auto keys, required_keys(call.request));
  FF_CO_TRY(PagePool* const pool, co_await call.pools.open(call.name));
  const PoolTime now = call.pools.now();
  std::string text = "{\"indices\":[";
  for (const std::string_view key : keys) {
    const auto page = pool->find(key);
    if (page) pool->touch(*page, now);
    text += page ? fmt::format_int(*page).c_str() : "null";
    text += ',';
  }
  if (!keys.empty()) text.pop_back();
  co_return text + "]}";
}

Task<Result<std::string>> run_reserve(CacheCall call) {
  FF_CO_TRY(auto keys, required_keys(call.request));
  FF_CO_TRY(const auto pages, co_await call.pools.reserve(call.name, std::move(keys)));
  std::string text = "{\"indices\":[";
  for (const Reservation& reservation : pages) {
    text += reservation.exists ? "[true," : "[false,";
    text += fmt::format_int(reservation.page).c_str();
    text += "],";
  }
  if (!pages.empty()) text.pop_back();
  co_return text + "]}";
}

Task<Result<std::string>> run_confirm_write(CacheCall call) {
  std::vector<PoolStore::KeyPage> written = call.request.written;
  std::vector<int64_t> released = call.request.released;
  FF_CO_TRY(co_await call.pools.confirm(call.name, std::move(written), std::move(released)));
  co_return std::string();
}

Task<Result<std::string>> run_delete_keys(CacheCall call) {
  FF_CO_TRY(auto keys, required_keys(call.request));
  FF_CO_TRY(co_await call.pools.remove(call.name, std::move(keys)));
  co_return std::string();
}

Task<Result<std::string>> run_clear(CacheCall call) {
  FF_CO_TRY(co_await call.pools.clear(call.name));
  co_return std::string();
}

}  // namespace

const std::vector<CacheOperation>& cache_operations() {
  constexpr auto kAlone = CacheRequest::Keys::alone;
  static const std::vector<CacheOperation> kOperations = {
      {"initialize", true, kAlone, run_initialize},
      {"exists", false, kAlone, run_exists},
      {"get_page_indices", false, kAlone, run_get_page_indices},
      {"reserve_and_allocate_page_indices", true, CacheRequest::Keys::with_prefix, run_reserve},
      {"confirm_write", true, kAlone, run_confirm_write},
      {"delete_keys", true, kAlone, run_delete_keys},
      {"clear", true, kAlone, run_clear},
  };
  return kOperations;
}

}  // namespace ff::kvcache
