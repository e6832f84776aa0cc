// Commands on all keys that this process serves. Those of other owners are theirs to list.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/gateway/command_handlers.h"
#include "storage/gateway/gateway.h"
#include "storage/gateway/keyspace_scan.h"
#include "storage/gateway/redis_numbers.h"
#include "storage/gateway/scan_options.h"

namespace ff::gateway {

namespace {

constexpr size_t kKeysPage = 1000;

// Whether a key has the type that SCAN asks for.
Task<Result<bool>> has_type(StoreView& view, std::string key, std::string_view type) {
  FF_CO_TRY(const auto value, co_await view.get(std::move(key)));
  co_return value&& value_type_name(stored_type(value->bytes)) == type;
}

void reply_keys(RespWriter& reply, const std::vector<std::string>& keys) {
  reply.array(keys.size());
  for (const std::string& key : keys) reply.bulk(key);
}

}  // namespace

Task<Result<void>> run_scan(CommandCall& call) {
  FF_CO_TRY(const ScanOptions options, parse_scan_options(call, 1, true));
  FF_CO_TRY(auto page, co_await read_key_page(call.view, options.cursor, options.count));
  std::vector<std::string> found;
  for (std::string& key : page.keys) {
    if (options.pattern && !matches_pattern(*options.pattern, key)) continue;
    if (options.type) {
      FF_CO_TRY(const bool fits, co_await has_type(call.view, key, *options.type));
      if (!fits) continue;
    }
    found.push_back(std::move(key));
  }
  call.reply.array(2);
  call.reply.bulk(std::to_string(page.next));
  reply_keys(call.reply, found);
  co_return Result<void>();
}

Task<Result<void>> run_keys(CommandCall& call) {
  std::vector<std::string> found;
  for (uint64_t cursor = 0;;) {
    FF_CO_TRY(auto page, co_await read_key_page(call.view, cursor, kKeysPage));
    for (std::string& key : page.keys) {
      if (matches_pattern(call.word(1), key)) found.push_back(std::move(key));
    }
    cursor = page.next;
    if (cursor == 0) break;
  }
  reply_keys(call.reply, found);
  co_return Result<void>();
}

Task<Result<void>> run_randomkey(CommandCall& call) {
  FF_CO_TRY(const auto key, co_await random_key(call.view, call.gateway.rng()));
  if (key) {
    call.reply.bulk(*key);
  } else {
    call.reply.null();
  }
  co_return Result<void>();
}

Task<Result<void>> run_dbsize(CommandCall& call) {
  FF_CO_TRY(const auto own, call.view.access().own_partitions());
  uint64_t keys = 0;
  for (const uint32_t partition : own) keys += call.view.store().counts(partition).keys;
  call.reply.integer(static_cast<int64_t>(keys));
  co_return Result<void>();
}

Task<Result<void>> run_flushall(CommandCall& call) {
  const bool known = call.size() == 1 || call.is_option(1, "ASYNC") || call.is_option(1, "SYNC");
  if (!known || call.size() > 2) co_return syntax_error();
  FF_CO_TRY(const auto own, call.view.access().own_partitions());
  for (const uint32_t partition : own) {
    const auto cleared = co_await call.view.store().clear(partition);
    if (!cleared) co_return StoreAccess::reply_of(cleared.error());
  }
  call.reply.ok();
  co_return Result<void>();
}

}  // namespace ff::gateway
