// The RPC client of a command: its loop, transport, credentials and random numbers.
#pragma once

#include <string>

#include "cmd/cli/build_info.h"
#include "platform/auth/key.h"
#include "platform/base/metrics.h"
#include "platform/base/stop_token.h"
#include "platform/base/system_loop.h"
#include "platform/net/system_transport.h"
#include "platform/rpc/client.h"
#include "platform/rpc/grant_scheduler.h"

namespace ff::cmd {

struct NetClient {
  // `name`: of the client in messages of servers.
  NetClient(const StopToken& stop, net::TransportOptions options, std::string name,
            size_t max_senders = rpc::GrantScheduler::kDefaultMax)
      : loop(stop.clock()),
        transport(std::move(options)),
        grants(max_senders),
        context{loop,
                transport,
                grants,
                metrics,
                rng,
                {.name = std::move(name), .software = fmt::format("ff {}", kBuildInfo.version)}} {}
  // All users of `context` must be closed before.
  ~NetClient() { run_task(loop, transport.drain(loop)); }
  NetClient(const NetClient&) = delete;
  NetClient& operator=(const NetClient&) = delete;

  SystemLoop loop;
  net::SystemTransport transport;
  rpc::GrantScheduler grants;
  Metrics metrics;
  auth::SecureRng rng;
  rpc::ClientContext context;
};

}  // namespace ff::cmd
