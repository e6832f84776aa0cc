// token.cc: deriving user keys, formatting and parsing tokens.
#include "platform/auth/token.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "platform/base/bytes.h"
#include "platform/base/text.h"

namespace ff::auth {

namespace {

constexpr std::string_view kFormat = "ff1";
constexpr size_t kParts = 4;
// "ff1-4294967295-18446744073709551615-" and the digits of the key.
constexpr size_t kTextMax = 36 + 2 * kKeyBytes;

}  // namespace

Key user_key(const Key& cluster, TokenId user) {
  std::array<std::byte, sizeof(uint32_t) + sizeof(uint64_t)> numbers;
  store_le<uint32_t>(numbers.data(), user.uid);
  store_le<uint64_t>(numbers.data() + sizeof(uint32_t), user.serial);
  std::string said = "ff user|";
  said += as_text(numbers);
  return hmac_sha256(cluster, as_bytes(said));
}

Token make_token(const Key& cluster, TokenId user) { return {user, user_key(cluster, user)}; }

std::string format_token(const Token& token) {
  return fmt::format("{}-{}-{}-{}", kFormat, token.user.uid, token.user.serial, hex(token.key));
}

Result<Token> parse_token(std::string_view text) {
  const auto parts = split(text, '-');
  if (parts.size() == kParts) {
    const auto uid = parse_u64(parts[1]);
    const auto serial = parse_u64(parts[2]);
    const auto key = parse_key(parts[3]);
    if (uid && *uid <= std::numeric_limits<uint32_t>::max() && serial && key) {
      const Token token{{static_cast<uint32_t>(*uid), *serial}, *key};
      if (format_token(token) == text) return token;
    }
  }
  return fail(Errc::corrupt, "not a token (ff1-UID-SERIAL-KEY)");
}

Result<Token> read_token_file(io::Disk& disk, const std::string& path) {
  FF_TRY(const std::string text, read_secret_file(disk, path, "token", kTextMax));
  auto token = parse_token(text);
  if (token) return token;
  Error error = fail(Errc::corrupt, "{}: {}", path, token.error().message);
  error.hint = "The file must hold exactly the one-line token from the cluster administrator.";
  return error;
}

}  // namespace ff::auth
