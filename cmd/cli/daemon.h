// What all daemons of ff share: where they listen, their pages and logs, how they start and end.
//
// A daemon makes a Daemon, adds the methods of its services to router(), and runs. It then listens,
// says so (a line on stdout, READY=1 to systemd), and serves until it is told to stop; calls under
// way get some time to end.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

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
  NetOptions net;
};
// --listen, --advertise, --http, --log-json and the network's; `listen` is their default, `section`
// their place in ff.toml.
void declare_daemon(Command& command, DaemonOptions& options, const std::string& section);

// --http alone, and what it asks for: null when it is not given. `status` and what `pages` make run
// in the loop.
void declare_http(Command& command, std::optional<std::string>& http, const std::string& section);
Result<std::unique_ptr<rpc::HttpServer>> start_pages(Loop& loop, const Metrics& metrics,
                                                     const std::optional<std::string>& http,
                                                     const std::string& title,
                                                     std::function<std::string()> status,
                                                     rpc::HttpPages pages = {});

class Daemon {
 public:
  // What a daemon gives to run().
  struct Service {
    // Once it listens: at this address others reach it.
    std::function<void(const std::string& address)> start;
    std::function<Task<void>()> stop;      // before connections are closed
    std::function<Task<void>()> end = {};  // after that: no call is under way any more
    std::function<std::string()> status;   // for /status: one JSON object
    rpc::HttpPages pages = {};             // beside it
    // Why it cannot go on; the daemon then ends with that.
    std::function<std::optional<Error>()> failed = {};
  };

  // Reads keys and certificates. Errc::usage: a token. `name`: "serve-meta".
  static Result<std::unique_ptr<Daemon>> make(Session& session, const DaemonOptions& options,
                                              std::string name);
  ~Daemon();

  SystemLoop& loop() { return loop_; }
  rpc::Router& router() { return router_; }
  Metrics& metrics() { return metrics_; }
  Rng& rng() { return rng_; }
  // net/system_transport.h
  Result<ByteSpan> shared_memory(uint64_t size) { return transport_.allocate_shared_memory(size); }
  // For calls of its own to other daemons.
  rpc::ClientContext& client() { return client_; }

  // Until the session's stop.
  Result<void> run(Service service);

 private:
  Daemon(Session& session, const DaemonOptions& options, std::string name,
         net::TransportOptions transport);
  rpc::Identity identity();
  Result<std::string> reached_at(const net::Address& listening) const;

  Session& session_;
  const DaemonOptions& options_;
  const std::string name_;
  SystemLoop loop_;
  std::optional<auth::Key> key_;
  net::SystemTransport transport_;
  Metrics metrics_;
  rpc::Router router_;
  auth::SecureRng rng_;
  rpc::GrantScheduler grants_;
  rpc::ClientContext client_;
};

// Tells systemd, when it asks to be told (sd_notify(3)): "READY=1".
void notify_systemd(const std::string& state);

}  // namespace ff::cmd
