// expiry_options.cc: conversions that refuse what overflows.
#include "storage/gateway/expiry_options.h"

#include "storage/gateway/redis_numbers.h"

namespace ff::gateway {

namespace {

constexpr int64_t kMsPerSecond = 1000;

}  // namespace

Error invalid_expiry(const CommandRow& row) {
  return fail(Errc::usage, "ERR invalid expire time in '{}' command", row.name);
}

Result<int64_t> parse_expiry(const CommandCall& call, std::string_view text, ExpiryUnit unit) {
  const auto number = parse_integer(text);
  if (!number) return not_an_integer();
  int64_t ms = *number;
  if (unit.seconds && __builtin_mul_overflow(ms, kMsPerSecond, &ms))
    return invalid_expiry(call.row);
  if (!unit.absolute && __builtin_add_overflow(ms, call.view.now_ms(), &ms)) {
    return invalid_expiry(call.row);
  }
  return ms;
}

Result<int64_t> parse_positive_expiry(const CommandCall& call, std::string_view text,
                                      ExpiryUnit unit) {
  const auto number = parse_integer(text);
  if (!number) return not_an_integer();
  if (*number <= 0) return invalid_expiry(call.row);
  return parse_expiry(call, text, unit);
}

}  // namespace ff::gateway
