// The accounts of users with tokens (auth/keyring.h): identity, groups and valid tokens. A peer
// with the cluster key may act for any user and needs no account (wire.md, "Who may talk").
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
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

// The accounts that a server has read from its store a moment ago. Thread-safe.
class UserCache {
 public:
  using Account = std::shared_ptr<const UserAccount>;
  // Null: it must be read from the store. `changes`: for put().
  Account get(uint32_t uid, int64_t now_ns, uint64_t& changes) const;
  // Not if an account has changed since get(): what was read may be older.
  void put(Account user, int64_t now_ns, uint64_t changes);
  // The account has changed.
  void erase(uint32_t uid);

 private:
  struct Cached {
    Account user;
    int64_t since_ns = 0;
  };
  mutable std::mutex mutex_;
  std::map<uint32_t, Cached> cached_;
  uint64_t changes_ = 0;
};

class UserStore {
 public:
  // Both outlive it. `cache`: of all loops of the server.
  UserStore(kv::Engine& engine, Clock& clock,
            std::shared_ptr<UserCache> cache = std::make_shared<UserCache>())
      : engine_(engine), clock_(clock), cache_(std::move(cache)) {}
  const std::shared_ptr<UserCache>& cache() const { return cache_; }

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
  using Change = std::function<Result<void>(wire::User&)>;
  Task<Result<UserAccount>> change(uint32_t uid, Change how, bool create, bool removes = false);

  kv::Engine& engine_;
  Clock& clock_;
  const std::shared_ptr<UserCache> cache_;
};

// How long a server may accept a token that another server has revoked.
constexpr int64_t kUserCacheNs = 10 * kSecond;

}  // namespace ff::meta
