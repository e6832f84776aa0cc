// calls.cc: the cluster, the clients' work and the faults of the scenario.
#include "lab/scenario/calls.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/scenario/simulation.h"
#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/rpc/client.h"
#include "platform/rpc/error_wire.h"
#include "platform/rpc/probe.h"
#include "platform/rpc/server.h"
#include "platform/sim/sim_net.h"
#include "platform/simd/crc32c.h"

namespace ff::scenario {

namespace {

constexpr int kServers = 2;
constexpr int kClients = 4;
constexpr int64_t kCallsFaultsNs = 60 * kSecond;
// Time limit after healing until every client gets answers again: the longest backoff, a keep-alive
// timeout and some calls.
constexpr int64_t kCallsHealNs = 30 * kSecond;
// How far a call may exceed its deadline: the clocks drift, and a refused handshake takes time.
constexpr int64_t kLateNs = 3 * kSecond;

struct CallsSimulation : Simulation {
  using Simulation::Simulation;

  std::map<std::string, uint64_t> done;  // executions by call id
  bool over = false;                     // no new calls
  uint64_t outcomes = 0;                 // hash of the results of all calls
};

sim::ClockSkew skew(Rng& rng) {
  const auto drift = static_cast<int64_t>(rng.below(200'001)) - 100'000;  // 10 %
  return {.drift_ppm = drift, .wall_offset_ns = static_cast<int64_t>(rng.below(1000)) * kSecond};
}

// Counts executions by call id.
class CountingService {
 public:
  CountingService(CallsSimulation& simulation, rpc::Router& router) : simulation_(simulation) {
    rpc::add_method(router, rpc::kPing, *this, &CountingService::ping);
    rpc::add_method(router, rpc::kProbeRead, *this, &CountingService::read);
  }

 private:
  Task<Result<rpc::wire::PingReply>> ping(rpc::ServerCall& call, rpc::wire::PingRequest request) {
    const int64_t wait_ns = request.wait_ms() * kMillisecond;
    FF_CO_TRY(co_await sleep_for(call.loop(), wait_ns));
    simulation_.done[request.data()]++;
    rpc::wire::PingReply reply;
    reply.set_data(request.data());
    co_return reply;
  }
  Task<Result<rpc::wire::ReadReply>> read(rpc::ServerCall& call, rpc::wire::ReadRequest request) {
    const auto bytes = rpc::ProbeService::pattern(request.seed(), request.size());
    const net::RemoteBuffer sink = rpc::from_wire(request.sink());
    FF_CO_TRY(co_await call.push(sink, 0, bytes));
    co_return rpc::wire::ReadReply();
  }

  CallsSimulation& simulation_;
};

// A process that can be killed and started again.
class ServerProcess {
 public:
  ServerProcess(CallsSimulation& simulation, std::string name)
      : simulation_(simulation), name_(std::move(name)) {
    start();
  }
  const std::string& name() const { return name_; }
  bool running() const { return live_ != nullptr; }
  void start() {
    live_ = std::make_unique<Live>(simulation_, name_);
    const auto at = live_->server.listen({"", 7000, ""});
    if (!at) simulation_.report_violation(at.error().message);
  }
  void kill() {
    simulation_.net.stop_process(name_);
    live_.reset();
  }
  rpc::Server& server() { return live_->server; }
  Loop& loop() { return live_->loop; }

 private:
  struct Live {
    Live(CallsSimulation& simulation, const std::string& name)
        : loop(simulation.world, skew(simulation.rng)),
          transport(simulation.net.transport(name)),
          service(simulation, router),
          server(loop, *transport, router, simulation.metrics, simulation.identity(name)) {}
    sim::SimLoop loop;
    std::unique_ptr<net::Transport> transport;
    rpc::Router router;
    CountingService service;
    rpc::Server server;
  };
  CallsSimulation& simulation_;
  const std::string name_;
  std::unique_ptr<Live> live_;
};

class ClientProcess {
 public:
  ClientProcess(CallsSimulation& simulation, int number)
      : simulation_(simulation), number_(number), name_(fmt::format("client{}", number)) {
    start();
  }
  const std::string& name() const { return name_; }
  bool running() const { return live_ != nullptr; }
  void start() {
    live_ = std::make_unique<Live>(simulation_, name_);
    for (int lane = 0; lane < 2; lane++) live_->gate.spawn(work());
  }
  // Kills the process at an arbitrary point.
  void kill() {
    simulation_.net.stop_process(name_);
    live_.reset();
  }
  uint64_t answered() const { return answered_; }
  // Waits for its last calls and closes its channels.
  Task<void> finish() {
    co_await live_->gate.wait_empty();
    for (auto& client : live_->clients) co_await client->close();
  }
  Loop& loop() { return live_->loop; }

 private:
  struct Live {
    Live(CallsSimulation& simulation, const std::string& name)
        : loop(simulation.world, skew(simulation.rng)),
          grants(2),
          transport(simulation.net.transport(name)),
          context{loop,           *transport,
                  grants,         simulation.metrics,
                  simulation.rng, simulation.identity(name)},
          gate(loop) {
      for (int i = 0; i < kServers; i++) {
        net::Address address{fmt::format("server{}", i), 7000, ""};
        clients.push_back(std::make_unique<rpc::Client>(context, std::move(address),
                                                        auth::Service{auth::Role::meta, {}}));
      }
    }
    sim::SimLoop loop;
    rpc::GrantScheduler grants;
    std::unique_ptr<net::Transport> transport;
    rpc::ClientContext context;
    std::vector<std::unique_ptr<rpc::Client>> clients;
    Gate gate;
  };

  Task<void> work();
  Task<Result<void>> ping(rpc::Client& client, int64_t deadline_ns);
  Task<Result<void>> read(rpc::Client& client, int64_t deadline_ns);

  CallsSimulation& simulation_;
  const int number_;
  const std::string name_;
  uint64_t calls_ = 0;
  uint64_t answered_ = 0;
  std::unique_ptr<Live> live_;
};

Task<void> ClientProcess::work() {
  Loop& loop = live_->loop;
  while (!simulation_.over) {
    const auto pause_ns = static_cast<int64_t>(simulation_.rng.below(1000)) * kMillisecond;
    if (!co_await sleep_for(loop, pause_ns)) co_return;
    rpc::Client& client = *live_->clients[simulation_.rng.below(kServers)];
    const int64_t deadline_ns =
        loop.now_ns() + static_cast<int64_t>(1 + simulation_.rng.below(5000)) * kMillisecond;
    simulation_.steps++;
    auto task =
        simulation_.rng.below(3) == 0 ? read(client, deadline_ns) : ping(client, deadline_ns);
    const auto result = co_await std::move(task);
    if (loop.now_ns() > deadline_ns + kLateNs) {
      simulation_.report_violation(fmt::format("{}: a call outlived its deadline by {} ms", name_,
                                               (loop.now_ns() - deadline_ns) / kMillisecond));
    }
    if (result) answered_++;
    const auto code = result ? 255u : static_cast<unsigned>(result.error().code);
    simulation_.outcomes =
        (simulation_.outcomes ^ (code + static_cast<unsigned>(number_) * 256)) * 0x9e3779b97f4a7c15;
  }
}

Task<Result<void>> ClientProcess::ping(rpc::Client& client, int64_t deadline_ns) {
  const std::string call = fmt::format("{}.{}", name_, calls_++);
  rpc::wire::PingRequest request;
  request.set_data(call);
  request.set_wait_ms(static_cast<uint32_t>(simulation_.rng.below(300)));
  const auto reply = co_await rpc::call_method(client, rpc::kPing, std::move(request), deadline_ns);
  const uint64_t times = simulation_.done.contains(call) ? simulation_.done.at(call) : 0;
  if (times > 1)
    simulation_.report_violation(fmt::format("call {} was executed {} times", call, times));
  if (reply && times != 1)
    simulation_.report_violation(fmt::format("call {} was answered but not executed", call));
  if (reply && reply->data() != call)
    simulation_.report_violation(fmt::format("call {} got the reply of another call", call));
  if (!reply) co_return reply.error();
  co_return {};
}

Task<Result<void>> ClientProcess::read(rpc::Client& client, int64_t deadline_ns) {
  const uint64_t seed = simulation_.rng.next();
  // Some are large enough to need a grant (over 64 KiB), most are small.
  std::vector<std::byte> memory(
      1 + simulation_.rng.below(simulation_.rng.below(4) == 0 ? 150'000 : 9000));
  Result<rpc::wire::ReadReply> reply = rpc::wire::ReadReply();
  {
    FF_CO_TRY(auto channel, co_await client.channel(deadline_ns));
    rpc::BulkCall call(std::move(channel));
    FF_CO_TRY(const net::RemoteBuffer buffer, call.sink(memory));
    rpc::wire::ReadRequest request;
    rpc::to_wire(buffer, *request.mutable_sink());
    request.set_size(memory.size());
    request.set_seed(seed);
    reply = co_await call.run(rpc::kProbeRead, std::move(request), deadline_ns);
  }
  if (reply) {
    const auto expected = rpc::ProbeService::pattern(seed, memory.size());
    if (simd::crc32c(memory) != simd::crc32c(expected)) {
      simulation_.report_violation(
          fmt::format("{}: a successful read returned wrong bytes", name_));
    }
    co_return {};
  }
  const uint32_t then = simd::crc32c(memory);
  const auto pause_ns = static_cast<int64_t>(simulation_.rng.below(3000)) * kMillisecond;
  FF_CO_TRY(co_await sleep_for(live_->loop, pause_ns));
  if (simd::crc32c(memory) != then) {
    simulation_.report_violation(
        fmt::format("{}: the memory of a failed read was written later", name_));
  }
  co_return reply.error();
}

// The cluster and its faults.
class CallsScenario {
 public:
  explicit CallsScenario(uint64_t seed) : simulation_(seed) {
    for (int i = 0; i < kServers; i++) {
      servers_.push_back(std::make_unique<ServerProcess>(simulation_, fmt::format("server{}", i)));
    }
    for (int i = 0; i < kClients; i++) {
      clients_.push_back(std::make_unique<ClientProcess>(simulation_, i));
    }
  }

  Result<ScenarioResult> run() {
    while (simulation_.world.now_ns() < kCallsFaultsNs && !simulation_.violation) {
      simulation_.world.run_for(static_cast<int64_t>(simulation_.rng.below(2000)) * kMillisecond);
      inject_fault();
    }
    heal();
    check_healed();
    finish();
    if (simulation_.violation) return *simulation_.violation;
    const uint64_t trace = simulation_.net.trace() ^ simulation_.outcomes;
    return ScenarioResult{trace, simulation_.world.now_ns(), simulation_.steps, simulation_.faults,
                          simulation_.net.delivered()};
  }

 private:
  std::string any_node() {
    const uint64_t pick = simulation_.rng.below(kServers + kClients);
    return pick < kServers ? servers_[pick]->name() : clients_[pick - kServers]->name();
  }
  void inject_fault();
  void heal();
  void check_healed();
  void finish();
  template <class Process>
  void kill_or_start(Process& process) {
    process.running() ? process.kill() : process.start();
  }

  CallsSimulation simulation_;
  std::vector<std::unique_ptr<ServerProcess>> servers_;
  std::vector<std::unique_ptr<ClientProcess>> clients_;
  std::vector<std::pair<std::string, std::string>> blocked_;
  std::vector<std::string> down_;
};

void CallsScenario::inject_fault() {
  sim::SimNet& net = simulation_.net;
  Rng& rng = simulation_.rng;
  const std::string a = any_node();
  const std::string b = any_node();
  simulation_.faults++;
  switch (rng.below(9)) {
    case 0:  // one way
      net.block(a, b);
      blocked_.emplace_back(a, b);
      break;
    case 1:
      for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
        net.block(from, to);
        blocked_.emplace_back(from, to);
      }
      break;
    case 2:
    case 3:
      for (const auto& [from, to] : blocked_) net.unblock(from, to);
      blocked_.clear();
      break;
    case 4: net.break_connections(rng.uniform01()); break;
    case 5: {
      const auto slowest = static_cast<int64_t>(rng.below(500)) * kMillisecond;
      net.set_link(a, b,
                   {.delay_min_ns = slowest / 2,
                    .delay_max_ns = slowest,
                    .bytes_per_second = 1000 + rng.below(10'000'000)});
      break;
    }
    case 6: kill_or_start(*servers_[rng.below(kServers)]); break;
    case 7: kill_or_start(*clients_[rng.below(kClients)]); break;
    default:
      if (!down_.empty()) {
        net.start_machine(down_.back());
        down_.pop_back();
      } else {
        // Its process dies too and restarts at once; its messages arrive when the machine is back.
        ServerProcess& server = *servers_[rng.below(kServers)];
        net.stop_machine(server.name());
        down_.push_back(server.name());
        if (server.running()) {
          server.kill();
          server.start();
        }
      }
  }
}

void CallsScenario::heal() {
  for (const auto& [from, to] : blocked_) simulation_.net.unblock(from, to);
  for (const auto& node : down_) simulation_.net.start_machine(node);
  simulation_.net.reset_links();
  for (auto& server : servers_) {
    if (!server->running()) server->start();
  }
  for (auto& client : clients_) {
    if (!client->running()) client->start();
  }
}

void CallsScenario::check_healed() {
  simulation_.world.run_for(kCallsHealNs);
  std::vector<uint64_t> before;
  for (const auto& client : clients_) before.push_back(client->answered());
  simulation_.world.run_for(10 * kSecond);
  for (size_t i = 0; i < clients_.size(); i++) {
    if (clients_[i]->answered() < before[i] + 10) {
      simulation_.report_violation(
          fmt::format("{} gets no answers after all faults are healed", clients_[i]->name()));
    }
  }
}

void CallsScenario::finish() {
  simulation_.over = true;
  for (auto& client : clients_) run_task(client->loop(), client->finish());
  simulation_.world.run_for(kSecond);
  for (auto& server : servers_) {
    if (server->server().connections() > 0) {
      simulation_.report_violation(
          fmt::format("{} still has {} connections after all clients are closed", server->name(),
                      server->server().connections()));
    }
    run_task(server->loop(), server->server().close(kSecond));
  }
}

}  // namespace

Result<ScenarioResult> run_calls(uint64_t seed) {
  CallsScenario scenario(seed);
  return scenario.run();
}

}  // namespace ff::scenario
