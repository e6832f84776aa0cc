// The accounts of users with tokens (auth/keyring.h): identity, groups and valid tokens. A peer
// with the cluster key may act for any user and needs no account (wire.md, "Who may talk").
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "platform/auth/entity.h"
#include "platform/base/clock.h"
#include "platform/kv/engine.h"
#include "storage/meta/access.h"

namespace ff::meta {

constexpr size_t kTokensMax = 16;  // per user
constexpr size_t kUsersMax = 100'000;

struct UserAccount {
  uint32_t uid = 0;
  std::string name = {};  // for display
  uint32_t gid = 0;
  std::vector<uint32_t> groups = {};
  std::vector<uint64_t> serials = {};  // of the valid tokens
};

// The name of the user's entity (auth/entity.h): that of the account, or its number if names of
// entities cannot be like it.
std::string entity_name(const UserAccount& user);

class UserStore {
 public:
  // Both outlive it.
  UserStore(kv::Engine& engine, Clock& clock) : engine_(engine), clock_(clock) {}

  // Creates or updates the account.
  Task<Result<UserAccount>> set(UserAccount user);
  // Issues a token; its serial is the last one of the result. Errc::not_found, usage (too many).
  Task<Result<UserAccount>> add_token(uint32_t uid);
  // Removes the user and revokes all tokens: other metadata servers follow within kUserCacheNs,
  // storage nodes with the revocations of keys (cluster/key_store.h).
  Task<Result<void>> remove(uint32_t uid);
  Task<Result<std::vector<UserAccount>>> list();

  // The caller that a token stands for. Errc::refused: the token is revoked.
  Task<Result<Caller>> caller_of(auth::TokenId token);

 private:
  struct Cached {
    UserAccount user;
    int64_t since_ns = 0;
  };
  using Change = std::function<Result<void>(wire::User&)>;
  Task<Result<UserAccount>> change(uint32_t uid, Change how, bool create, bool removes = false);

  kv::Engine& engine_;
  Clock& clock_;
  std::map<uint32_t, Cached> cached_;
};

// How long a server may accept a token that another server has revoked.
constexpr int64_t kUserCacheNs = 10 * kSecond;

}  // namespace ff::meta
