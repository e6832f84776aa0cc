// held_tokens.cc: the list of users, as it was a moment ago.
#include "cmd/schedule/held_tokens.h"

#include "platform/base/gate.h"
#include "platform/base/log.h"

namespace ff::cmd {

namespace {

constexpr int64_t kAskNs = 5 * kSecond;
// A token that is not in the list may be a new one; those who try cost no more than this.
constexpr int64_t kUnknownNs = kSecond;

}  // namespace

Task<Result<void>> HeldTokens::check(auth::User token) {
  const int64_t came_ns = loop_.now_ns();
  while (asked_ns_ < came_ns || is_asking_) {
    if (is_asking_) {
      FF_CO_TRY(co_await answered_.wait());
      continue;
    }
    const bool is_held = has(token);
    const int64_t next_ns = asked_ns_ + (is_held ? kBelievedNs : kUnknownNs);
    if (loop_.now_ns() >= next_ns) {
      auto asking = ask();
      co_await std::move(asking);
    } else if (is_held) {
      co_return Result<void>();
    } else {
      FF_CO_TRY(co_await until(loop_, next_ns));
    }
  }
  if (has(token)) co_return Result<void>();
  if (trouble_) {
    Error error =
        fail(Errc::failed, "the scheduler does not know the valid tokens: {}", trouble_->message);
    error.hint = "Is 'ff serve-meta' running where the scheduler's --meta says?";
    co_return error;
  }
  Error error =
      fail(Errc::refused, "token {} of user {} is no longer valid", token.serial, token.uid);
  error.hint = "The operator can create a new one: 'ff admin user token'.";
  co_return error;
}

Task<void> HeldTokens::ask() {
  asked_ns_ = loop_.now_ns();
  is_asking_ = true;
  answered_.reset();
  auto listing =
      with_deadline(loop_, loop_.now_ns() + kAskNs, "no serve-meta has answered", names_.users());
  auto users = co_await std::move(listing).shielded();  // others wait for it, too
  is_asking_ = false;
  answered_.set();
  if (!users) {
    if (!trouble_) {
      log_warning("the scheduler does not know the valid tokens",
                  {{"cause", users.error().message}});
    }
    trouble_ = std::move(users).error();
    co_return;
  }
  trouble_.reset();
  held_.clear();
  for (const auto& user : *users) {
    for (const uint64_t serial : user.serials()) held_.emplace(user.uid(), serial);
  }
}

}  // namespace ff::cmd
