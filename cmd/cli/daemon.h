// Common part of all daemons of ff: listening address, HTTP pages, logs, start and shutdown.
//
// A daemon makes a Daemon, adds the methods of its services to router(), and runs. It then listens,
// reports that (a line on stdout, READY=1 to systemd), and serves until its stop token ends; RPCs
// in progress get some time to finish.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cmd/cli/cli.h"
#include "cmd/options/net_options.h"
#include "platform/auth/key.h"
#include "platform/base/metrics.h"
#include "platform/base/system_loop.h"
#include "platform/net/system_transport.h"
#include "platform/rpc/client.h"
#include "platform/rpc/http.h"
#include "platform/rpc/server.h"

namespace ff::cmd {

struct DaemonOptions {
  std::string listen;
  std::optional<std::string> advertise;
  std::optional<std::string> http;
  bool log_json = false;
  std::optional<std::string> audit = {};
  NetOptions net;
};
// Declares --listen, --advertise, --http, --log-json and the network options. `options.listen` is
// the default of --listen, `section` the section of ff.toml.
void declare_daemon(Command& command, DaemonOptions& options, const std::string& section);

// Whether a daemon that listens there does so on every address of this machine.
bool is_every_address(const net::Address& address);
// The address at which other processes reach a daemon that listens at `listening`.
Result<std::string> advertised_address(const DaemonOptions& options, const net::Address& listening);

// Declares --http alone; and starts its HTTP server, null without --http, with ff_build_info added
// to `metrics`. `status` and `pages` run in the loop.
void declare_http(Command& command, std::optional<std::string>& http, const std::string& section);
Result<std::unique_ptr<rpc::HttpServer>> start_http_pages(Loop& loop, Metrics& metrics,
                                                          const std::optional<std::string>& http,
                                                          const std::string& title,
                                                          std::function<std::string()> status,
                                                          rpc::HttpPages pages = {});

class Daemon {
 public:
  // The callbacks and pages of a daemon.
  struct Service {
    // Called when the daemon listens; `address`: where other processes reach it.
    std::function<void(const std::string& address)> start;
    std::function<Task<void>()> drain;       // at shutdown, before connections are closed
    std::function<Task<void>()> close = {};  // after that: no RPC is in progress
    std::function<std::string()> status;     // for /status: one JSON object
    rpc::HttpPages pages = {};               // other pages
    // A fatal error of the service; the daemon then ends with it.
    std::function<std::optional<Error>()> failed = {};
  };

  // Reads keys and certificates. Errc::usage: keys of another role. `name`: "serve-meta".
  // `entity_name`: of the keys that it derives from the root key; empty: that of the machine.
  static Result<std::unique_ptr<Daemon>> make(Session& session, const DaemonOptions& options,
                                              auth::Role role, std::string name,
                                              std::string entity_name = {});
  ~Daemon();

  SystemLoop& loop() { return loop_; }
  rpc::Router& router() { return router_; }
  Metrics& metrics() { return metrics_; }
  Rng& rng() { return rng_; }
  // net/system_transport.h
  Result<ByteSpan> shared_memory(uint64_t size) { return transport_.allocate_shared_memory(size); }
  // For RPCs to other daemons.
  rpc::ClientContext& client() { return client_; }

  // A shard beside the first one: another loop, in a thread of its own, with its own methods and
  // connections. Clients name the shard that they connect to (net::Address::shard).
  struct Shard {
    Shard(Daemon& daemon, std::optional<size_t> cpu);
    ~Shard();
    SystemLoop loop;
    auth::SecureRng rng;
    rpc::GrantScheduler grants;
    rpc::ClientContext client;
    rpc::Router router;
    rpc::Server server;
    Gate calls{loop};  // for run_on()
    std::thread thread;
  };
  // Starts shards until there are `count`, with the first one, for clients that use all of them.
  // Each loop stays on a CPU of its own: daemons of one machine with successive values of `place`
  // use different ones. Their loops run until the daemon is destroyed. Call once, before run().
  void start_pinned_shards(uint32_t count, uint64_t place);
  // The same for clients that use one of them, on any CPU.
  void start_shards(uint32_t count);
  const std::vector<std::unique_ptr<Shard>>& shards() const { return shards_; }

  // Serves until the stop token of the session ends.
  Result<void> run(Service service);

 private:
  Daemon(Session& session, const DaemonOptions& options, std::string name,
         net::TransportOptions transport);
  rpc::ServerLimits limits() const;
  Task<void> close_servers(rpc::Server& first);
  rpc::Identity identity();
  std::string security() const;
  void tell_security();

  Session& session_;
  const DaemonOptions& options_;
  const std::string name_;
  SystemLoop loop_;
  net::SystemTransport transport_;
  Metrics metrics_;
  rpc::Router router_;
  auth::SecureRng rng_;
  rpc::GrantScheduler grants_;
  rpc::ClientContext client_;
  uint32_t limits_divisor_ = 1;
  std::vector<std::unique_ptr<Shard>> shards_;  // without the first
};

// Sends `state` ("READY=1") to systemd, if NOTIFY_SOCKET is set (sd_notify(3)).
void notify_systemd(const std::string& state);

}  // namespace ff::cmd
