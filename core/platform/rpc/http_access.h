// Who may see a daemon's pages: one-time login links that become cookies, and the Host header,
// which a page of another site cannot forge but a rebound DNS name carries (DNS rebinding).
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

// Any thread.
class HttpAccess {
 public:
  // The port is part of the cookie's name: browsers share cookies among the ports of a host.
  explicit HttpAccess(uint16_t port);

  // "/login?token=" and 64 hex digits. Works once; then there is another.
  std::string login_path();
  // The value for Set-Cookie when `token` is that of the link; nothing otherwise.
  std::optional<std::string> login(std::string_view token);
  // Whether a Cookie header holds a session that a login began.
  bool knows(std::string_view cookies);

 private:
  static constexpr size_t kSessionsMax = 16;  // browsers; the oldest login ends with one more
  std::string secret();

  const std::string cookie_;
  auth::SecureRng rng_;
  std::mutex mutex_;
  std::string token_;
  std::deque<std::string> sessions_;
};

// Whether a Host header names this machine: a loopback name, the address the connection came to,
// or one of `names` (lower case). The port does not matter: it may be forwarded.
bool host_allowed(std::string_view host, std::string_view local_address,
                  const std::vector<std::string>& names);

// The value of --http: "9100" is loopback, "10.1.2.3:9100" that address, "*:9100" every address.
// Errc::usage with an example.
Result<net::Address> parse_http_address(std::string_view text);

}  // namespace ff::rpc
