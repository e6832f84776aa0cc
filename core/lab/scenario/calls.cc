// calls.cc: the cluster, the clients' work and the faults of the story of rpc/.
#include "lab/scenario/calls.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/scenario/stage.h"
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
constexpr int64_t kCallsTroubleNs = 60 * kSecond;
// How long after all is healed every client must be answered again: the longest pause between
// attempts, a lost connection's keep-alive, some calls.
constexpr int64_t kCallsHealNs = 30 * kSecond;
// How far a call may outlive its deadline: the clocks drift, and a handshake's goodbye takes time.
constexpr int64_t kLateNs = 3 * kSecond;

struct CallsStage : Stage {
  using Stage::Stage;

  std::map<std::string, uint64_t> done;  // by the call's own name
  bool over = false;                     // no new calls
  uint64_t outcomes = 0;                 // a hash over how calls ended
};

sim::Skew skew(Rng& rng) {
  const auto drift = static_cast<int64_t>(rng.below(200'001)) - 100'000;  // 10 %
  return {.drift_ppm = drift, .wall_offset_ns = static_cast<int64_t>(rng.below(1000)) * kSecond};
}

// Counts what it has done, by name.
class CountingService {
 public:
  CountingService(CallsStage& stage, rpc::Router& router) : stage_(stage) {
    rpc::add_method(router, rpc::kPing, *this, &CountingService::ping);
    rpc::add_method(router, rpc::kProbeRead, *this, &CountingService::read);
  }

 private:
  Task<Result<rpc::wire::PingReply>> ping(rpc::ServerCall& call, rpc::wire::PingRequest request) {
    const int64_t wait_ns = request.wait_ms() * kMillisecond;
    FF_CO_TRY(co_await after(call.loop(), wait_ns));
    stage_.done[request.data()]++;
    rpc::wire::PingReply reply;
    reply.set_data(request.data());
    co_return reply;
  }
  Task<Result<rpc::wire::ReadReply>> read(rpc::ServerCall& call, rpc::wire::ReadRequest request) {
    const auto bytes = rpc::ProbeService::pattern(request.seed(), request.size());
    const net::Slice sink = rpc::from_wire(request.sink());
    FF_CO_TRY(co_await call.push(sink, 0, bytes));
    co_return rpc::wire::ReadReply();
  }

  CallsStage& stage_;
};

// A process that can be killed and started again.
class ServerProcess {
 public:
  ServerProcess(CallsStage& stage, std::string name) : stage_(stage), name_(std::move(name)) {
    start();
  }
  const std::string& name() const { return name_; }
  bool running() const { return live_ != nullptr; }
  void start() {
    live_ = std::make_unique<Live>(stage_, name_);
    const auto at = live_->server.listen({"", 7000, ""});
    if (!at) stage_.broken(at.error().message);
  }
  void kill() {
    stage_.net.stop_process(name_);
    live_.reset();
  }
  rpc::Server& server() { return live_->server; }
  Loop& loop() { return live_->loop; }

 private:
  struct Live {
    Live(CallsStage& stage, const std::string& name)
        : loop(stage.world, skew(stage.rng)),
          transport(stage.net.transport(name)),
          service(stage, router),
          server(loop, *transport, router, stage.metrics, stage.identity(name)) {}
    sim::SimLoop loop;
    std::unique_ptr<net::Transport> transport;
    rpc::Router router;
    CountingService service;
    rpc::Server server;
  };
  CallsStage& stage_;
  const std::string name_;
  std::unique_ptr<Live> live_;
};

class ClientProcess {
 public:
  ClientProcess(CallsStage& stage, int number)
      : stage_(stage), number_(number), name_(fmt::format("client{}", number)) {
    start();
  }
  const std::string& name() const { return name_; }
  bool running() const { return live_ != nullptr; }
  void start() {
    live_ = std::make_unique<Live>(stage_, name_);
    for (int lane = 0; lane < 2; lane++) live_->gate.spawn(work());
  }
  // The process is gone in the middle of whatever it did.
  void kill() {
    stage_.net.stop_process(name_);
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
    Live(CallsStage& stage, const std::string& name)
        : loop(stage.world, skew(stage.rng)),
          senders(2),
          transport(stage.net.transport(name)),
          context{loop, *transport, senders, stage.metrics, stage.rng, stage.identity(name)},
          gate(loop) {
      for (int i = 0; i < kServers; i++) {
        net::Address address{fmt::format("server{}", i), 7000, ""};
        clients.push_back(std::make_unique<rpc::Client>(context, std::move(address)));
      }
    }
    sim::SimLoop loop;
    rpc::Senders senders;
    std::unique_ptr<net::Transport> transport;
    rpc::ClientContext context;
    std::vector<std::unique_ptr<rpc::Client>> clients;
    Gate gate;
  };

  Task<void> work();
  Task<Result<void>> ping(rpc::Client& client, int64_t deadline_ns);
  Task<Result<void>> read(rpc::Client& client, int64_t deadline_ns);

  CallsStage& stage_;
  const int number_;
  const std::string name_;
  uint64_t calls_ = 0;
  uint64_t answered_ = 0;
  std::unique_ptr<Live> live_;
};

Task<void> ClientProcess::work() {
  Loop& loop = live_->loop;
  while (!stage_.over) {
    const auto pause_ns = static_cast<int64_t>(stage_.rng.below(1000)) * kMillisecond;
    if (!co_await after(loop, pause_ns)) co_return;
    rpc::Client& client = *live_->clients[stage_.rng.below(kServers)];
    const int64_t deadline_ns =
        loop.now_ns() + static_cast<int64_t>(1 + stage_.rng.below(5000)) * kMillisecond;
    stage_.steps++;
    auto task = stage_.rng.below(3) == 0 ? read(client, deadline_ns) : ping(client, deadline_ns);
    const auto result = co_await std::move(task);
    if (loop.now_ns() > deadline_ns + kLateNs) {
      stage_.broken(fmt::format("{}: a call outlived its deadline by {} ms", name_,
                                (loop.now_ns() - deadline_ns) / kMillisecond));
    }
    if (result) answered_++;
    const auto code = result ? 255u : static_cast<unsigned>(result.error().code);
    stage_.outcomes =
        (stage_.outcomes ^ (code + static_cast<unsigned>(number_) * 256)) * 0x9e3779b97f4a7c15;
  }
}

Task<Result<void>> ClientProcess::ping(rpc::Client& client, int64_t deadline_ns) {
  const std::string call = fmt::format("{}.{}", name_, calls_++);
  rpc::wire::PingRequest request;
  request.set_data(call);
  request.set_wait_ms(static_cast<uint32_t>(stage_.rng.below(300)));
  auto task = rpc::call_method(client, rpc::kPing, std::move(request), deadline_ns);
  const auto reply = co_await std::move(task);
  const uint64_t times = stage_.done.contains(call) ? stage_.done.at(call) : 0;
  if (times > 1) stage_.broken(fmt::format("call {} was done {} times", call, times));
  if (reply && times != 1) stage_.broken(fmt::format("call {} was answered and not done", call));
  if (reply && reply->data() != call) stage_.broken(fmt::format("call {} got another's", call));
  if (!reply) co_return reply.error();
  co_return {};
}

Task<Result<void>> ClientProcess::read(rpc::Client& client, int64_t deadline_ns) {
  const uint64_t seed = stage_.rng.next();
  // Some need a grant (from 64 KiB on), most are small.
  std::vector<std::byte> memory(1 + stage_.rng.below(stage_.rng.below(4) == 0 ? 150'000 : 9000));
  Result<rpc::wire::ReadReply> reply = rpc::wire::ReadReply();
  {
    FF_CO_TRY(auto channel, co_await client.channel(deadline_ns));
    rpc::BulkCall call(std::move(channel));
    FF_CO_TRY(const net::Slice slice, call.sink(memory));
    rpc::wire::ReadRequest request;
    rpc::to_wire(slice, *request.mutable_sink());
    request.set_size(memory.size());
    request.set_seed(seed);
    auto task = call.run(rpc::kProbeRead, std::move(request), deadline_ns);
    reply = co_await std::move(task);
  }
  if (reply) {
    const auto expected = rpc::ProbeService::pattern(seed, memory.size());
    if (simd::crc32c(memory) != simd::crc32c(expected)) {
      stage_.broken(fmt::format("{}: an answered read holds other bytes", name_));
    }
    co_return {};
  }
  const uint32_t then = simd::crc32c(memory);
  const auto pause_ns = static_cast<int64_t>(stage_.rng.below(3000)) * kMillisecond;
  FF_CO_TRY(co_await after(live_->loop, pause_ns));
  if (simd::crc32c(memory) != then) {
    stage_.broken(fmt::format("{}: memory of a failed read was written later", name_));
  }
  co_return reply.error();
}

// The cluster and what befalls it.
class CallsStory {
 public:
  explicit CallsStory(uint64_t seed) : stage_(seed) {
    for (int i = 0; i < kServers; i++) {
      servers_.push_back(std::make_unique<ServerProcess>(stage_, fmt::format("server{}", i)));
    }
    for (int i = 0; i < kClients; i++) {
      clients_.push_back(std::make_unique<ClientProcess>(stage_, i));
    }
  }

  Result<Outcome> run() {
    while (stage_.world.now_ns() < kCallsTroubleNs && !stage_.violation) {
      stage_.world.run_for(static_cast<int64_t>(stage_.rng.below(2000)) * kMillisecond);
      trouble();
    }
    heal();
    check_healed();
    finish();
    if (stage_.violation) return *stage_.violation;
    const uint64_t trace = stage_.net.trace() ^ stage_.outcomes;
    return Outcome{trace, stage_.world.now_ns(), stage_.steps, stage_.faults,
                   stage_.net.delivered()};
  }

 private:
  std::string any_node() {
    const uint64_t pick = stage_.rng.below(kServers + kClients);
    return pick < kServers ? servers_[pick]->name() : clients_[pick - kServers]->name();
  }
  void trouble();
  void heal();
  void check_healed();
  void finish();
  template <class Process>
  void kill_or_start(Process& process) {
    process.running() ? process.kill() : process.start();
  }

  CallsStage stage_;
  std::vector<std::unique_ptr<ServerProcess>> servers_;
  std::vector<std::unique_ptr<ClientProcess>> clients_;
  std::vector<std::pair<std::string, std::string>> blocked_;
  std::vector<std::string> down_;
};

void CallsStory::trouble() {
  sim::SimNet& net = stage_.net;
  Rng& rng = stage_.rng;
  const std::string a = any_node();
  const std::string b = any_node();
  stage_.faults++;
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
    case 4: net.break_connections(rng.unit()); break;
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
        // Its processes are gone with it, and started again at once: heard once it is back.
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

void CallsStory::heal() {
  for (const auto& [from, to] : blocked_) stage_.net.unblock(from, to);
  for (const auto& node : down_) stage_.net.start_machine(node);
  stage_.net.forget_links();
  for (auto& server : servers_) {
    if (!server->running()) server->start();
  }
  for (auto& client : clients_) {
    if (!client->running()) client->start();
  }
}

void CallsStory::check_healed() {
  stage_.world.run_for(kCallsHealNs);
  std::vector<uint64_t> before;
  for (const auto& client : clients_) before.push_back(client->answered());
  stage_.world.run_for(10 * kSecond);
  for (size_t i = 0; i < clients_.size(); i++) {
    if (clients_[i]->answered() < before[i] + 10) {
      stage_.broken(
          fmt::format("{} is no longer answered, though all is healed", clients_[i]->name()));
    }
  }
}

void CallsStory::finish() {
  stage_.over = true;
  for (auto& client : clients_) run_task(client->loop(), client->finish());
  stage_.world.run_for(kSecond);
  for (auto& server : servers_) {
    if (server->server().connections() > 0) {
      stage_.broken(fmt::format("{} still has {} connections, though all clients have gone",
                                server->name(), server->server().connections()));
    }
    run_task(server->loop(), server->server().close(kSecond));
  }
}

}  // namespace

Result<Outcome> run_calls(uint64_t seed) {
  CallsStory story(seed);
  return story.run();
}

}  // namespace ff::scenario
