// capability.cc: signing, and verification of the MAC before everything it protects.
#include "storage/chain/capability.h"

#include "platform/base/bytes.h"
#include "platform/base/text.h"
#include "storage/chain/chain.pb.h"

namespace ff::chain {

namespace {

constexpr std::string_view kExpired = "the capability has expired";

auth::Key mac_of(const auth::Key& key, const Capability& capability) {
  std::string said = "ff capability|";
  append_le(said, capability.inode);
  append_le(said, capability.rights);
  append_le(said, static_cast<uint64_t>(capability.expires_ns));
  append_le(said, capability.serial);
  append_le(said, capability.uid);
  append_le(said, capability.client);
  append_le(said, capability.session);
  append_le(said, capability.generation);
  said += capability.entity;
  return auth::hmac_sha256(key, as_bytes(said));
}

std::string_view name_of(uint32_t right) { return right == kRightWrite ? "write" : "read"; }

}  // namespace

std::string sign_capability(const auth::Key& key, const Capability& capability) {
  wire::Capability out;
  out.set_inode(capability.inode);
  out.set_rights(capability.rights);
  out.set_expires_ns(capability.expires_ns);
  out.set_entity(capability.entity);
  out.set_serial(capability.serial);
  out.set_uid(capability.uid);
  out.set_client(capability.client);
  out.set_session(capability.session);
  out.set_generation(capability.generation);
  const auth::Key mac = mac_of(key, capability);
  out.set_mac(std::string(as_text(mac)));
  return out.SerializeAsString();
}

Result<Capability> verify_capability(const auth::Keyring& keyring, std::string_view bytes) {
  wire::Capability in;
  if (!in.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return fail(Errc::refused, "the capability is malformed");
  }
  Capability said{.inode = in.inode(),
                  .rights = in.rights(),
                  .expires_ns = in.expires_ns(),
                  .entity = in.entity(),
                  .serial = in.serial(),
                  .uid = in.uid(),
                  .client = in.client(),
                  .session = in.session(),
                  .generation = in.generation()};
  const auto key = keyring.capability_key(said.generation);
  if (!key) {
    return fail(Errc::refused, "there is no key for capabilities of generation {}",
                said.generation);
  }
  if (!auth::constant_time_equal(as_bytes(in.mac()), mac_of(*key, said))) {
    return fail(Errc::refused, "the capability was not signed with the key of this cluster");
  }
  return said;
}

Result<void> check_capability(const auth::Keyring& keyring, std::string_view bytes,
                              const auth::Entity& holder, uint64_t inode, uint32_t right,
                              int64_t now_wall_ns) {
  if (bytes.empty()) return fail(Errc::refused, "access to file {} requires a capability", inode);
  FF_TRY(const Capability said, verify_capability(keyring, bytes));
  if (said.entity != holder.full_name() || said.serial != holder.serial) {
    return fail(Errc::refused, "the capability belongs to {}, not to {}", printable(said.entity),
                holder.full_name());
  }
  if (said.inode != inode) {
    return fail(Errc::refused, "the capability is for file {}, not {}", said.inode, inode);
  }
  if ((said.rights & right) == 0) {
    return fail(Errc::refused, "the capability does not grant {} access to file {}", name_of(right),
                inode);
  }
  if (now_wall_ns >= said.expires_ns) {
    Error error = fail(Errc::refused, "{} (for file {})", kExpired, inode);
    error.hint = "Request a new one. If that does not help, compare the clocks of the machines.";
    return error;
  }
  return {};
}

bool is_capability_expired(const Error& error) {
  return error.code == Errc::refused && error.message.find(kExpired) != std::string::npos;
}

}  // namespace ff::chain
