// daemon.cc: starts and stops a daemon.
#include "cmd/cli/daemon.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cmd/cli/build_info.h"
#include "cmd/cli/cancel_on_stop.h"
#include "platform/base/audit.h"
#include "platform/base/cpus.h"
#include "platform/base/fd.h"
#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/base/run_on.h"
#include "platform/io/system_disk.h"
#include "platform/net/resolve.h"
#include "platform/rpc/http_access.h"

namespace ff::cmd {
namespace {

// Time for RPCs in progress when the daemon stops.
constexpr int64_t kDrainNs = 5 * kSecond;

// A daemon needs the keys of its own role: it cannot serve with others.
Result<void> check_role(const net::TransportOptions& transport, auth::Role role) {
  if (transport.keyring == nullptr || transport.keyring->self().role == role) return {};
  Error error =
      fail(Errc::usage, "{}: this daemon needs the keys of a {}, not those of {}",
           transport.keyring->file(), auth::role_name(role), transport.keyring->self().full_name());
  error.hint =
      fmt::format("Make them: ff admin key create {}/{}.", auth::role_name(role), net::host_name());
  return error;
}

bool is_over(const StopToken& stop, const Daemon::Service& service) {
  return !stop.check().ok() || (service.failed && service.failed().has_value());
}

}  // namespace

void notify_systemd(const std::string& state) {
  const char* const path = ::getenv("NOTIFY_SOCKET");
  sockaddr_un address = {};
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  const size_t size = std::strlen(path);
  if (size >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, size);
  if (path[0] == '@') address.sun_path[0] = '\0';
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // Ignore errors: systemd may not listen.
  (void)::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size));
}

bool is_every_address(const net::Address& address) {
  if (address.is_unix()) return false;
  return address.host.empty() || address.host == "0.0.0.0" || address.host == "::";
}

Result<std::string> advertised_address(const DaemonOptions& options,
                                       const net::Address& listening) {
  if (options.advertise) {
    FF_TRY(auto address, net::parse_address(*options.advertise));
    if (address.port == 0) address.port = listening.port;
    return address.text();
  }
  net::Address address = listening;
  if (is_every_address(address)) address.host = net::host_name();
  return address.text();
}

void declare_http(Command& command, std::optional<std::string>& http, const std::string& section) {
  command
      .option("--http", text(http, "ADDR:PORT"),
              "Serve /metrics and /status here; a port without an address means loopback")
      .config(section + ".http");
}

Result<std::unique_ptr<rpc::HttpServer>> start_http_pages(Loop& loop, Metrics& metrics,
                                                          const std::optional<std::string>& http,
                                                          const std::string& title,
                                                          std::function<std::string()> status,
                                                          rpc::HttpPages pages) {
  if (!http) return std::unique_ptr<rpc::HttpServer>();
  metrics
      .gauge("ff_build_info", "Always 1; the labels name the build",
             {{"version", std::string(kBuildInfo.version)},
              {"commit", std::string(kBuildInfo.commit)}})
      .set(1);
  rpc::HttpOptions options;
  FF_TRY(options.address, rpc::parse_http_address(*http));
  options.title = title;
  options.status = std::move(status);
  options.pages = std::move(pages);
  return rpc::HttpServer::start(loop, metrics, std::move(options));
}

void declare_daemon(Command& command, DaemonOptions& options, const std::string& section) {
  command
      .option("--listen", text(options.listen, "ADDR:PORT"),
              "Address to listen on; port 0 selects a free port and prints it; '*' means every "
              "address of this machine and requires a key")
      .config(section + ".listen");
  command
      .option("--advertise", text(options.advertise, "ADDR:PORT"),
              "Address at which other machines reach this daemon, if it differs from --listen")
      .config(section + ".advertise");
  declare_http(command, options.http, section);
  command.flag("--log-json", options.log_json, "Write log lines as JSON")
      .config(section + ".log-json");
  command
      .option("--audit", text(options.audit, "FILE|syslog"),
              "Write who connects, who is refused and what operators change: JSON lines, to a file "
              "or to syslog")
      .config(section + ".audit");
  declare_net(command, options.net, NetRole::server);
}

Result<std::unique_ptr<Daemon>> Daemon::make(Session& session, const DaemonOptions& options,
                                             auth::Role role, std::string name,
                                             std::string entity_name) {
  log_setup({.level = session.out.mode().verbose ? LogLevel::debug : LogLevel::info,
             .json = options.log_json});
  FF_TRY(check_server_options(options.net));
  if (options.audit) FF_TRY(audit_setup(*options.audit, session.stop.clock()));
  io::SystemDisk disk;
  FF_TRY(auto transport, transport_options(disk, options.net, role, std::move(entity_name)));
  FF_TRY(check_role(transport, role));
  return std::unique_ptr<Daemon>(
      new Daemon(session, options, std::move(name), std::move(transport)));
}

