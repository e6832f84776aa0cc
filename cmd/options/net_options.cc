// net_options.cc: declares the network options and converts them to transport options.
#include "cmd/options/net_options.h"

#include <fmt/format.h>

#include "platform/io/files.h"
#include "platform/net/resolve.h"

namespace ff::cmd {

namespace {

Result<void> check_token(const NetOptions& options) {
  // Do not print it: it may be a secret instead of a path.
  if (options.token->starts_with("ff2 ")) {
    Error error = fail(Errc::usage, "--token takes the file of a token, not the token itself");
    error.hint =
        "Replace this token: other users may have seen it. Keep the new one in a file of mode "
        "0600.";
    return error;
  }
  if (options.key) {
    Error error = fail(Errc::usage, "--key and --token exclude each other");
    error.hint = "Give the cluster key or a user's token (also FF_KEY, FF_TOKEN_FILE, ff.toml).";
    return error;
  }
  if (options.mode == "verbs") {
    Error error = fail(Errc::usage,
                       "RDMA needs the cluster key: --net verbs and --token exclude "
                       "each other");
    error.hint = "Use --net auto or tcp.";
    return error;
  }
  return {};
}

Error no_key() {
  Error error = fail(Errc::usage, "no key is given");
  error.hint =
      "Give --key FILE (also FF_KEY, net.key in ff.toml) or a user's --token; 'ff up' prints the "
      "key of its cluster. --insecure works without one, on this machine only.";
  return error;
}

// The entity of a holder of the root key on this machine.
auth::Entity entity_of(auth::Role role, std::string name) {
  auth::Entity entity{.role = role, .name = name.empty() ? net::host_name() : std::move(name)};
  if (!auth::check_entity(entity)) entity.name = "localhost";
  return entity;
}

// The file in a folder of keys that a process of this role reads.
Result<std::string> key_file(io::Disk& disk, const std::string& path, auth::Role role) {
  const auto info = disk.info(path);
  if (!info || info->kind != io::FileKind::directory) return path;
  const std::string own = io::join(path, fmt::format("{}.key", auth::role_name(role)));
  const std::string root = io::join(path, "cluster.key");
  for (const std::string& file : {own, root}) {
    FF_TRY(const bool there, io::exists(disk, file));
    if (there) return file;
  }
  Error error = fail(Errc::not_found, "{}: neither {}.key nor cluster.key is there", path,
                     auth::role_name(role));
  error.hint = fmt::format("Make one: ff admin key create {}/{} --key-file {}.",
                           auth::role_name(role), net::host_name(), own);
  return error;
}

// Settings. Their options are from earlier releases.
void declare_rdma(Command& command, NetOptions& options) {
  command
      .option("--rdma-device", text(options.rdma_device, "NAME"),
              "RDMA device, such as mlx5_0; without it ff uses the first with an active port")
      .config("net.rdma-device")
      .env("FF_RDMA_DEVICE")
      .hidden();
  command
      .option("--rdma-gid", number(options.rdma_gid),
              "Index of the GID to use; -1 selects the IPv4 GID of RoCE v2")
      .config("net.rdma-gid")
      .env("FF_RDMA_GID")
      .hidden();
  command
      .option("--rdma-sl", number(options.rdma_sl),
              "InfiniBand service level, 0 to 15, which the fabric maps to a virtual lane")
      .config("net.rdma-sl")
      .env("FF_RDMA_SL")
      .hidden();
  command
      .flag("--rdma-poll", options.rdma_poll,
            "Poll the RDMA device without sleeping: lower latency, at the cost of one core")
      .config("net.rdma-poll")
      .env("FF_RDMA_POLL")
      .hidden();
}

void declare_tls(Command& command, NetOptions& options) {
  command
      .option("--net-security", choice(options.security, {"tls", "trusted-network"}),
              "Encrypt TCP connections; trusted-network: only until both ends have proven their "
              "keys, if both say so")
      .config("net.security")
      .env("FF_NET_SECURITY")
      .hidden();
  command
      .option("--tls-cert", file(options.tls_cert),
              "PEM certificate of this end, which the other end checks besides the key")
      .config("net.tls-cert")
      .env("FF_TLS_CERT")
      .hidden();
  command.option("--tls-key", file(options.tls_key), "PEM key of the certificate")
      .config("net.tls-key")
      .env("FF_TLS_KEY")
      .hidden();
  command
      .option("--tls-ca", file(options.tls_ca),
              "PEM certificates of the authorities that may sign the certificate of the other end")
      .config("net.tls-ca")
      .env("FF_TLS_CA")
      .hidden();
}

}  // namespace

void declare_net(Command& command, NetOptions& options, NetRole role) {
  command
      .option("--net", choice(options.mode, {"auto", "tcp", "verbs"}),
              "Transport: auto uses shared memory on one host, RDMA when both ends support it, and "
              "TCP otherwise; verbs uses RDMA only")
      .config("net.use")
      .env("FF_NET")
      .section(kNetworkOptions);
  command
      .option("--key", file(options.key),
              "File of a key (ff admin key), or a directory with one for each role, such as "
              "storage.key; with cluster.key, the root key, ff derives the key that it needs")
      .config("net.key")
      .env("FF_KEY")
      .section(kNetworkOptions);
  Option& token =
      command.option("--token", file(options.token),
                     "File of a user's token, for clients that do not hold the cluster key");
  token.config("net.token").env("FF_TOKEN_FILE").section(kNetworkOptions);
  if (role == NetRole::server) token.hidden();
  command
      .flag("--insecure", options.insecure,
            "Connect without a key, to daemons of this machine that run without one: every process "
            "of the machine may then do everything there")
      .config("net.insecure")
      .env("FF_INSECURE")
      .section(kNetworkOptions);
  declare_rdma(command, options);
  declare_tls(command, options);
}

Result<void> check_server_options(const NetOptions& options) {
  if (!options.token) return {};
  Error error = fail(Errc::usage, "--token is for clients: servers need the cluster key");
  error.hint = "Give the cluster's key file with --key, and no --token or FF_TOKEN_FILE.";
  return error;
}

Result<net::TransportOptions> transport_options(io::Disk& disk, const NetOptions& options,
                                                auth::Role role, std::string name) {
  constexpr unsigned kServiceLevels = 16;
  net::TransportOptions made;
  if (options.mode == "tcp") made.mode = net::NetMode::tcp;
  if (options.mode == "verbs") made.mode = net::NetMode::verbs;
  if (options.rdma_sl >= kServiceLevels) {
    return fail(Errc::usage, "net.rdma-sl {}: service levels are 0 to 15", options.rdma_sl);
  }
  made.verbs.device = options.rdma_device.value_or("");
  made.verbs.gid_index = options.rdma_gid;
  made.verbs.service_level = static_cast<uint8_t>(options.rdma_sl);
  made.verbs.poll = options.rdma_poll;
  made.trusted_network = options.security == "trusted-network";
  const int tls =
      options.tls_cert.has_value() + options.tls_key.has_value() + options.tls_ca.has_value();
  if (tls != 0 && tls != 3) {
    return fail(Errc::usage,
                "TLS needs all three settings: net.tls-cert, net.tls-key and net.tls-ca");
  }
  if (options.token) FF_TRY(check_token(options));
  if (const auto& file = options.token ? options.token : options.key) {
    FF_TRY(const std::string path, key_file(disk, *file, role));
    FF_TRY(made.keyring, auth::read_keyring(disk, path, entity_of(role, std::move(name))));
    // The owner of a token can read its file anyway.
    if (made.keyring->self().role != auth::Role::user) auth::forbid_dumps();
    if (options.token && made.keyring->self().role != auth::Role::user) {
      return fail(Errc::corrupt, "{}: not a token: it holds the keys of {}", *file,
                  made.keyring->self().full_name());
    }
  }
  if (made.keyring == nullptr && !options.insecure) return no_key();
  if (tls != 0 && made.keyring == nullptr) {
    return fail(Errc::usage, "certificates need a key besides: give --key");
  }
  if (tls != 0) {
    FF_TRY(made.certificates,
           net::TlsContext::make(disk, {*options.tls_cert, *options.tls_key, *options.tls_ca}));
  }
  return made;
}

}  // namespace ff::cmd
