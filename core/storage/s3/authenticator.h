// Who sends a request, and with which rights: it checks signatures with the root key of the
// cluster, and finds the user of the file system that a key stands for.
//
// A gateway without keys (--insecure) takes every request, signed or not, and acts for the user who
// runs it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "platform/auth/keyring.h"
#include "platform/base/clock.h"
#include "platform/base/wait.h"
#include "platform/http/request_head.h"
#include "storage/meta/meta_client.h"
#include "storage/s3/signature.h"

namespace ff::s3 {

struct Requester {
  meta::Caller caller;
  std::string name = {};  // "user/ann", or empty: there are no keys
  bool read_only = false;
  std::string top = {};  // it reaches only what is below this directory; empty: everything
};

struct Authentication {
  Requester requester;
  SignatureClaim claim;               // without a signature only `payload` is set
  std::optional<auth::Key> key = {};  // of the claim's day; empty: signatures are not checked
};

// The gid and the groups of users, as the metadata service has them.
class UserTable {
 public:
  UserTable(Loop& loop, meta::MetaClient& metadata);
  // Errc::not_found: there is no such user. Reads the table again when it is kUserTableNs old.
  Task<Result<meta::Caller>> find(uint32_t uid);

 private:
  Task<Result<void>> refresh();

  Loop& loop_;
  meta::MetaClient& metadata_;
  std::map<uint32_t, meta::Caller> users_;
  int64_t read_ns_ = INT64_MIN;
  Semaphore reading_;
};
constexpr int64_t kUserTableNs = 10 * kSecond;

// How far the clock of a client may be off.
constexpr int64_t kSkewS = 15 * 60;

class Authenticator {
 public:
  // `keyring`: with the root key; null: there are no keys, and everything happens as `self`.
  Authenticator(std::shared_ptr<const auth::Keyring> keyring, Clock& clock, UserTable& users,
                meta::Caller self)
      : keyring_(std::move(keyring)), clock_(clock), users_(users), self_(std::move(self)) {}

  // Errors are S3's.
  Task<Result<Authentication>> check(const http::RequestHead& head, const RequestTarget& target);

 private:
  Result<void> check_time(const SignatureClaim& claim) const;
  Result<auth::Entity> verify(const http::RequestHead& head, const RequestTarget& target,
                              Authentication& made) const;
  Task<Result<Requester>> requester_of(auth::Entity entity);

  std::shared_ptr<const auth::Keyring> keyring_;
  Clock& clock_;
  UserTable& users_;
  const meta::Caller self_;
};

}  // namespace ff::s3