Daemon::Daemon(Session& session, const DaemonOptions& options, std::string name,
               net::TransportOptions transport)
    : session_(session),
      options_(options),
      name_(std::move(name)),
      loop_(session.stop.clock()),
      transport_(std::move(transport)),
      client_{loop_, transport_, grants_, metrics_, rng_, identity()} {}

Daemon::~Daemon() = default;

Daemon::Shard::Shard(Daemon& daemon, std::optional<size_t> cpu)
    : loop(daemon.session_.stop.clock()),
      client{loop, daemon.transport_, grants, daemon.metrics_, rng, daemon.identity()},
      server(loop, daemon.transport_, router, daemon.metrics_, daemon.identity(), daemon.limits()),
      thread([this, cpu] {
        if (cpu) pin_thread(*cpu);
        loop.run();
      }) {}

Daemon::Shard::~Shard() {
  loop.post([this] { loop.stop(); });
  thread.join();
}

// The kernel wakes a process that is sent a message on the CPU of the sender when it takes the
// others for busy, as it does in virtual machines whose idle CPUs the host has put to sleep.
void Daemon::start_pinned_shards(uint32_t count, uint64_t place) {
  limits_divisor_ = count;
  const size_t first = place * count;
  pin_thread(first);
  for (uint32_t number = 1; number < count; ++number) {
    shards_.push_back(std::make_unique<Shard>(*this, first + number));
  }
}

void Daemon::start_shards(uint32_t count) {
  for (uint32_t number = 1; number < count; ++number) {
    shards_.push_back(std::make_unique<Shard>(*this, std::nullopt));
  }
}

// What is limited for the daemon as a whole is divided among its shards, if clients use all of
// them.
rpc::ServerLimits Daemon::limits() const {
  rpc::ServerLimits limits;
  limits.user_calls_running = std::max<size_t>(1, limits.user_calls_running / limits_divisor_);
  return limits;
}

// All at the same time.
Task<void> Daemon::close_servers(rpc::Server& first) {
  Gate closing(loop_);
  closing.spawn(first.close(kDrainNs));
  for (const auto& shard : shards_) {
    closing.spawn(run_on(loop_, shard->calls, shard->server.close(kDrainNs)));
  }
  co_await closing.wait_empty();
}

rpc::Identity Daemon::identity() {
  return {.name = name_, .software = fmt::format("ff {}", kBuildInfo.version)};
}

// What protects the connections.
std::string Daemon::security() const {
  return transport_.keyring() == nullptr ? "insecure" : options_.net.security;
}

void Daemon::tell_security() {
  const std::string mode = security();
  metrics_
      .gauge("ff_net_security", "What protects connections: 1 for the mode in use",
             {{"mode", mode}})
      .set(1);
  if (mode == "insecure") {
    log_warning(
        "every process of this machine may do everything here: there is no key "
        "(--insecure)");
  } else if (mode == "trusted-network") {
    log_warning("TCP connections are not encrypted: net.security is trusted-network");
  }
}

Result<void> Daemon::run(Service service) {
  FF_TRY(const auto wanted, net::parse_address(options_.listen));
  rpc::Server server(loop_, transport_, router_, metrics_, identity(), limits());
  std::vector<rpc::Server*> servers = {&server};
  for (const auto& shard : shards_) servers.push_back(&shard->server);
  for (rpc::Server* const one : servers) {
    if (servers.size() > 1) one->set_shards(servers);
  }
  FF_TRY(const auto listening, server.listen(wanted));
  service.status = [this, status = std::move(service.status)] {
    Json all = Json::parse(status());
    all["security"] = security();
    return all.dump();
  };
  auto address = advertised_address(options_, listening);
  auto pages = address ? start_http_pages(loop_, metrics_, options_.http, name_, service.status,
                                          std::move(service.pages))
                       : Result<std::unique_ptr<rpc::HttpServer>>(nullptr);
  if (!address || !pages) {
    run_task(loop_, server.close(0));
    return address ? std::move(pages).error() : std::move(address).error();
  }
  service.start(*address);
  tell_security();
  session_.out.line("listening on {}", listening.text());
  Json data = {{"listen", listening.text()}, {"address", *address}};
  if (*pages != nullptr) {
    session_.out.line("pages on port {}", (*pages)->port());
    data["http_port"] = (*pages)->port();
  }
  auto reported = session_.out.emit(data);
  notify_systemd("READY=1");
  if (reported) run_task(loop_, poll_until(loop_, [&] { return is_over(session_.stop, service); }));
  notify_systemd("STOPPING=1");
  log_info("stopping");
  pages->reset();
  run_task(loop_, service.drain());
  run_task(loop_, close_servers(server));
  if (service.close) run_task(loop_, service.close());
  run_task(loop_, transport_.drain(loop_));
  for (const auto& shard : shards_) {
    run_task(loop_, run_on(loop_, shard->calls, transport_.drain(shard->loop)));
  }
  auto failed = service.failed ? service.failed() : std::nullopt;
  if (reported && failed) return std::move(*failed);
  return reported;
}

}  // namespace ff::cmd
