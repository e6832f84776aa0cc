// cluster_parts.cc: the objects of each process, and the work of a storage daemon without data.
#include "lab/scenario/cluster_parts.h"

#include <fmt/format.h>

#include <utility>

#include "platform/base/check.h"
#include "platform/base/clock.h"
#include "storage/meta/meta_service.h"

namespace ff::scenario::cluster_parts {

namespace {

// The store has delays, conflicts and lost answers.
constexpr kv::MemoryFaults kStoreFaults{
    .delay_max_ns = 20 * kMillisecond, .conflict = 0.05, .lost_answer = 0.02};
constexpr int64_t kCollectAfterNs = 5 * kSecond;

}  // namespace

sim::ClockSkew skew(Rng& rng) {
  return {.drift_ppm = static_cast<int64_t>(rng.below(200'001)) - 100'000};
}

std::vector<net::Address> manager_addresses() {
  std::vector<net::Address> addresses;
  for (int i = 0; i < kManagers; i++) addresses.push_back({fmt::format("manager{}", i), kPort, ""});
  return addresses;
}

std::string not_serving(const cluster::Routing& routing) {
  std::string text;
  for (const auto& [id, chain] : routing.chains) {
    for (const cluster::Target& target : chain.targets) {
      if (target.state == cluster::TargetState::serving) continue;
      text += fmt::format("; target {} of chain {} on node {}: {}", target.id, id, target.node,
                          cluster::name_of(target.state));
    }
  }
  return text;
}

PartitionedEngine::PartitionedEngine(ClusterSimulation& simulation, Loop& loop, const bool& cut)
    : loop_(loop), cut_(cut), engine_(simulation.store, loop, simulation.rng, kStoreFaults) {}

Task<Result<void>> PartitionedEngine::pass(int64_t deadline_ns) {
  while (cut_) {
    FF_CO_TRY(co_await sleep_for(loop_, 100 * kMillisecond));
    if (loop_.now_ns() >= deadline_ns)
      co_return fail(Errc::unreachable, "the store is partitioned");
  }
  co_return Result<void>();
}

// A commit arrives when the partition heals, long after the sender has timed out.
kv::TxnFunction PartitionedEngine::delayed(kv::TxnFunction function) {
  return [this, function = std::move(function)](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(co_await function(txn));
    co_return co_await pass(INT64_MAX);
  };
}

Task<Result<void>> PartitionedEngine::run(kv::TxnFunction function, int64_t deadline_ns) {
  return engine_.run(delayed(std::move(function)), deadline_ns);
}

Task<Result<void>> PartitionedEngine::run_async_commit(kv::TxnFunction function,
                                                       int64_t deadline_ns) {
  return engine_.run_async_commit(delayed(std::move(function)), deadline_ns);
}

Task<Result<void>> PartitionedEngine::sync(int64_t deadline_ns) {
  FF_CO_TRY(co_await pass(deadline_ns));
  co_return co_await engine_.sync(deadline_ns);
}

Task<Result<void>> PartitionedEngine::view(kv::TxnFunction function, int64_t deadline_ns) {
  FF_CO_TRY(co_await pass(deadline_ns));
  co_return co_await engine_.view(std::move(function), deadline_ns);
}

struct ManagerProcess::Live {
  Live(ClusterSimulation& simulation, const std::string& name, const bool& cut)
      : loop(simulation.world, skew(simulation.rng)),
        transport(simulation.net.transport(name)),
        context{loop,           *transport,
                grants,         simulation.metrics,
                simulation.rng, simulation.identity(name)},
        engine(simulation, loop, cut),
        service(engine, loop, simulation.rng, router),
        server(loop, *transport, router, simulation.metrics, simulation.identity(name)) {}
  void serve_files() {
    files.emplace(engine, context, router,
                  meta::MetaService::Options{.primary = [this] { return service.is_primary(); },
                                             .collect_after_ns = kCollectAfterNs});
    files->start();
  }
  sim::SimLoop loop;
  rpc::GrantScheduler grants;
  std::unique_ptr<net::Transport> transport;
  rpc::ClientContext context;
  PartitionedEngine engine;
  rpc::Router router;
  cluster::ManagerService service;
  std::optional<meta::MetaService> files;
  rpc::Server server;
};

ManagerProcess::ManagerProcess(ClusterSimulation& simulation, int number, bool files)
    : simulation_(simulation), name_(fmt::format("manager{}", number)), files_(files) {
  start();
}

ManagerProcess::~ManagerProcess() = default;

void ManagerProcess::start() {
  live_ = std::make_unique<Live>(simulation_, name_, cut_);
  const auto at = live_->server.listen({"", kPort, ""});
  if (!at) simulation_.report_violation(at.error().message);
  live_->service.start({.address = fmt::format("{}:{}", name_, kPort)});
  if (files_) live_->serve_files();
}

void ManagerProcess::kill() {
  simulation_.net.stop_process(name_);
  live_.reset();
  paused_ = false;
}

void ManagerProcess::pause(bool paused) {
  if (live_ != nullptr) live_->loop.set_paused(paused);
  paused_ = paused && live_ != nullptr;
}

uint64_t ManagerProcess::epoch() const { return live_ == nullptr ? 0 : live_->service.epoch(); }

std::optional<Error> ManagerProcess::halted() const {
  return live_ == nullptr ? std::nullopt : live_->service.halted();
}

struct NodeProcess::Live {
  Live(ClusterSimulation& simulation, const std::string& name, cluster::NodeInfo self,
       cluster::Routing held, std::function<void()> adopted)
      : loop(simulation.world, skew(simulation.rng)),
        transport(simulation.net.transport(name)),
        context{loop,           *transport,
                grants,         simulation.metrics,
                simulation.rng, simulation.identity(name)},
        member(std::move(self), std::move(held)),
        heartbeats(context, manager_addresses(), member, std::move(adopted)),
        gate(loop) {}
  sim::SimLoop loop;
  rpc::GrantScheduler grants;
  std::unique_ptr<net::Transport> transport;
  rpc::ClientContext context;
  cluster::Member member;
  cluster::HeartbeatSender heartbeats;
  Gate gate;
};

NodeProcess::NodeProcess(ClusterSimulation& simulation, cluster::NodeId id)
    : simulation_(simulation), id_(id), name_(fmt::format("node{}", id)) {
  start();
}

NodeProcess::~NodeProcess() = default;

void NodeProcess::start() {
  cluster::NodeInfo self{.id = id_,
                         .name = name_,
                         .generation = ++generation_,
                         .addresses = {name_ + ":7000"},
                         .disks = {{.id = 1, .path = "/data", .capacity = 1}}};
  live_ = std::make_unique<Live>(simulation_, name_, std::move(self), kept_,
                                 [this] { kept_ = live_->member.routing(); });
  live_->gate.spawn(live_->heartbeats.run());
  live_->gate.spawn(work(*live_));
}

void NodeProcess::kill() {
  simulation_.net.stop_process(name_);
  live_.reset();
  paused_ = false;
}

void NodeProcess::pause(bool paused) {
  if (live_ != nullptr) live_->loop.set_paused(paused);
  paused_ = paused && live_ != nullptr;
}

const cluster::Member& NodeProcess::member() const { return live_->member; }
int64_t NodeProcess::now_ns() const { return live_->loop.now_ns(); }

Task<void> NodeProcess::work(Live& live) {
  for (;;) {
    const int64_t pause_ns = simulation_.some_ns(300 * kMillisecond);
    if (!co_await sleep_for(live.loop, pause_ns)) co_return;
    for (const cluster::TargetId id : live.member.targets_to_create()) created_targets_.insert(id);
    const cluster::Routing& routing = live.member.routing();
    for (const auto& [chain_id, chain] : routing.chains) {
      for (const cluster::Target& target : chain.targets) {
        if (target.node == id_) update_target(live, chain, target);
      }
    }
    if (live.member.has_unreported_changes()) live.heartbeats.request_heartbeat();
  }
}

void NodeProcess::update_target(Live& live, const cluster::Chain& chain,
                                const cluster::Target& target) {
  live.member.set_usable(target.id, created_targets_.contains(target.id) && !disk_failed_);
  if (target.state != cluster::TargetState::syncing || simulation_.rng.below(4) != 0) return;
  if (!live.member.may_write(target.id, live.loop.now_ns())) return;
  if (copy_(*this, target.id, chain.version)) live.member.set_copied(target.id, chain.version);
}

}  // namespace ff::scenario::cluster_parts
