// Commands on strings: whole values, parts of them, and numbers.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "storage/gateway/command_handlers.h"
#include "storage/gateway/expiry_options.h"
#include "storage/gateway/gateway.h"
#include "storage/gateway/redis_numbers.h"

namespace ff::gateway {

namespace {

constexpr ExpiryUnit kSecondsFromNow{.seconds = true, .absolute = false};
constexpr ExpiryUnit kMillisecondsFromNow{.seconds = false, .absolute = false};

Error string_too_long() {
  return fail(Errc::usage, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
}

void reply_bulk(RespWriter& reply, const std::optional<StoreView::StoredValue>& value) {
  if (value) {
    reply.bulk(value->bytes);
  } else {
    reply.null();
  }
}

// The options of SET and GETEX.
struct ValueOptions {
  bool not_exists = false, exists = false, get = false, keep_ttl = false, persist = false;
  std::optional<int64_t> expires_ms;
};

// "EX" and the like, in capitals.
std::optional<ExpiryUnit> expiry_unit(const CommandCall& call, size_t i) {
  if (call.is_option(i, "EX")) return kSecondsFromNow;
  if (call.is_option(i, "PX")) return kMillisecondsFromNow;
  if (call.is_option(i, "EXAT")) return ExpiryUnit{.seconds = true, .absolute = true};
  if (call.is_option(i, "PXAT")) return ExpiryUnit{.seconds = false, .absolute = true};
  return std::nullopt;
}

// An option of SET alone; false: it is none, or does not go with those before it.
bool take_set_option(const CommandCall& call, size_t i, ValueOptions& options) {
  if (call.is_option(i, "NX") && !options.exists) {
    options.not_exists = true;
  } else if (call.is_option(i, "XX") && !options.not_exists) {
    options.exists = true;
  } else if (call.is_option(i, "GET")) {
    options.get = true;
  } else if (call.is_option(i, "KEEPTTL") && !options.persist) {
    options.keep_ttl = true;
  } else {
    return false;
  }
  return true;
}

// The syntax is checked before the numbers, as Redis does it.
Result<ValueOptions> parse_value_options(const CommandCall& call, size_t first, bool is_set) {
  ValueOptions options;
  std::optional<std::pair<ExpiryUnit, size_t>> expiry;
  for (size_t i = first; i < call.size(); i++) {
    const auto unit = expiry_unit(call, i);
    if (unit && !expiry && !options.keep_ttl && !options.persist && i + 1 < call.size()) {
      expiry.emplace(*unit, ++i);
    } else if (is_set && !unit && take_set_option(call, i, options)) {
      if (options.keep_ttl && expiry) return syntax_error();
    } else if (!is_set && call.is_option(i, "PERSIST") && !expiry) {
      options.persist = true;
    } else {
      return syntax_error();
    }
  }
  if (expiry) {
    const auto& [unit, word] = *expiry;
    FF_TRY(options.expires_ms, parse_positive_expiry(call, call.word(word), unit));
  }
  return options;
}

Task<Result<void>> set_with_expiry(CommandCall& call, ExpiryUnit unit) {
  FF_CO_TRY(const int64_t expires_ms, parse_positive_expiry(call, call.word(2), unit));
  call.view.put_string(call.word(1), call.word(3), expires_ms);
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> increment(CommandCall& call, int64_t by) {
  FF_CO_TRY(const auto value, co_await call.view.get_string(call.word(1)));
  const auto before = value ? parse_integer(value->bytes) : std::optional<int64_t>(0);
  if (!before) co_return not_an_integer();
  int64_t after = 0;
  if (__builtin_add_overflow(*before, by, &after)) {
    co_return fail(Errc::usage, "ERR increment or decrement would overflow");
  }
  call.view.put_string(call.word(1), std::to_string(after), value ? value->expires_ms : 0);
  call.reply.integer(after);
  co_return Result<void>();
}

// [first, last] of GETRANGE as offset and size in a text of `size` bytes.
std::pair<size_t, size_t> part_of(int64_t first, int64_t last, size_t size) {
  const auto end = static_cast<int64_t>(size);
  if (first < 0 && last < 0 && first > last) return {0, 0};
  if (first < 0) first = std::max<int64_t>(0, first + end);
  if (last < 0) last = std::max<int64_t>(0, last + end);
  last = std::min(last, end - 1);
  if (first > last || size == 0) return {0, 0};
  return {static_cast<size_t>(first), static_cast<size_t>(last - first + 1)};
}

}  // namespace

Task<Result<void>> run_get(CommandCall& call) {
  FF_CO_TRY(const auto value, co_await call.view.get_string(call.word(1)));
  reply_bulk(call.reply, value);
  co_return Result<void>();
}

Task<Result<void>> run_set(CommandCall& call) {
  if (call.size() == 3) {
    call.view.put_string(call.word(1), call.word(2), 0);
    call.reply.ok();
    co_return Result<void>();
  }
  FF_CO_TRY(const ValueOptions options, parse_value_options(call, 3, true));
  const std::string& key = call.word(1);
  std::optional<StoreView::StoredValue> before;
  if (options.get) {
    FF_CO_TRY(before, co_await call.view.get_string(key));
  }
  FF_CO_TRY(const auto expiry, call.view.find_expiry(key));
  const bool refused = (options.not_exists && expiry) || (options.exists && !expiry);
  if (!refused) {
    const int64_t kept = options.keep_ttl ? expiry.value_or(0) : 0;
    call.view.put_string(key, call.word(2), options.expires_ms.value_or(kept));
  }
  if (options.get) {
    reply_bulk(call.reply, before);
  } else if (refused) {
    call.reply.null();
  } else {
    call.reply.ok();
  }
  co_return Result<void>();
}

Task<Result<void>> run_setnx(CommandCall& call) {
  FF_CO_TRY(const auto expiry, call.view.find_expiry(call.word(1)));
  if (!expiry) call.view.put_string(call.word(1), call.word(2), 0);
  call.reply.integer(expiry ? 0 : 1);
  co_return Result<void>();
}

Task<Result<void>> run_setex(CommandCall& call) {
  co_return co_await set_with_expiry(call, kSecondsFromNow);
}

Task<Result<void>> run_psetex(CommandCall& call) {
  co_return co_await set_with_expiry(call, kMillisecondsFromNow);
}

Task<Result<void>> run_mget(CommandCall& call) {
  std::vector<std::string> keys(call.words.begin() + 1, call.words.end());
  FF_CO_TRY(const auto values, co_await call.view.get_strings(std::move(keys)));
  call.reply.array(values.size());
  for (const auto& value : values) {
    if (value) {
      call.reply.bulk(*value);
    } else {
      call.reply.null();
    }
  }
  co_return Result<void>();
}

Task<Result<void>> run_mset(CommandCall& call) {
  if (call.size() % 2 == 0) co_return wrong_arity(call.row);
  for (size_t i = 1; i < call.size(); i += 2) {
    call.view.put_string(call.word(i), call.word(i + 1), 0);
  }
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_msetnx(CommandCall& call) {
  if (call.size() % 2 == 0) co_return wrong_arity(call.row);
  FF_CO_TRY(check_one_slot(keys_of(call.row, call.words)));
  bool all_new = true;
  for (size_t i = 1; i < call.size(); i += 2) {
    FF_CO_TRY(const auto expiry, call.view.find_expiry(call.word(i)));
    if (expiry) all_new = false;
  }
  for (size_t i = 1; all_new && i < call.size(); i += 2) {
    call.view.put_string(call.word(i), call.word(i + 1), 0);
  }
  call.reply.integer(all_new ? 1 : 0);
  co_return Result<void>();
}

Task<Result<void>> run_getset(CommandCall& call) {
  FF_CO_TRY(const auto value, co_await call.view.get_string(call.word(1)));
  call.view.put_string(call.word(1), call.word(2), 0);
  reply_bulk(call.reply, value);
  co_return Result<void>();
}

Task<Result<void>> run_getdel(CommandCall& call) {
  FF_CO_TRY(const auto value, co_await call.view.get_string(call.word(1)));
  if (value) call.view.remove(call.word(1));
  reply_bulk(call.reply, value);
  co_return Result<void>();
}

Task<Result<void>> run_getex(CommandCall& call) {
  FF_CO_TRY(const ValueOptions options, parse_value_options(call, 2, false));
  FF_CO_TRY(const auto value, co_await call.view.get_string(call.word(1)));
  if (value && options.expires_ms) call.view.expire(call.word(1), *options.expires_ms);
  if (value && options.persist && value->expires_ms != 0) call.view.expire(call.word(1), 0);
  reply_bulk(call.reply, value);
  co_return Result<void>();
}

Task<Result<void>> run_getrange(CommandCall& call) {
  const auto first = parse_integer(call.word(2));
  const auto last = parse_integer(call.word(3));
  if (!first || !last) co_return not_an_integer();
  FF_CO_TRY(const auto value, co_await call.view.get_string(call.word(1)));
  const std::string bytes = value ? value->bytes : std::string();
  const auto [offset, size] = part_of(*first, *last, bytes.size());
  call.reply.bulk(std::string_view(bytes).substr(offset, size));
  co_return Result<void>();
}

Task<Result<void>> run_setrange(CommandCall& call) {
  const auto offset = parse_integer(call.word(2));
  if (!offset) co_return not_an_integer();
  if (*offset < 0) co_return fail(Errc::usage, "ERR offset is out of range");
  const std::string& part = call.word(3);
  FF_CO_TRY(auto value, co_await call.view.get_string(call.word(1)));
  std::string bytes = value ? std::move(value->bytes) : std::string();
  if (!part.empty()) {
    const auto at = static_cast<size_t>(*offset);
    const size_t most = call.gateway.value_max();
    if (at > most || at + part.size() > most) co_return string_too_long();
    if (bytes.size() < at + part.size()) bytes.resize(at + part.size());
    bytes.replace(at, part.size(), part);
    call.view.put_string(call.word(1), bytes, value ? value->expires_ms : 0);
  }
  call.reply.integer(static_cast<int64_t>(bytes.size()));
  co_return Result<void>();
}

Task<Result<void>> run_append(CommandCall& call) {
  FF_CO_TRY(auto value, co_await call.view.get_string(call.word(1)));
  std::string bytes = value ? std::move(value->bytes) : std::string();
  if (bytes.size() + call.word(2).size() > call.gateway.value_max()) co_return string_too_long();
  bytes += call.word(2);
  call.reply.integer(static_cast<int64_t>(bytes.size()));
  call.view.put_string(call.word(1), std::move(bytes), value ? value->expires_ms : 0);
  co_return Result<void>();
}

Task<Result<void>> run_strlen(CommandCall& call) {
  FF_CO_TRY(const auto value, co_await call.view.get_string(call.word(1)));
  call.reply.integer(value ? static_cast<int64_t>(value->bytes.size()) : 0);
  co_return Result<void>();
}

Task<Result<void>> run_incr(CommandCall& call) { co_return co_await increment(call, 1); }

Task<Result<void>> run_decr(CommandCall& call) { co_return co_await increment(call, -1); }

Task<Result<void>> run_incrby(CommandCall& call) {
  const auto by = parse_integer(call.word(2));
  if (!by) co_return not_an_integer();
  co_return co_await increment(call, *by);
}

Task<Result<void>> run_decrby(CommandCall& call) {
  const auto by = parse_integer(call.word(2));
  if (!by) co_return not_an_integer();
  if (*by == INT64_MIN) co_return fail(Errc::usage, "ERR decrement would overflow");
  co_return co_await increment(call, -*by);
}

Task<Result<void>> run_incrbyfloat(CommandCall& call) {
  FF_CO_TRY(const auto value, co_await call.view.get_string(call.word(1)));
  const auto before = value ? parse_real(value->bytes) : std::optional<long double>(0);
  const auto by = parse_real(call.word(2));
  if (!before || !by) co_return fail(Errc::usage, "ERR value is not a valid float");
  const long double after = *before + *by;
  if (std::isnan(after) || std::isinf(after)) {
    co_return fail(Errc::usage, "ERR increment would produce NaN or Infinity");
  }
  const std::string text = format_real(after);
  call.view.put_string(call.word(1), text, value ? value->expires_ms : 0);
  call.reply.bulk(text);
  co_return Result<void>();
}

}  // namespace ff::gateway
