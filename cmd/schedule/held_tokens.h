// Which tokens of users hold ('ff admin user'): the servers of the file system know.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "platform/auth/token.h"
#include "platform/base/wait.h"
#include "storage/meta/meta_client.h"

namespace ff::cmd {

class HeldTokens {
 public:
  // `context` outlives it, and has the cluster key.
  HeldTokens(rpc::ClientContext& context, const std::vector<net::Address>& servers)
      : loop_(context.loop), names_(context, servers), answered_(context.loop) {}
  Task<void> close() { return names_.close(); }

  // Errc::refused: it does not, for up to kBelievedNs already. While no server answers, what they
  // said last counts; Errc::failed when that does not name the token.
  Task<Result<void>> check(auth::User token);

  static constexpr int64_t kBelievedNs = 10 * kSecond;

 private:
  bool has(auth::User token) const { return held_.contains({token.uid, token.serial}); }
  Task<void> ask();

  Loop& loop_;
  meta::MetaClient names_;
  std::set<std::pair<uint32_t, uint64_t>> held_;  // uid and serial
  int64_t asked_ns_ = INT64_MIN / 2;
  bool is_asking_ = false;
  Event answered_;
  std::optional<Error> trouble_;  // of the last time they were asked
};

}  // namespace ff::cmd
