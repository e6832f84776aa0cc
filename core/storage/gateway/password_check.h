// Who may use a gateway: the password of AUTH is the text of a token or of another key file
// (auth/keyring.h), on one line or on several. A gateway that holds the root key verifies it
// without asking anybody. The user of AUTH is "default", or the name of the entity ("ann",
// "user/ann").
//
// Rights follow the folder of the store, as they do for its files: an entity that may act for the
// owner of the folder or for root reads and writes; any other as the mode of the folder says for
// others. Keys that are restricted to a directory must have the folder below it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "platform/auth/keyring.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"

namespace ff::gateway {

// The folder of a store.
struct FolderAccess {
  uint32_t owner = 0;
  uint32_t mode = 0700;
  std::string cluster_path = {};  // empty: it is in no cluster
};

struct PasswordResult {
  auth::Entity entity;
  bool read_only = false;
};

class PasswordCheck {
 public:
  // `keyring`: of a manager, with the root key; null: there are no keys, and every client may do
  // everything.
  PasswordCheck(std::shared_ptr<const auth::Keyring> keyring, Clock& clock)
      : keyring_(std::move(keyring)), clock_(clock) {}

  // Before the first check().
  void set_folder(FolderAccess folder) { folder_ = std::move(folder); }

  bool required() const { return keyring_ != nullptr; }
  // The error is the reply: "WRONGPASS ..." or "NOPERM ...".
  Result<PasswordResult> check(std::string_view user, std::string_view password) const;
  // Whether a client that has logged in may go on: its key is not revoked and has not expired.
  bool still_valid(const auth::Entity& entity) const;

 private:
  Result<auth::Entity> verify(std::string_view password) const;
  Result<PasswordResult> authorize(auth::Entity entity) const;

  std::shared_ptr<const auth::Keyring> keyring_;
  FolderAccess folder_;
  Clock& clock_;
};

}  // namespace ff::gateway
