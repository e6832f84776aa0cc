// address.cc: the text form of addresses.
#include "platform/net/address.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <charconv>

namespace ff::net {

namespace {

Error bad_address(std::string_view text, std::string_view why) {
  Error error = fail(Errc::usage, "'{}' is not an address: {}", text, why);
  error.hint = "Use HOST:PORT, [IPV6]:PORT or unix:/PATH, for example 10.0.0.1:4000.";
  return error;
}

}  // namespace

std::string Address::text() const {
  if (is_unix()) return "unix:" + unix_path;
  if (host.find(':') != std::string::npos) return fmt::format("[{}]:{}", host, port);
  return fmt::format("{}:{}", host.empty() ? "*" : host, port);
}

Result<Address> parse_address(std::string_view text) {
  Address address;
  if (text.starts_with("unix:")) {
    address.unix_path = text.substr(5);
    if (address.unix_path.empty()) return bad_address(text, "the path is empty");
    if (address.unix_path.size() >= sizeof(sockaddr_un::sun_path)) {
      return bad_address(text, "the path of a Unix socket has at most 107 bytes");
    }
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad_address(text, "the port is missing");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const auto [end, err] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (port.empty() || err != std::errc{} || end != port.data() + port.size()) {
    return bad_address(text, "the port is a number from 0 to 65535");
  }
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    if (host.empty()) return bad_address(text, "the brackets are empty");
  } else if (host.find(':') != std::string_view::npos) {
    return bad_address(text, "an IPv6 address stands in brackets");
  }
  for (const char c : host) {
    if (c <= ' ' || c == '/' || c == '[' || c == ']' || c == '\x7f') {
      return bad_address(text, "a host name has no such characters");
    }
  }
  if (host != "*") address.host = host;
  return address;
}

}  // namespace ff::net
