// Access control of a daemon's pages: one-time login links that set session cookies, and a check of
// the Host header against DNS rebinding.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/auth/key.h"
#include "platform/base/result.h"
#include "platform/net/address.h"

namespace ff::rpc {

// Thread-safe.
class HttpAccess {
 public:
  // The cookie's name contains the port, since browsers share cookies between the ports of a host.
  explicit HttpAccess(uint16_t port);

  // "/login?token=" and 64 hex digits. Valid for one login; then a new one is generated.
  std::string login_path();
  // The value for Set-Cookie if `token` is the current one; else empty.
  std::optional<std::string> login(std::string_view token);
  // Whether a Cookie header contains a valid session.
  bool has_session(std::string_view cookies);

 private:
  static constexpr size_t kSessionsMax = 16;  // one more login ends the oldest session
  std::string secret();

  const std::string cookie_;
  auth::SecureRng rng_;
  std::mutex mutex_;
  std::string token_;
  std::deque<std::string> sessions_;
};

// Whether a Host header names this machine: a loopback name, the local address of the connection,
// or one of `names` (lower case). Ignores the port, which may be forwarded.
bool host_allowed(std::string_view host, std::string_view local_address,
                  const std::vector<std::string>& names);

// Parses the value of --http: "9100" (loopback), "10.1.2.3:9100", or "*:9100" (all addresses).
// Errc::usage with an example.
Result<net::Address> parse_http_address(std::string_view text);

}  // namespace ff::rpc
