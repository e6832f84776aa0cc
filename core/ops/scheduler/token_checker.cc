// token_checker.cc: requests for the list, and how long it counts.
#include "ops/scheduler/token_checker.h"

#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/base/units.h"

namespace ff::scheduler {

namespace {

constexpr int64_t kRequestTimeoutNs = 5 * kSecond;
// Limits the rate of requests: for unknown tokens, which may be new, and while nobody answers.
constexpr int64_t kRetryNs = kSecond;

}  // namespace

Task<Result<void>> TokenChecker::check(auth::TokenId token) {
  const uint64_t before = requests_;
  for (;;) {
    if (has(token) && is_younger(kCacheNs)) co_return Result<void>();
    // A list that was requested after this call decides, or the failure to get one.
    if (is_requesting_) {
      FF_CO_TRY(co_await answered_.wait());
      continue;
    }
    if (requests_ != before) break;
    const int64_t next_ns = requested_ns_ + kRetryNs;
    // During an outage a known token does not wait for each attempt to end it.
    if (last_error_ && has(token) && is_younger(kOutageNs) &&
        loop_.now_ns() < requested_ns_ + kCacheNs) {
      co_return Result<void>();
    }
    if (loop_.now_ns() < next_ns) {
      FF_CO_TRY(co_await sleep_until(loop_, next_ns));
      continue;
    }
    co_await request_list();
  }
  if (last_error_ && !(has(token) && is_younger(kOutageNs))) co_return cannot_check();
  if (has(token)) co_return Result<void>();
  Error error = fail(Errc::refused, "token {} of user {} is revoked", token.serial, token.uid);
  error.hint = "The operator can create a new one: 'ff admin user token'.";
  co_return error;
}

Error TokenChecker::cannot_check() const {
  const int64_t age_ns = loop_.now_ns() - listed_ns_;
  const std::string since = listed_ns_ < 0
                                ? "since the scheduler started"
                                : fmt::format("for {} (users are refused after {})",
                                              format_duration(age_ns), format_duration(kOutageNs));
  Error error = fail(Errc::failed,
                     "the scheduler cannot check tokens: no metadata server has listed them {}: {}",
                     since, last_error_->message);
  error.hint =
      "Is 'ff serve-meta' running at the address of --meta of the scheduler? Operators with the "
      "cluster key are served meanwhile.";
  return error;
}

Task<void> TokenChecker::request_list() {
  const int64_t sent_ns = requested_ns_ = loop_.now_ns();
  requests_++;
  is_requesting_ = true;
  answered_.reset();
  auto listed = co_await with_deadline(loop_, sent_ns + kRequestTimeoutNs,
                                       "no serve-meta answered the request for valid tokens",
                                       source_())
                    .shielded();  // other callers wait for it, too
  is_requesting_ = false;
  answered_.set();
  if (!listed) {
    if (!last_error_) log_warning("cannot check tokens", {{"cause", listed.error().message}});
    last_error_ = std::move(listed).error();
    co_return;
  }
  if (last_error_) log_info("tokens can be checked again");
  last_error_.reset();
  listed_ns_ = sent_ns;
  valid_ = *std::move(listed);
}

}  // namespace ff::scheduler
