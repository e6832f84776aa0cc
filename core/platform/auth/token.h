// Tokens: credentials for users who do not have the cluster key (compare delegation tokens of
// HDFS). A token holds a key of one user, derived from the cluster key: a holder of the cluster key
// can derive every token, but a token reveals neither the cluster key nor other tokens. The
// handshake proves possession of a token like that of the cluster key; neither is ever sent
// (rpc/handshake.h).
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

// Identifies a token: its user, and a serial number, so that tokens of a user can be revoked one by
// one.
struct TokenId {
  uint32_t uid = 0;
  uint64_t serial = 0;
  bool operator==(const TokenId&) const = default;
};

Key user_key(const Key& cluster, TokenId user);

struct Token {
  TokenId user;
  Key key;  // user_key()
};

Token make_token(const Key& cluster, TokenId user);
std::string format_token(const Token& token);
// Accepts exactly the output of format_token(). Errc::corrupt otherwise; the message never shows
// the text.
Result<Token> parse_token(std::string_view text);
// Like read_key_file(), for a token with or without a final newline.
Result<Token> read_token_file(io::Disk& disk, const std::string& path);

}  // namespace ff::auth
