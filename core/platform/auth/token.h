// Tokens: what users hold who do not hold the cluster key. A token is a key of its own for one
// user, derived from the cluster key: whoever holds that knows every token, and a token says
// nothing of it, nor of other tokens. So the handshake proves a token as it proves the key, and
// neither ever crosses the wire (rpc/handshake.h).
//
//   user key = HMAC-SHA256(cluster key, "ff user|" uid:u32 serial:u64)      little-endian
//   token    = "ff1-" uid "-" serial "-" the user key in 64 hex digits      as text, in one line
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/auth/key.h"
#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::auth {

// The serial tells tokens of one user apart: they can then be withdrawn one by one.
struct User {
  uint32_t uid = 0;
  uint64_t serial = 0;
  bool operator==(const User&) const = default;
};

Key user_key(const Key& cluster, User user);

struct Token {
  User user;
  Key key;  // the user's
};

Token make_token(const Key& cluster, User user);
std::string token_text(const Token& token);
// Only what token_text() writes, to the byte. Errc::corrupt; the message never shows the text.
Result<Token> parse_token(std::string_view text);
// As read_key_file(): a token, with or without a newline.
Result<Token> read_token_file(io::Disk& disk, const std::string& path);

}  // namespace ff::auth
