// serve_kv_s3.cc: connects the gateway for S3 to a cluster, and runs its loop.
#include "cmd/serve_kv_s3.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "cmd/cli/cancel_on_stop.h"
#include "cmd/options/acting_user.h"
#include "cmd/options/meta_option.h"
#include "cmd/options/net_client.h"
#include "platform/base/cpus.h"
#include "platform/base/log.h"
#include "platform/http/server.h"
#include "platform/io/system_disk.h"
#include "platform/rpc/server.h"
#include "storage/client/file_system.h"
#include "storage/client/url.h"
#include "storage/cluster/revocation_poller.h"
#include "storage/s3/s3_service.h"

namespace ff::cmd {

namespace {

constexpr int64_t kS3DrainNs = 5 * kSecond;
// More would wait for the loop, which receives and sends all bytes.
constexpr size_t kHashThreadsMax = 4;

}  // namespace

class S3Gateway::Impl {
 public:
  Impl(const StopToken& stop, net::TransportOptions transport, Metrics& metrics,
       std::vector<net::Address> managers, http::ServerOptions server, s3::ServiceOptions service)
      : keyring_(transport.keyring),
        managers_(std::move(managers)),
        client_(stop, std::move(transport), "serve-kv-s3"),
        files_(client_.context, managers_, client::FileSystem::Options{}),
        hashing_(std::min(usable_cpus().size(), kHashThreadsMax)),
        service_(files_, client_.rng, metrics, keyring_, with_memory(std::move(service))),
        server_(client_.loop, service_, std::move(server)) {}

  // Listens on the socket, or else at the address.
  Result<net::Address> start(const StopToken& stop, const net::Address& address,
                             std::optional<net::InheritedSocket> socket);
  void close();

 private:
  // Memory for transfers that storage nodes of this host access in place, and threads.
  s3::ServiceOptions with_memory(s3::ServiceOptions service) {
    const auto arena = client_.transport.allocate_shared_memory(service.store.memory);
    if (arena) service.store.arena = *arena;
    if (!arena) {
      log_warning("objects travel through sockets only: there is no shared memory",
                  {{"error", arena.error().message}});
    }
    service.store.hashing = &hashing_;
    return service;
  }
  Task<Result<void>> connect() {
    FF_CO_TRY(co_await files_.start(client_.loop.now_ns() + kConnectTimeoutNs));
    co_return co_await service_.open();
  }
  Task<void> close_all() {
    co_await server_.close(kS3DrainNs);
    if (revocations_) co_await revocations_->close();
    co_await files_.close();
  }

