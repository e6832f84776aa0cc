// capability.cc: signing, and verification of the MAC before everything it protects.
#include "storage/chain/capability.h"

#include <array>

#include "platform/base/bytes.h"
#include "storage/chain/chain.pb.h"

namespace ff::chain {

namespace {

constexpr std::string_view kExpired = "the capability has expired";

auth::Key mac_of(const auth::Key& cluster, const Capability& capability) {
  constexpr size_t kRightsAt = sizeof(uint64_t);
  constexpr size_t kExpiresAt = kRightsAt + sizeof(uint32_t);
  std::array<std::byte, kExpiresAt + sizeof(uint64_t)> numbers;
  store_le<uint64_t>(numbers.data(), capability.inode);
  store_le<uint32_t>(numbers.data() + kRightsAt, capability.rights);
  store_le<uint64_t>(numbers.data() + kExpiresAt, static_cast<uint64_t>(capability.expires_ns));
  std::string said = "ff capability|";
  said += as_text(numbers);
  return auth::hmac_sha256(cluster, as_bytes(said));
}

std::string_view name_of(uint32_t right) { return right == kRightWrite ? "write" : "read"; }

}  // namespace

std::string sign_capability(const auth::Key& cluster, const Capability& capability) {
  wire::Capability out;
  out.set_inode(capability.inode);
  out.set_rights(capability.rights);
  out.set_expires_ns(capability.expires_ns);
  const auth::Key mac = mac_of(cluster, capability);
  out.set_mac(std::string(as_text(mac)));
  return out.SerializeAsString();
}

Result<void> check_capability(const auth::Key& cluster, std::string_view bytes, uint64_t inode,
                              uint32_t right, int64_t now_wall_ns) {
  if (bytes.empty()) return fail(Errc::refused, "access to file {} requires a capability", inode);
  wire::Capability in;
  if (!in.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return fail(Errc::refused, "the capability is malformed");
  }
  const Capability said{.inode = in.inode(), .rights = in.rights(), .expires_ns = in.expires_ns()};
  const auth::Key mac = mac_of(cluster, said);
  if (!auth::constant_time_equal(as_bytes(in.mac()), mac)) {
    return fail(Errc::refused, "the capability was not signed with the key of this cluster");
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
