// Checks whether the tokens of users are valid (`ff admin user`), by the list of the metadata
// servers.
//
// An answer is never older than kCacheNs while the servers answer. While they do not, the last list
// counts for kOutageNs, so that users can stop and submit tasks meanwhile; then every user is
// refused until a server answers. Callers that may act for any user have no token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "platform/auth/entity.h"
#include "platform/base/wait.h"

namespace ff::scheduler {

class TokenChecker {
 public:
  using Tokens = std::set<std::pair<uint32_t, uint64_t>>;  // uid and serial
  using Source = std::function<Task<Result<Tokens>>()>;

  // `source`: requests the list of all valid tokens.
  TokenChecker(Loop& loop, Source source)
      : loop_(loop), source_(std::move(source)), answered_(loop) {}

  // Errc::refused: the token is not valid. Errc::failed: nobody can tell; the error says for how
  // long.
  Task<Result<void>> check(auth::TokenId token);

  // Half of the time in which servers must refuse a removed token: agents cache answers, too.
  static constexpr int64_t kCacheNs = 5 * kSecond;
  static constexpr int64_t kOutageNs = 300 * kSecond;

 private:
  bool has(auth::TokenId token) const { return valid_.contains({token.uid, token.serial}); }
  // The list was requested no longer than this ago.
  bool is_younger(int64_t age_ns) const { return loop_.now_ns() - listed_ns_ < age_ns; }
  Task<void> request_list();
  Error cannot_check() const;

  Loop& loop_;
  const Source source_;
  Tokens valid_;
  int64_t listed_ns_ = INT64_MIN / 2;     // the request that was answered last
  int64_t requested_ns_ = INT64_MIN / 2;  // the last request
  uint64_t requests_ = 0;
  bool is_requesting_ = false;
  Event answered_;
  std::optional<Error> last_error_;  // of the last request
};

}  // namespace ff::scheduler
