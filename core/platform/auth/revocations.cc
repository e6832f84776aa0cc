// revocations.cc: the check of one key, and its messages.
#include "platform/auth/revocations.h"

#include <fmt/format.h>

namespace ff::auth {

namespace {

constexpr std::string_view kRevoked = "is revoked";

Error no_longer_valid(const Entity& entity, std::string cause) {
  Error error = fail(Errc::refused, "{}", cause);
  error.hint = entity.role == Role::user
                   ? fmt::format("Ask the operator for a new token: ff admin user token {}.",
                                 entity.uids.empty() ? 0 : entity.uids.front().first)
                   : fmt::format("Make a new one: ff admin key create {}.", entity.full_name());
  return error;
}

}  // namespace

Result<void> check_valid(const Revocations& revocations, const Entity& entity, int64_t now_s) {
  const auto revoked = revocations.serials.find(entity.full_name());
  if (revoked != revocations.serials.end() && entity.serial <= revoked->second) {
    return no_longer_valid(entity, fmt::format("the key of {} with the serial number {} {}",
                                               entity.full_name(), entity.serial, kRevoked));
  }
  const bool derived = entity.generation == 0;
  if (!derived && entity.generation + 1 < revocations.generation) {
    return no_longer_valid(
        entity, fmt::format("the key of {} is of generation {}, and this cluster accepts {} and {}",
                            entity.full_name(), entity.generation, revocations.generation - 1,
                            revocations.generation));
  }
  if (entity.expires_s != 0 && entity.expires_s <= now_s) {
    return no_longer_valid(entity, fmt::format("the key of {} expired {} s ago", entity.full_name(),
                                               now_s - entity.expires_s));
  }
  return {};
}

bool is_revoked(const Error& error) {
  return error.code == Errc::refused && error.message.find(kRevoked) != std::string::npos;
}

}  // namespace ff::auth
