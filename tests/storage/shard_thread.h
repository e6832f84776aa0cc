// Loops of one process in threads of their own, with real sockets and disks, as the shards of a
// daemon have them; for tests that ThreadSanitizer runs.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "platform/auth/key.h"
#include "platform/auth/keyring.h"
#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "platform/net/system_transport.h"
#include "platform/rpc/client.h"
#include "platform/rpc/server.h"

namespace ff::test {

inline rpc::Identity identity(std::string name) {
  return {.name = std::move(name), .software = "ff test"};
}

// What all loops share.
struct Machine {
  explicit Machine(net::NetMode mode, std::shared_ptr<auth::Keyring> keyring = nullptr)
      : transport({.mode = mode, .keyring = std::move(keyring)}) {}
  SystemClock clock;
  SystemLoop loop{clock};
  net::SystemTransport transport;
  Metrics metrics;
  io::SystemDisk disk;
  io::TempDir dir;
};

// A loop with its connections; the first shard of a node has that of the machine.
struct LoopParts {
  // `of_client`: another transport for its clients.
  LoopParts(Machine& machine, Loop& loop, const std::string& name,
            net::Transport* of_client = nullptr)
      : context{loop,   of_client == nullptr ? machine.transport : *of_client,
                grants, machine.metrics,
                rng,    identity(name)},
        server(loop, machine.transport, router, machine.metrics, identity(name)),
        calls(loop) {}
  auth::SecureRng rng;
  rpc::GrantScheduler grants;
  rpc::ClientContext context;
  rpc::Router router;
  rpc::Server server;
  Gate calls;
};

class ShardThread {
 public:
  ShardThread(Machine& machine, const std::string& name)
      : loop_(machine.clock), parts(machine, loop_, name), thread_([this] { loop_.run(); }) {}
  ~ShardThread() {
    loop_.post([this] { loop_.stop(); });
    thread_.join();
  }

 private:
  SystemLoop loop_;

 public:
  LoopParts parts;

 private:
  std::thread thread_;
};

}  // namespace ff::test
