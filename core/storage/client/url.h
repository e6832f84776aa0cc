// Where a file is, as users write it: `ff://host:port[,host:port...]/path` names a cluster and a
// path in it, `ff:///path` a path in the cluster that is meant anyway. Paths are bytes: nothing in
// them is decoded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/net/address.h"

namespace ff::client {

struct Url {
  std::vector<net::Address> servers;  // none: the cluster that is meant anyway
  std::string path;                   // begins with '/'
};

constexpr std::string_view kUrlScheme = "ff://";
bool is_url(std::string_view text);
// Errc::usage: not one that is_url(), or with a server that parse_address() refuses.
Result<Url> parse_url(std::string_view text);
// The same, and plain paths, which begin with '/'.
Result<Url> parse_cluster_path(std::string_view text);

// Of a path as a user gave it, with or without slashes at its end: "a/b/" -> "b", "/" -> "".
std::string last_name(std::string_view path);

// The error, saying which path of the user's it is about: servers know last names and numbers only.
Error at_path(std::string_view path, Error error);

}  // namespace ff::client
