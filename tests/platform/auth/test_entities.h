// Entities, and the keys that follow from them, for the tests of all floors.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "platform/auth/keyring.h"

namespace ff::auth {

inline Entity user_entity(TokenId user) {
  return {.role = Role::user,
          .name = "u" + std::to_string(user.uid),
          .serial = user.serial,
          .uids = {{user.uid, user.uid}}};
}

inline Entity admin_entity(std::string name) {
  return {.role = Role::admin, .name = std::move(name)};
}

// The keys of a holder of the root key; null without one.
inline std::shared_ptr<Keyring> root_keyring(const std::optional<Key>& root, Role role,
                                             std::string name = "test") {
  if (!root) return nullptr;
  return Keyring::from_root(*root, Entity{.role = role, .name = std::move(name)});
}

// The text of a user's token.
inline std::string token_text(const Key& root, TokenId user) {
  return make_key_text(root, user_entity(user));
}

}  // namespace ff::auth
