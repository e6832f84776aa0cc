// token_checker.cc: a cached list of valid tokens.
#include "cmd/schedule/token_checker.h"

#include "platform/base/gate.h"
#include "platform/base/log.h"

namespace ff::cmd {

namespace {

constexpr int64_t kRequestTimeoutNs = 5 * kSecond;
// An unknown token may be new; this limits the rate of requests for unknown tokens.
constexpr int64_t kUnknownRetryNs = kSecond;

}  // namespace

Task<Result<void>> TokenChecker::check(auth::TokenId token) {
  const int64_t called_ns = loop_.now_ns();
  while (requested_ns_ < called_ns || is_requesting_) {
    if (is_requesting_) {
      FF_CO_TRY(co_await answered_.wait());
      continue;
    }
    const bool is_valid = has(token);
    const int64_t next_ns = requested_ns_ + (is_valid ? kCacheNs : kUnknownRetryNs);
    if (loop_.now_ns() >= next_ns) {
      co_await request_users();
    } else if (is_valid) {
      co_return Result<void>();
    } else {
      FF_CO_TRY(co_await sleep_until(loop_, next_ns));
    }
  }
  if (has(token)) co_return Result<void>();
  if (last_error_) {
    Error error = fail(Errc::failed, "the scheduler cannot check tokens: {}", last_error_->message);
    error.hint = "Is 'ff serve-meta' running at the address of --meta of the scheduler?";
    co_return error;
  }
  Error error = fail(Errc::refused, "token {} of user {} is revoked", token.serial, token.uid);
  error.hint = "The operator can create a new one: 'ff admin user token'.";
  co_return error;
}

Task<void> TokenChecker::request_users() {
  requested_ns_ = loop_.now_ns();
  is_requesting_ = true;
  answered_.reset();
  auto users =
      co_await with_deadline(loop_, loop_.now_ns() + kRequestTimeoutNs,
                             "no serve-meta answered the request for valid tokens", meta_.users())
          .shielded();  // other callers wait for it, too
  is_requesting_ = false;
  answered_.set();
  if (!users) {
    if (!last_error_) {
      log_warning("cannot check tokens", {{"cause", users.error().message}});
    }
    last_error_ = std::move(users).error();
    co_return;
  }
  last_error_.reset();
  valid_.clear();
  for (const auto& user : *users) {
    for (const uint64_t serial : user.serials()) valid_.emplace(user.uid(), serial);
  }
}

}  // namespace ff::cmd
