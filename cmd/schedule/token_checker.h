// Checks whether tokens of users are valid (`ff admin user`), by asking the metadata servers.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "platform/auth/entity.h"
#include "platform/base/wait.h"
#include "storage/meta/meta_client.h"

namespace ff::cmd {

class TokenChecker {
 public:
  // `context` must outlive it, and have the cluster key.
  TokenChecker(rpc::ClientContext& context, const std::vector<net::Address>& servers)
      : loop_(context.loop), meta_(context, servers), answered_(context.loop) {}
  Task<void> close() { return meta_.close(); }

  // Errc::refused: the token is not valid; the answer may be up to kCacheNs old. While no server
  // answers, the last list counts; Errc::failed if it does not contain the token.
  Task<Result<void>> check(auth::TokenId token);

  static constexpr int64_t kCacheNs = 10 * kSecond;

 private:
  bool has(auth::TokenId token) const { return valid_.contains({token.uid, token.serial}); }
  Task<void> request_users();

  Loop& loop_;
  meta::MetaClient meta_;
  std::set<std::pair<uint32_t, uint64_t>> valid_;  // valid tokens: uid and serial
  int64_t requested_ns_ = INT64_MIN / 2;
  bool is_requesting_ = false;
  Event answered_;
  std::optional<Error> last_error_;  // the error of the last request
};

}  // namespace ff::cmd
