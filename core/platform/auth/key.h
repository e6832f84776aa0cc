// The cluster key: 32 random bytes that every server and mount of a cluster holds. Who holds it may
// act for any user.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::auth {

constexpr size_t kKeyBytes = 32;
using Key = std::array<std::byte, kKeyBytes>;

// Numbers nobody can guess: keys and nonces, from OpenSSL's generator.
class SecureRng final : public Rng {
 public:
  uint64_t next() override;
};
void fill_random(ByteSpan into, Rng& rng);
// HMAC-SHA256 of `data`.
Key hmac(const Key& key, ByteView data);
// Compares in a time that does not depend on the bytes.
bool equal_secrets(ByteView a, ByteView b);

// 64 lower-case hex digits.
std::optional<Key> parse_key(std::string_view digits);

// What a file holds that is its owner's alone, without the newline at its end; of more than
// `bytes_max` only the beginning. Errc::refused when others can read it. `what` it is: "key".
Result<std::string> read_secret_file(io::Disk& disk, const std::string& path, std::string_view what,
                                     size_t bytes_max);
// Makes a key at `path`, mode 0600, hex with a newline. Errc::exists: there is one already, which
// stays.
Result<void> make_key_file(io::Disk& disk, const std::string& path);
// Errc::refused when others can read the file, Errc::corrupt when it holds no key; the message
// never shows what it holds.
Result<Key> read_key_file(io::Disk& disk, const std::string& path);

}  // namespace ff::auth
