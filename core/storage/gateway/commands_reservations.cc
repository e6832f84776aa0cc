// Commands of ff.KV for large values: it writes them to the store by itself, in ranges that the
// owner reserves. Whatever does not work this way works with SET.
#include <string>

#include "storage/gateway/command_handlers.h"
#include "storage/gateway/expiry_options.h"
#include "storage/gateway/gateway.h"
#include "storage/gateway/redis_numbers.h"
#include "storage/gateway/reservation_text.h"

namespace ff::gateway {

namespace {

constexpr ExpiryUnit kReservedExpiry{.seconds = false, .absolute = false};

}  // namespace

// FF.RESERVE key bytes [PX milliseconds]
Task<Result<void>> run_ff_reserve(CommandCall& call) {
  const std::string& key = call.word(1);
  const auto bytes = parse_integer(call.word(2));
  if (!bytes || *bytes < 0) co_return not_an_integer();
  int64_t expires_ms = 0;
  if (call.size() > 3) {
    if (call.size() != 5 || !call.is_option(3, "PX")) co_return syntax_error();
    FF_CO_TRY(expires_ms, parse_positive_expiry(call, call.word(4), kReservedExpiry));
  }
  const auto size = static_cast<uint64_t>(*bytes);
  const auto reserved = co_await call.gateway.store().reserve(key, size, expires_ms);
  if (!reserved) co_return call.gateway.access().reply_of(key, reserved.error());
  call.reply.simple(encode_reservation(*reserved));
  co_return Result<void>();
}

// FF.CONFIRM key reservation
Task<Result<void>> run_ff_confirm(CommandCall& call) {
  const std::string& key = call.word(1);
  const auto reservation = parse_reservation(call.word(2));
  if (!reservation) co_return syntax_error();
  const auto confirmed = co_await call.gateway.store().confirm(key, *reservation);
  const StoreAccess& access = call.gateway.access();
  if (!confirmed) co_return access.reply_of(key, confirmed.error());
  if (!confirmed->done) {
    co_return fail(Errc::stale, "TRYAGAIN the range is not reserved any more");
  }
  access.watched.note_change(key);
  access.waits.announce(key);
  call.reply.ok();
  co_return Result<void>();
}

}  // namespace ff::gateway
