// http_access.cc: secrets are compared in constant time; everything else here is text.
#include "platform/rpc/http_access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "platform/base/text.h"

namespace ff::rpc {

namespace {

constexpr size_t kSecretBytes = 32;
constexpr size_t kPortDigits = 5;

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

bool digits(std::string_view text) {
  return text.size() <= kPortDigits &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

HttpAccess::HttpAccess(uint16_t port)
    : cookie_(fmt::format("ff_session_{}", port)), token_(secret()) {}

std::string HttpAccess::secret() {
  std::array<std::byte, kSecretBytes> bytes;
  auth::fill_random(bytes, rng_);
  return hex(bytes);
}

std::string HttpAccess::login_path() {
  const std::lock_guard lock(mutex_);
  return "/login?token=" + token_;
}

std::optional<std::string> HttpAccess::login(std::string_view token) {
  const std::lock_guard lock(mutex_);
  if (!auth::constant_time_equal(as_bytes(token), as_bytes(token_))) return std::nullopt;
  token_ = secret();
  sessions_.push_back(secret());
  if (sessions_.size() > kSessionsMax) sessions_.pop_front();
  return fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict", cookie_, sessions_.back());
}

bool HttpAccess::has_session(std::string_view cookies) {
  const std::lock_guard lock(mutex_);
  while (!cookies.empty()) {
    const size_t end = std::min(cookies.find(';'), cookies.size());
    const std::string_view one = trimmed(cookies.substr(0, end));
    cookies.remove_prefix(std::min(end + 1, cookies.size()));
    const size_t equals = one.find('=');
    if (equals == one.npos || one.substr(0, equals) != cookie_) continue;
    const ByteView value = as_bytes(one.substr(equals + 1));
    if (std::ranges::any_of(sessions_, [value](const std::string& session) {
          return auth::constant_time_equal(value, as_bytes(session));
        })) {
      return true;
    }
  }
  return false;
}

bool host_allowed(std::string_view host, std::string_view local_address,
                  const std::vector<std::string>& names) {
  std::string name;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == host.npos) return false;
    name = host.substr(1, end - 1);
    host.remove_prefix(end + 1);
  } else {
    name = host.substr(0, host.find(':'));
    host.remove_prefix(name.size());
  }
  if (!host.empty() && (host[0] != ':' || !digits(host.substr(1)))) return false;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name == "localhost" || name == "127.0.0.1" || name == "::1") return true;
  return name == local_address || std::ranges::find(names, name) != names.end();
}

Result<net::Address> parse_http_address(std::string_view text) {
  const bool port_only = !text.empty() && digits(text);
  auto address = net::parse_address(port_only ? fmt::format("127.0.0.1:{}", text) : text);
  // ":9100" would mean all addresses, which requires the explicit "*:9100".
  if (address && !address->is_unix() && !text.starts_with(':')) {
    if (address->host == "localhost") address->host = "127.0.0.1";
    return address;
  }
  Error error = fail(Errc::usage, "--http {}: not a port or ADDRESS:PORT", text);
  error.hint = "For example --http 9100 (this machine only) or --http 10.1.2.3:9100.";
  return error;
}

}  // namespace ff::rpc
