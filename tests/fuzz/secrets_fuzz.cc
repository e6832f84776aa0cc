// Identities, key files and capabilities from anywhere: no crash; what is read is the text it came
// from, and what was not signed gives nobody anything.
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "platform/auth/test_entities.h"
#include "platform/base/check.h"
#include "storage/chain/capability.h"

namespace {

using namespace ff;

constexpr uint64_t kInode = 7;
constexpr int64_t kNow = 1'000'000;
// Fuzzed bytes are checked with a key that signs none of the seeds.
constexpr auth::Key kKey = {std::byte{1}};

void check_keys(std::string_view text) {
  const auto entity = auth::parse_identity(text);
  if (entity) FF_CHECK(auth::format_identity(*entity) == text);
  if (!entity) FF_CHECK(entity.error().code == Errc::corrupt);
  const auto keyring = auth::parse_key_text(text);
  if (keyring) FF_CHECK(text.starts_with(auth::format_identity((*keyring)->self())));
  if (!keyring) FF_CHECK(keyring.error().code == Errc::corrupt);
}

// A keyring whose capabilities are signed with this key.
auth::Keyring& keyring_of(const auth::Key& key) {
  static std::map<auth::Key, auth::Keyring> all;
  auth::Keyring& keyring =
      all.try_emplace(key, auth::Entity{.role = auth::Role::storage, .name = "3"}).first->second;
  keyring.set_capability_keys({{1, key}});
  return keyring;
}

std::string capability(uint64_t inode, uint32_t rights, int64_t expires_ns) {
  return chain::sign_capability({}, {.inode = inode,
                                     .rights = rights,
                                     .expires_ns = expires_ns,
                                     .entity = "user/u1000",
                                     .serial = 7,
                                     .uid = 1000});
}

void check_capability(std::string_view bytes) {
  const auth::Entity holder = auth::user_entity({1000, 7});
  const auth::Keyring& other_keys = keyring_of(kKey);
  const auth::Keyring& keys = keyring_of({});
  for (const uint32_t right : {chain::kRightRead, chain::kRightWrite}) {
    const auto checked = chain::check_capability(other_keys, bytes, holder, kInode, right, kNow);
    FF_CHECK(!checked && checked.error().code == Errc::refused);
    FF_CHECK(!chain::is_capability_expired(checked.error()));  // not before the mac is right
    // With the key that does sign, nothing but the bits that it signed may change the answer.
    const auto other = chain::check_capability(keys, bytes, holder, kInode, right, kNow);
    if (!other) FF_CHECK(other.error().code == Errc::refused);
    if (!other) continue;
    FF_CHECK(!chain::check_capability(keys, bytes, holder, kInode + 1, right, kNow));
    FF_CHECK(
        !chain::check_capability(keys, bytes, auth::user_entity({1001, 7}), kInode, right, kNow));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_keys(input);
  check_capability(input);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  constexpr int64_t kForever = std::numeric_limits<int64_t>::max();
  const auth::Entity mount{.role = auth::Role::mount,
                           .name = "host7",
                           .serial = UINT64_MAX,
                           .uids = {{0, 999}, {1000, UINT32_MAX}},
                           .path = "/a b",
                           .read_only = true,
                           .expires_s = 1};
  return {auth::token_text({}, {1000, 7}),
          auth::format_identity(mount),
          auth::make_key_text({}, {.role = auth::Role::storage, .name = "3"}),
          capability(kInode, chain::kRightRead | chain::kRightWrite, kForever),
          capability(kInode, chain::kRightRead, kNow),
          capability(UINT64_MAX, UINT32_MAX, -1)};
}
