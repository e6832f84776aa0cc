// The cluster key: 32 random bytes that all servers and mounts of a cluster share. A holder of the
// key may act for any user.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "platform/auth/secret_memory.h"
#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::auth {

constexpr size_t kKeyBytes = 32;
// Overwritten when it is destroyed.
struct Key : std::array<std::byte, kKeyBytes> {
  constexpr ~Key() {
    if (!std::is_constant_evaluated()) cleanse(data(), size());
  }
};

// A key that came in a message; empty: not of this size.
std::optional<Key> key_of_bytes(std::string_view bytes);

// A cryptographically secure generator (OpenSSL's RAND_bytes), for keys and nonces.
class SecureRng final : public Rng {
 public:
  uint64_t next() override;
};
void fill_random(ByteSpan into, Rng& rng);
// HMAC-SHA256 of `data` (RFC 2104).
Key hmac_sha256(const Key& key, ByteView data);
// Compares in constant time, which does not depend on the bytes.
bool constant_time_equal(ByteView a, ByteView b);

// The value of a lower-case hex digit; -1 for any other character.
int hex_digit(char c);
// Appends 64 lower-case hex digits.
void append_hex(SecretText& text, const Key& key);
// Parses 64 lower-case hex digits.
std::optional<Key> parse_key(std::string_view digits);

// Reads a secret file without its final newline; of a file longer than `bytes_max` only the first
// bytes. Errc::refused if other users can read the file, or if it belongs to another user than root
// and that of this process. `what` names the secret in messages: "key". With `owner` the caller
// checks the owner itself.
Result<SecretText> read_secret_file(io::Disk& disk, const std::string& path, std::string_view what,
                                    size_t bytes_max, uint32_t* owner = nullptr);
Result<void> check_secret_owner(uint32_t owner, const std::string& path, std::string_view what);
// Creates a new key file at `path`: mode 0600, hex digits and a newline. Errc::exists if the file
// exists; it is not replaced.
Result<void> make_key_file(io::Disk& disk, const std::string& path);
// Errc::refused as read_secret_file(), Errc::corrupt if it does not hold a key. The message never
// shows the content.
Result<Key> read_key_file(io::Disk& disk, const std::string& path);

}  // namespace ff::auth
