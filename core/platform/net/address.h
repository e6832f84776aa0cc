// Where a peer is: "host:port", "[v6]:port", ":port" and "*:port" (listen on every address), or
// "unix:/path" and "unix:@name" (abstract).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/base/result.h"

namespace ff::net {

struct Address {
  std::string host;  // a name or a numeric address, without brackets; empty: every address
  uint16_t port = 0;
  std::string unix_path;  // not empty: a Unix socket, and host and port mean nothing

  bool is_unix() const { return !unix_path.empty(); }
  // As parse_address takes it.
  std::string text() const;
};

// Errc::usage with what is wrong and an example.
Result<Address> parse_address(std::string_view text);

}  // namespace ff::net
