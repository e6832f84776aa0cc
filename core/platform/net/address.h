// Socket addresses as text: "host:port", "[v6]:port", ":port" and "*:port" (listen on all
// addresses), or "unix:/path" and "unix:@name" (abstract namespace, unix(7)).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "platform/base/result.h"

namespace ff::net {

struct Address {
  std::string host;  // a name or a numeric address, without brackets; empty: all addresses
  uint16_t port = 0;
  std::string unix_path;  // not empty: a Unix socket; host and port are ignored
  // Connect to this shard of the daemon there (preface.h), which must have told that it has shards.
  // Not part of the text.
  std::optional<uint32_t> shard = {};

  bool is_unix() const { return !unix_path.empty(); }
  // The form that parse_address() accepts.
  std::string text() const;
};

// Errc::usage: the message says what is wrong, the hint gives an example.
Result<Address> parse_address(std::string_view text);

}  // namespace ff::net
