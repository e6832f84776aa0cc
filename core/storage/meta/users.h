// Users who hold tokens instead of the cluster's key (auth/token.h): who they are, and which of
// their tokens hold. Everybody else is whom the holder of the key says (wire.md, "Who may talk").
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "platform/auth/token.h"
#include "platform/base/clock.h"
#include "platform/kv/engine.h"
#include "storage/meta/access.h"

namespace ff::meta {

constexpr size_t kTokensMax = 16;  // of a user
constexpr size_t kUsersMax = 100'000;

struct User {
  uint32_t uid = 0;
  std::string name = {};  // for people
  uint32_t gid = 0;
  std::vector<uint32_t> groups = {};
  std::vector<uint64_t> serials = {};  // of the tokens that hold
};

class Users {
 public:
  // Both outlive it.
  Users(kv::Engine& engine, Clock& clock) : engine_(engine), clock_(clock) {}

  // Makes the user, or changes what is known of one.
  Task<Result<User>> set(User user);
  // A new token; the user is told which by its last serial. Errc::not_found, usage (too many).
  Task<Result<User>> add_token(uint32_t uid);
  // The user is gone, and none of the tokens holds: on other servers within kCachedNs.
  Task<Result<void>> remove(uint32_t uid);
  Task<Result<std::vector<User>>> list();

  // For whom a token's holder acts. Errc::refused: it does not hold any more.
  Task<Result<Caller>> caller(auth::User token);

 private:
  struct Cached {
    User user;
    int64_t since_ns = 0;
  };
  Task<Result<User>> change(uint32_t uid, std::function<Result<void>(wire::User&)> how, bool make);

  kv::Engine& engine_;
  Clock& clock_;
  std::map<uint32_t, Cached> cached_;
};

// What one server may go on believing of a user for whom another has withdrawn the tokens.
constexpr int64_t kCachedNs = 10 * kSecond;

}  // namespace ff::meta
