// Commands on keys of any type: whether they exist, until when, under which name.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "storage/gateway/command_handlers.h"
#include "storage/gateway/expiry_options.h"
#include "storage/gateway/gateway.h"
#include "storage/gateway/redis_numbers.h"

namespace ff::gateway {

namespace {

constexpr int64_t kMissing = -2, kForever = -1;  // replies of TTL
constexpr int64_t kHalfSecondMs = 500, kSecondMs = 1000;

Error usage(const char* text) { return Error{Errc::usage, text, {}}; }

// NX, XX, GT and LT of EXPIRE.
struct ExpireConditions {
  bool none = false, some = false, greater = false, less = false;

  bool allow(int64_t expires_ms, int64_t current_ms) const {
    const bool forever = current_ms == 0;
    if (none && !forever) return false;
    if (some && forever) return false;
    if (greater && (forever || expires_ms <= current_ms)) return false;
    return !less || forever || expires_ms < current_ms;
  }
};

Result<ExpireConditions> parse_conditions(const CommandCall& call) {
  ExpireConditions conditions;
  for (size_t i = 3; i < call.size(); i++) {
    if (call.is_option(i, "NX")) {
      conditions.none = true;
    } else if (call.is_option(i, "XX")) {
      conditions.some = true;
    } else if (call.is_option(i, "GT")) {
      conditions.greater = true;
    } else if (call.is_option(i, "LT")) {
      conditions.less = true;
    } else {
      return fail(Errc::usage, "ERR Unsupported option {}", call.word(i));
    }
  }
  if (conditions.none && (conditions.some || conditions.greater || conditions.less)) {
    return usage("ERR NX and XX, GT or LT options at the same time are not compatible");
  }
  if (conditions.greater && conditions.less) {
    return usage("ERR GT and LT options at the same time are not compatible");
  }
  return conditions;
}

// A copy of a collection gets pages of its own.
Task<Result<void>> copy_pages(CommandCall& call, const StoreView::StoredValue& value) {
  StoreView& view = call.view;
  std::string_view head = value.bytes;
  FF_CO_TRY(const PartSpace from, PartSpace::take(head, kvstore::redis_slot(call.word(1))));
  const PartSpace to{.slot = kvstore::redis_slot(call.word(2)),
                     .id = call.gateway.rng().next(),
                     .next_page = from.next_page};
  for (uint64_t page = 0; page < from.next_page; page++) {
    FF_CO_TRY(auto bytes, co_await view.get_part(from.name(page)));
    if (bytes) view.put_part(to.name(page), std::move(*bytes));
  }
  std::string copy = to.encode_head(stored_type(value.bytes));
  view.put_head(call.word(2), copy.append(head), value.expires_ms);
  co_return Result<void>();
}

// False: the source is missing.
Task<Result<bool>> copy_key(CommandCall& call, bool removes_source) {
  StoreView& view = call.view;
  const std::string &from = call.word(1), &to = call.word(2);
  FF_CO_TRY(auto value, co_await view.get(from));
  if (!value) co_return false;
  const ValueType type = stored_type(value->bytes);
  if (type == ValueType::string || type == ValueType::hash) {
    view.put(to, std::move(value->bytes), value->expires_ms);
  } else if (removes_source && kvstore::redis_slot(from) == kvstore::redis_slot(to)) {
    view.put_head(to, std::move(value->bytes), value->expires_ms);
  } else {
    FF_CO_TRY(co_await copy_pages(call, *value));
  }
  if (removes_source) view.remove(from);
  view.announce(to);
  co_return true;
}

Error no_such_key() { return usage("ERR no such key"); }

}  // namespace

// Which keys existed decides the reply, and a key that is named twice exists once.
Task<Result<void>> run_del(CommandCall& call) {
  int64_t removed = 0;
  for (size_t i = 1; i < call.size(); i++) {
    FF_CO_TRY(const auto expiry, call.view.find_expiry(call.word(i)));
    if (!expiry) continue;
    call.view.remove(call.word(i));
    removed++;
  }
  call.reply.integer(removed);
  co_return Result<void>();
}

Task<Result<void>> run_exists(CommandCall& call) {
  int64_t found = 0;
  for (size_t i = 1; i < call.size(); i++) {
    FF_CO_TRY(const auto expiry, call.view.find_expiry(call.word(i)));
    if (expiry) found++;
  }
  call.reply.integer(found);
  co_return Result<void>();
}

Task<Result<void>> run_expire(CommandCall& call) {
  FF_CO_TRY(const ExpireConditions conditions, parse_conditions(call));
  FF_CO_TRY(const int64_t expires_ms, parse_expiry(call, call.word(2), call.row.unit));
  const std::string& key = call.word(1);
  FF_CO_TRY(const auto current, call.view.find_expiry(key));
  const bool changes = current && conditions.allow(expires_ms, *current);
  if (changes && expires_ms <= 0) {
    call.view.remove(key);
  } else if (changes) {
    call.view.expire(key, expires_ms);
  }
  call.reply.integer(changes ? 1 : 0);
  co_return Result<void>();
}

// What is left of a key's time, or when it ends.
Task<Result<void>> run_ttl(CommandCall& call) {
  const ExpiryUnit unit = call.row.unit;
  FF_CO_TRY(const auto expiry, call.view.find_expiry(call.word(1)));
  if (!expiry || *expiry == 0) {
    call.reply.integer(expiry ? kForever : kMissing);
    co_return Result<void>();
  }
  int64_t ms = unit.absolute ? *expiry : std::max<int64_t>(0, *expiry - call.view.now_ms());
  if (unit.seconds) ms = (ms + kHalfSecondMs) / kSecondMs;
  call.reply.integer(ms);
  co_return Result<void>();
}

Task<Result<void>> run_persist(CommandCall& call) {
  FF_CO_TRY(const auto expiry, call.view.find_expiry(call.word(1)));
  const bool had_expiry = expiry && *expiry != 0;
  if (had_expiry) call.view.expire(call.word(1), 0);
  call.reply.integer(had_expiry ? 1 : 0);
  co_return Result<void>();
}

Task<Result<void>> run_type(CommandCall& call) {
  FF_CO_TRY(const auto value, co_await call.view.get(call.word(1)));
  call.reply.simple(value ? value_type_name(stored_type(value->bytes)) : "none");
  co_return Result<void>();
}

Task<Result<void>> run_rename(CommandCall& call) {
  if (call.word(1) == call.word(2)) {
    FF_CO_TRY(const auto expiry, call.view.find_expiry(call.word(1)));
    if (!expiry) co_return no_such_key();
  } else {
    FF_CO_TRY(const bool there, co_await copy_key(call, true));
    if (!there) co_return no_such_key();
  }
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_renamenx(CommandCall& call) {
  FF_CO_TRY(const auto source, call.view.find_expiry(call.word(1)));
  if (!source) co_return no_such_key();
  FF_CO_TRY(const auto target, call.view.find_expiry(call.word(2)));
  if (!target) {
    FF_CO_TRY(co_await copy_key(call, true));
  }
  call.reply.integer(target ? 0 : 1);
  co_return Result<void>();
}

Task<Result<void>> run_copy(CommandCall& call) {
  bool replaces = false;
  for (size_t i = 3; i < call.size(); i++) {
    if (call.is_option(i, "REPLACE")) {
      replaces = true;
    } else if (call.is_option(i, "DB") && i + 1 < call.size()) {
      const auto database = parse_integer(call.word(++i));
      if (!database) co_return not_an_integer();
      if (*database != 0) co_return usage("ERR DB index is out of range");
    } else {
      co_return syntax_error();
    }
  }
  if (call.word(1) == call.word(2)) {
    co_return usage("ERR source and destination objects are the same");
  }
  FF_CO_TRY(const auto target, call.view.find_expiry(call.word(2)));
  bool copied = false;
  if (!target || replaces) {
    FF_CO_TRY(copied, co_await copy_key(call, false));
  }
  call.reply.integer(copied ? 1 : 0);
  co_return Result<void>();
}

}  // namespace ff::gateway
