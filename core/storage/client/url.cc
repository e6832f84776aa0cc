// url.cc: parses paths of users and adds them to errors.
#include "storage/client/url.h"

#include <utility>

#include "platform/base/text.h"

namespace ff::client {

bool is_url(std::string_view text) { return text.starts_with(kUrlScheme); }

Result<Url> parse_url(std::string_view text) {
  Url url;
  const std::string_view rest = text.substr(std::min(kUrlScheme.size(), text.size()));
  if (!is_url(text)) {
    Error error = fail(Errc::usage, "'{}' is not an ff:// URL", printable(text));
    error.hint = "Examples: ff://node1:4400/path, or ff:///path for the cluster of --meta.";
    return error;
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view servers = rest.substr(0, slash);
  url.path = slash < rest.size() ? rest.substr(slash) : "/";
  if (servers.empty()) return url;
  for (const std::string_view one : split(servers, ',')) {
    auto address = net::parse_address(one);
    if (!address)
      return std::move(address).error().with_context(fmt::format("{}: ", printable(text)));
    url.servers.push_back(std::move(*address));
  }
  return url;
}

Result<Url> parse_cluster_path(std::string_view text) {
  if (is_url(text)) return parse_url(text);
  if (text.starts_with('/')) return Url{.servers = {}, .path = std::string(text)};
  Error error = fail(Errc::usage, "'{}': paths in a cluster start with '/'", printable(text));
  error.hint = "There is no working directory: use an absolute path such as /data/file.";
  return error;
}

std::string last_component(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return std::string(path.substr(path.rfind('/') + 1));
}

Error with_path(std::string_view path, Error error) {
  const std::string name = printable(path);
  if (error.sys == 0) return std::move(error).with_context(name + ": ");
  Error named = errno_error(error.sys, name);
  named.code = error.code;
  if (!error.hint.empty()) named.hint = std::move(error.hint);
  return named;
}

}  // namespace ff::client
