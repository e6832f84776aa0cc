// Which keys servers refuse although they are derived from the root key: revoked ones, those of old
// generations, and expired ones. The managers keep the list (storage/cluster/key_store.h), and
// every server has a copy of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "platform/auth/entity.h"
#include "platform/base/result.h"

namespace ff::auth {

struct Revocations {
  uint64_t version = 0;     // increases with each change
  uint32_t generation = 1;  // the current one; servers accept it and the one before
  // The highest serial number that is revoked, by the full name of the entity.
  std::map<std::string, uint64_t> serials = {};
  bool operator==(const Revocations&) const = default;
};

// Errc::refused: the key of this entity is not valid any more. The message names the entity and the
// cause, the hint the next step. `now_s`: seconds since 1970.
Result<void> check_valid(const Revocations& revocations, const Entity& entity, int64_t now_s);
// Whether the error says that a key was revoked: it will never be valid again. Decided by the
// message, because only the message is transmitted.
bool is_revoked(const Error& error);

}  // namespace ff::auth