  const std::shared_ptr<auth::Keyring> keyring_;
  const std::vector<net::Address> managers_;
  NetClient client_;
  client::FileSystem files_;
  s3::HashThreads hashing_;
  s3::S3Service service_;
  http::RequestServer server_;
  std::optional<cluster::RevocationPoller> revocations_;
  std::thread thread_;  // runs the client's loop
};

Result<net::Address> S3Gateway::Impl::start(const StopToken& stop, const net::Address& address,
                                            std::optional<net::InheritedSocket> socket) {
  Loop& loop = client_.loop;
  auto listening = socket ? server_.listen(std::move(*socket)) : server_.listen(address);
  Result<void> started;
  if (!listening) {
    started = listening.error();
  } else {
    started = run_task(loop, cancel_on_stop(loop, stop, connect()));
  }
  if (!started) {
    run_task(loop, close_all());
    return std::move(started).error();
  }
  if (keyring_ != nullptr) {
    revocations_.emplace(client_.context, managers_, *keyring_);
    revocations_->start();
  }
  server_.start();
  thread_ = std::thread([&loop] { loop.run(); });
  return listening;
}

void S3Gateway::Impl::close() {
  Loop& loop = client_.loop;
  loop.post([&loop] { loop.stop(); });
  thread_.join();
  run_task(loop, close_all());
}

S3Gateway::S3Gateway() = default;
S3Gateway::~S3Gateway() = default;

void S3Gateway::close() { impl_->close(); }

Result<std::unique_ptr<S3Gateway>> S3Gateway::open(const StopToken& stop, Metrics& metrics,
                                                   Options options) {
  FF_TRY(const auto url, client::parse_url(*options.s3.root));
  std::vector<net::Address> managers = url.servers;
  if (managers.empty()) {
    FF_TRY(managers, parse_meta(options.meta));
  }
  net::Address address;
  if (options.socket) {
    address = options.socket->address;
  } else {
    FF_TRY(address, net::parse_address(*options.s3.listen));
  }
  io::SystemDisk disk;
  FF_TRY(auto transport, transport_options(disk, options.net, auth::Role::meta));
  FF_TRY(check_exposure(
      address, {.has_keys = transport.keyring != nullptr,
                .encrypted = options.s3.tls_cert || transport.trusted_network,
                .sent = "objects",
                .hint = "Give a certificate with --s3-tls-cert and --s3-tls-key, or set "
                        "net.security = \"trusted-network\" where nobody can read the network."}));
  FF_TRY(auto certificates, gateway_certificate(disk, options.s3.tls_cert, options.s3.tls_key));
  http::ServerOptions server;
  server.certificates = std::move(certificates);
  s3::ServiceOptions service;
  service.store.root = url.path;
  service.store.umask = process_umask();
  service.store.durable = options.durable;
  service.self = process_caller();
  std::unique_ptr<S3Gateway> gateway(new S3Gateway());
  gateway->root_ = *options.s3.root;
  gateway->impl_ = std::make_unique<Impl>(stop, std::move(transport), metrics, std::move(managers),
                                          std::move(server), std::move(service));
  FF_TRY(gateway->address_, gateway->impl_->start(stop, address, std::move(options.socket)));
  return gateway;
}

Result<void> check_s3_options(const S3Options& options, bool inherited) {
  if (inherited && !options.root) {
    return Error{Errc::usage,
                 "systemd has passed a socket for clients of S3, but there is no --s3-root",
                 "Give --s3-root ff:///objects, or disable ff-serve-kv-s3.socket."};
  }
  if (!inherited && options.listen.has_value() != options.root.has_value()) {
    return Error{Errc::usage, "--s3-listen and --s3-root go together",
                 "Example: --s3-listen 127.0.0.1:9000 --s3-root ff:///objects"};
  }
  if (options.tls_cert.has_value() != options.tls_key.has_value()) {
    return fail(Errc::usage, "--s3-tls-cert and --s3-tls-key go together");
  }
  if (options.tls_cert && !options.root) {
    return fail(Errc::usage, "--s3-tls-cert: there is no --s3-root");
  }
  if (options.root && !client::is_url(*options.root)) {
    return Error{Errc::usage, fmt::format("--s3-root {}: not in a cluster", *options.root),
                 "Give a folder of a cluster: ff:///objects"};
  }
  return {};
}

std::string s3_about() {
  std::string text =
      "With --s3-listen, clients of S3 reach the files below --s3-root: the folders in it are "
      "buckets, "
      "and the files in them are objects. Programs see the same files through 'ff mount', and both "
      "may "
      "write. New objects appear whole. Clients sign with the keys that 'ff admin user s3-key' "
      "prints "
      "of a token; a user reaches what his uid may reach of the files. Clients must use path-style "
      "URLs (http://HOST:PORT/BUCKET/KEY) and signature version 4; the region is of no "
      "importance.\n\n"
      "Objects are files, so some keys are refused: with '//', '/' in front, a part '.' or '..', "
      "or a "
      "part above 255 bytes; and a/b while there is an object a. An object that a program has "
      "changed "
      "has an ETag that is no MD5 and ends in -0. Symbolic links are not followed and not listed. "
      "A "
      "download of an object that is replaced meanwhile may break off; the client repeats it. "
      "There "
      "are no versions, ACLs and bucket policies: the owner and the mode of files count.\n\n"
      "On other addresses than those of this machine, S3 needs a certificate (--s3-tls-cert), or "
      "net.security = \"trusted-network\".\n\nOperations of S3: ";
  bool first = true;
  for (const s3::OperationRow& row : s3::operation_table()) {
    text += fmt::format("{}{}", std::exchange(first, false) ? "" : ", ", row.name);
  }
  return text + ".";
}

void declare_s3(Command& command, S3Options& options) {
  command
      .option("--s3-listen", text(options.listen, "ADDRESS"),
              "Serve the files below --s3-root to clients of S3 at this address")
      .config("serve-kv.s3-listen");
  command
      .option("--s3-root", text(options.root, "FOLDER"),
              "Folder of a cluster whose folders are the buckets: ff:///objects")
      .config("serve-kv.s3-root");
  command
      .option("--s3-tls-cert", file(options.tls_cert),
              "PEM certificate to serve S3 over TLS; clients need none")
      .config("serve-kv.s3-tls-cert");
  command.option("--s3-tls-key", file(options.tls_key), "Private key of that certificate, in PEM")
      .config("serve-kv.s3-tls-key");
}

}  // namespace ff::cmd
