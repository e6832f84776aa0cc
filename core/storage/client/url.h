// URLs of files: `ff://host:port[,host:port...]/path` names a cluster and a path in it,
// `ff:///path` a path in the default cluster. Paths are bytes; nothing is decoded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/net/address.h"

namespace ff::client {

struct Url {
  std::vector<net::Address> servers;  // empty: the default cluster
  std::string path;                   // starts with '/'
};

constexpr std::string_view kUrlScheme = "ff://";
bool is_url(std::string_view text);
// Errc::usage: is_url() is false, or parse_address() rejects a server.
Result<Url> parse_url(std::string_view text);
// Accepts plain absolute paths, too.
Result<Url> parse_cluster_path(std::string_view text);

// The last component of a path, ignoring slashes at the end: "a/b/" -> "b", "/" -> "".
std::string last_component(std::string_view path);

// The error with the path that the user gave: servers know only last names and inode numbers.
Error with_path(std::string_view path, Error error);

}  // namespace ff::client
