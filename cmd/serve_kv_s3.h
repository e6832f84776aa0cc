// The part of `ff serve-kv` for clients of S3: its options, and a gateway on a thread of its own.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cmd/cli/cli.h"
#include "cmd/options/net_options.h"
#include "platform/base/metrics.h"
#include "platform/base/stop_token.h"
#include "platform/net/address.h"
#include "platform/net/inherited_sockets.h"

namespace ff::cmd {

struct S3Options {
  std::optional<std::string> listen;  // none: there is no gateway for S3
  std::optional<std::string> root;    // ff://...
  std::optional<std::string> tls_cert;
  std::optional<std::string> tls_key;
};

void declare_s3(Command& command, S3Options& options);
// What the help says of it.
std::string s3_about();
// Errc::usage: they do not go together. `inherited`: there is a socket in place of --s3-listen.
Result<void> check_s3_options(const S3Options& options, bool inherited);

class S3Gateway {
 public:
  struct Options {
    S3Options s3;
    std::string meta;  // if the URL of the root names no servers
    NetOptions net;
    bool durable = false;
    std::optional<net::InheritedSocket> socket = {};  // in place of s3.listen
  };
  // Listens, and waits until the cluster answers. `metrics` outlives it.
  static Result<std::unique_ptr<S3Gateway>> open(const StopToken& stop, Metrics& metrics,
                                                 Options options);
  // After close().
  ~S3Gateway();
  S3Gateway(const S3Gateway&) = delete;
  S3Gateway& operator=(const S3Gateway&) = delete;

  // Lets requests under way end, for some seconds.
  void close();

  const net::Address& address() const { return address_; }
  const std::string& root() const { return root_; }

 private:
  class Impl;
  S3Gateway();

  std::unique_ptr<Impl> impl_;
  net::Address address_;
  std::string root_;
};

}  // namespace ff::cmd
