// net_options.cc: the table of the network's options, and what they make together.
#include "cmd/options/net_options.h"

namespace ff::cmd {

namespace {

Result<auth::Token> read_token(io::Disk& disk, const NetOptions& options) {
  // Not shown, as the path of a file would be.
  if (options.token->starts_with("ff1-") && options.token->size() > 2 * auth::kKeyBytes) {
    Error error = fail(Errc::usage, "--token takes the file of a token, not the token itself");
    error.hint = "Put it into a file of mode 0600, and take it for known to others by now.";
    return error;
  }
  if (options.key) {
    Error error = fail(Errc::usage, "--key and --token exclude each other");
    error.hint = "Give the cluster key or a user's token (also FF_KEY, FF_TOKEN_FILE, ff.toml).";
    return error;
  }
  if (options.use == "verbs") {
    Error error = fail(Errc::usage,
                       "RDMA needs the cluster key: --net verbs and --token exclude "
                       "each other");
    error.hint = "Use --net auto or tcp.";
    return error;
  }
  return auth::read_token_file(disk, *options.token);
}

}  // namespace

void declare_net(Command& command, NetOptions& options) {
  command
      .option("--net", choice(options.use, {"auto", "tcp", "verbs"}),
              "How connections go: auto takes shared memory on one host, RDMA where both ends have "
              "it, else TCP; verbs is RDMA or nothing")
      .config("net.use")
      .env("FF_NET");
  command
      .option("--rdma-device", text(options.rdma_device, "NAME"),
              "RDMA device, as mlx5_0; else the first with an active port")
      .config("net.rdma-device");
  command
      .option("--rdma-gid", number(options.rdma_gid),
              "Index of the GID to use; -1 takes the IPv4 one of RoCE v2")
      .config("net.rdma-gid");
  command
      .option("--rdma-sl", number(options.rdma_sl),
              "InfiniBand service level, 0 to 15, which the fabric maps to a virtual lane")
      .config("net.rdma-sl");
  command
      .flag("--rdma-poll", options.rdma_poll,
            "Poll the RDMA device without sleeping: less latency for a whole core")
      .config("net.rdma-poll");
  command
      .option("--tls-cert", file(options.tls_cert),
              "PEM certificate of this end: TCP is TLS 1.3 alone, and RDMA is off")
      .config("net.tls-cert");
  command.option("--tls-key", file(options.tls_key), "PEM key of the certificate")
      .config("net.tls-key");
  command
      .option("--tls-ca", file(options.tls_ca),
              "PEM certificates of the authorities that the other end's certificate may be from")
      .config("net.tls-ca");
  command
      .option("--key", file(options.key),
              "The cluster's key file, which both ends prove to hold; without it only this machine "
              "may connect")
      .config("net.key")
      .env("FF_KEY");
  command
      .option("--token", file(options.token),
              "A user's token file, for clients that do not hold the cluster key")
      .config("net.token")
      .env("FF_TOKEN_FILE");
}

Result<void> check_serves(const NetOptions& options) {
  if (!options.token) return {};
  Error error = fail(Errc::usage, "--token is for clients: servers need the cluster key");
  error.hint = "Give the cluster's key file with --key, and no --token or FF_TOKEN_FILE.";
  return error;
}

Result<net::TransportOptions> transport_options(io::Disk& disk, const NetOptions& options) {
  constexpr unsigned kServiceLevels = 16;
  net::TransportOptions made;
  if (options.use == "tcp") made.mode = net::NetMode::tcp;
  if (options.use == "verbs") made.mode = net::NetMode::verbs;
  if (options.rdma_sl >= kServiceLevels) {
    return fail(Errc::usage, "--rdma-sl {}: service levels are 0 to 15", options.rdma_sl);
  }
  made.verbs.device = options.rdma_device.value_or("");
  made.verbs.gid_index = options.rdma_gid;
  made.verbs.service_level = static_cast<uint8_t>(options.rdma_sl);
  made.verbs.poll = options.rdma_poll;
  const int tls =
      options.tls_cert.has_value() + options.tls_key.has_value() + options.tls_ca.has_value();
  if (tls != 0 && tls != 3) {
    return fail(Errc::usage, "TLS needs all three: --tls-cert, --tls-key and --tls-ca");
  }
  if (tls != 0 && made.mode == net::NetMode::verbs) {
    Error error = fail(Errc::usage,
                       "RDMA is not encrypted: --net verbs and --tls-cert exclude "
                       "each other");
    error.hint = "Use --net tcp, or leave the certificate out on a trusted fabric.";
    return error;
  }
  if (tls != 0) {
    FF_TRY(made.tls,
           net::TlsContext::make(disk, {*options.tls_cert, *options.tls_key, *options.tls_ca}));
  }
  if (options.token) {
    FF_TRY(made.token, read_token(disk, options));
  }
  if (options.key) {
    FF_TRY(made.key, auth::read_key_file(disk, *options.key));
  }
  return made;
}

}  // namespace ff::cmd
