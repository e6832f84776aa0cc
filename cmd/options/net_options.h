// Network options: transport (TCP, RDMA), TLS, and the key or token for authentication.
#pragma once

#include <optional>
#include <string>

#include "cmd/cli/cli.h"
#include "platform/net/system_transport.h"

namespace ff::cmd {

struct NetOptions {
  std::string mode = "auto";
  std::optional<std::string> rdma_device;
  int rdma_gid = -1;
  unsigned rdma_sl = 0;
  bool rdma_poll = false;
  std::optional<std::string> tls_cert;
  std::optional<std::string> tls_key;
  std::optional<std::string> tls_ca;
  std::optional<std::string> key;
  std::optional<std::string> token;
  bool insecure = false;
  std::string security = "tls";
};

enum class NetRole : unsigned char { client, server };

// Declares --net, --key, --token (a server refuses it), and the settings net.rdma-* and net.tls-*.
void declare_net(Command& command, NetOptions& options, NetRole role = NetRole::client);
// Reads the key and certificate files. With the root key this process acts as ROLE/`name`; an empty
// name means that of this machine. Errc::usage for options that exclude each other, and if there is
// neither a key nor --insecure.
Result<net::TransportOptions> transport_options(io::Disk& disk, const NetOptions& options,
                                                auth::Role role = auth::Role::admin,
                                                std::string name = {});
// Errc::usage for a token: servers need the cluster key.
Result<void> check_server_options(const NetOptions& options);

}  // namespace ff::cmd
