// Times of expiry in commands: seconds or milliseconds, from now on or since the Unix epoch.
#pragma once

#include <cstdint>
#include <string_view>

#include "platform/base/result.h"
#include "storage/gateway/command.h"

namespace ff::gateway {

// The reply "ERR invalid expire time in 'set' command".
Error invalid_expiry(const CommandRow& row);
// Milliseconds since the Unix epoch. The error is the reply: not an integer, or beyond what 64 bits
// hold. May be zero or negative: in the past.
Result<int64_t> parse_expiry(const CommandCall& call, std::string_view text, ExpiryUnit unit);
// Likewise, of commands that store a value: zero and less are refused.
Result<int64_t> parse_positive_expiry(const CommandCall& call, std::string_view text,
                                      ExpiryUnit unit);

}  // namespace ff::gateway
