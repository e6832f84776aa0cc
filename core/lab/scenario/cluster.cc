// cluster.cc: the cluster, its operator and its faults.
#include "lab/scenario/cluster.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/cluster_oracle.h"
#include "platform/base/clock.h"
#include "storage/cluster/placement.h"
#include "storage/cluster/wire.h"

namespace ff::scenario {

namespace {

using namespace cluster_parts;

constexpr size_t kReplicas = 3;
constexpr size_t kTargetsPerDisk = 3;  // 4 chains
constexpr int64_t kClusterFaultsNs = 60 * kSecond;
// Time limit for recovery: an election, the wait of the primary, one copy after the other.
constexpr int64_t kClusterHealNs = 60 * kSecond;
// Interval of the oracle's checks.
constexpr int64_t kClusterPollNs = 20 * kMillisecond;

// The administrator who runs `ff admin`, on a machine without faults.
class Operator {
 public:
  explicit Operator(ClusterSimulation& simulation)
      : simulation_(simulation),
        loop_(simulation.world.loop()),
        transport_(simulation.net.transport("operator")),
        context_{loop_,          *transport_,
                 grants_,        simulation.metrics,
                 simulation.rng, simulation.identity("operator")},
        managers_(context_, manager_addresses()),
        gate_(loop_) {
    gate_.spawn(work());
  }
  // From now on drains and undrains random nodes and targets, and accepts losses.
  void start_draining() { draining_ = true; }
  // Ends all drains and starts no new ones.
  void stop_draining() { settling_ = true; }

 private:
  template <class Request, class Reply>
  Task<Result<Reply>> call(rpc::Method<Request, Reply> method, Request request) {
    const int64_t now_ns = loop_.now_ns();
    co_return co_await managers_.call(method, std::move(request), kManagerCallNs,
                                      now_ns + 5 * kManagerCallNs, true);
  }
  Task<void> work();
  Task<Result<void>> form();
  Task<Result<void>> drain();
  Task<Result<cluster::Routing>> routing();
  Task<Result<void>> accept_loss();

  ClusterSimulation& simulation_;
  Loop& loop_;
  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport_;
  rpc::ClientContext context_;
  cluster::ManagerClient managers_;
  bool draining_ = false;
  bool settling_ = false;
  Gate gate_;
};

Task<void> Operator::work() {
  for (bool formed = false; !formed;) {
    const auto done = co_await form();
    formed = done.ok();
    if (!co_await sleep_for(loop_, kSecond)) co_return;
  }
  for (;;) {
    const int64_t pause_ns = simulation_.some_ns(settling_ ? kSecond : 20 * kSecond);
    if (!co_await sleep_for(loop_, pause_ns)) co_return;
    if (!draining_) continue;
    (void)co_await drain();
    if (settling_) continue;
    (void)co_await accept_loss();
  }
}

Task<Result<cluster::Routing>> Operator::routing() {
  FF_CO_TRY(const auto reply, co_await call(cluster::kRouting, cluster::wire::RoutingRequest()));
  FF_CO_TRY(const auto changes, cluster::from_wire(reply.changes()));
  cluster::Routing routing;
  FF_CO_TRY(routing.apply(changes));
  co_return routing;
}

// Sometimes accepts the loss of a chain whose last target is offline (the manager chooses the
// heir); sometimes promotes a target that was set aside in a chain that serves again.
Task<Result<void>> Operator::accept_loss() {
  FF_CO_TRY(const auto now, co_await routing());
  for (const auto& [id, chain] : now.chains) {
    cluster::wire::AcceptLossRequest request;
    request.set_chain(id);
    request.set_by("operator");
    request.set_expect(chain.version);
    const bool lost = chain.targets.front().state == cluster::TargetState::lastsrv;
    if (simulation_.rng.below(lost ? 2 : 8) != 0) continue;
    if (!lost) {
      if (chain.aside.empty()) continue;
      request.set_promote(chain.aside[simulation_.rng.below(chain.aside.size())].target);
      request.set_incomplete(true);
    }
    simulation_.steps++;
    (void)co_await call(cluster::kAcceptLoss, std::move(request));
  }
  co_return Result<void>();
}

// Creates the cluster and its chains; continues a partial creation.
Task<Result<void>> Operator::form() {
  (void)co_await call(cluster::kInit, cluster::wire::InitRequest());
  FF_CO_TRY(const auto now, co_await routing());
  if (!now.chains.empty()) co_return Result<void>();
  if (now.nodes.size() < kNodes) co_return fail(Errc::busy, "nodes are missing");
  const auto request = cluster::placement_request(now, kTargetsPerDisk, kReplicas);
  FF_CO_TRY(const auto plan, cluster::plan_placement(request));
  cluster::wire::CreateChainsRequest create;
  for (const auto& places : plan.chains) {
    auto& chain = *create.add_chains();
    for (const cluster::DiskLocation place : places) {
      auto& target = *chain.add_targets();
      target.set_node(place.node);
      target.set_disk(place.disk);
    }
  }
  const int64_t now_ns = loop_.now_ns();
  FF_CO_TRY(co_await managers_.call(cluster::kCreateChains, std::move(create), kManagerCallNs,
                                    now_ns + 5 * kManagerCallNs, false));
  co_return Result<void>();
}

Task<Result<void>> Operator::drain() {
  FF_CO_TRY(const auto now, co_await routing());
  std::vector<cluster::TargetId> targets;
  for (const auto& [id, chain] : now.chains) {
    for (const cluster::Target& target : chain.targets) targets.push_back(target.id);
  }
  cluster::wire::DrainRequest request;
  request.set_drain(!settling_ && simulation_.rng.below(2) == 0);
  const uint64_t pick = simulation_.rng.below(kNodes + targets.size());
  simulation_.steps++;
  if (!settling_) {
    pick < kNodes ? request.set_node(pick + 1) : request.set_target(targets[pick - kNodes]);
    FF_CO_TRY(co_await call(cluster::kDrain, std::move(request)));
    co_return Result<void>();
  }
  for (uint64_t i = 0; i < kNodes + targets.size(); i++) {
    i < kNodes ? request.set_node(i + 1) : request.set_node(0);
    i < kNodes ? request.set_target(0) : request.set_target(targets[i - kNodes]);
    (void)co_await call(cluster::kDrain, request);
  }
  co_return Result<void>();
}

class ClusterScenario {
 public:
  explicit ClusterScenario(uint64_t seed) : simulation_(seed) {
    for (int i = 0; i < kManagers; i++) {
      managers_.push_back(std::make_unique<ManagerProcess>(simulation_, i));
    }
    for (cluster::NodeId id = 1; id <= kNodes; id++) {
      nodes_.push_back(std::make_unique<NodeProcess>(simulation_, id));
      nodes_.back()->set_copy(
          [this](NodeProcess& node, cluster::TargetId target, uint64_t version) {
            return oracle_.copy(node, target, version);
          });
    }
  }

  Result<ScenarioResult> run() {
    run_until_all_serve(kFormNs, "formed");
    operator_.start_draining();
    int64_t next_ns = simulation_.world.now_ns();
    for (const int64_t end_ns = next_ns + kClusterFaultsNs;
         next_ns < end_ns && !simulation_.violation;) {
      next_ns += simulation_.some_ns(3 * kSecond);
      run_to(next_ns);
      inject_fault();
    }
    heal();
    run_until_all_serve(kClusterHealNs, "healed");
    if (simulation_.violation) return *simulation_.violation;
    const uint64_t trace = simulation_.net.trace() ^ oracle_.writes() * 0x9e3779b97f4a7c15;
    return ScenarioResult{trace, simulation_.world.now_ns(), oracle_.writes() + simulation_.steps,
                          simulation_.faults, simulation_.net.delivered()};
  }

 private:
  void run_to(int64_t until_ns) {
    while (simulation_.world.now_ns() < until_ns && !simulation_.violation) {
      simulation_.world.run_for(kClusterPollNs);
      oracle_.check();
    }
  }
  void run_until_all_serve(int64_t within_ns, std::string_view when) {
    const int64_t end_ns = simulation_.world.now_ns() + within_ns;
    while (!oracle_.all_serve() && !simulation_.violation) {
      if (simulation_.world.now_ns() >= end_ns) {
        return simulation_.report_violation(
            fmt::format("the cluster has {}, but not every target serves{}", when,
                        not_serving(oracle_.stored())));
      }
      run_to(simulation_.world.now_ns() + kSecond);
    }
  }
  std::string any_name() {
    const uint64_t pick = simulation_.rng.below(kManagers + kNodes);
    return pick < kManagers ? managers_[pick]->name() : nodes_[pick - kManagers]->name();
  }
  template <class Process>
  void kill_or_start(Process& process) {
    process.running() ? process.kill() : process.start();
  }
  template <class Process>
  void pause_or_resume(Process& process) {
    process.pause(!process.paused());
  }
  void inject_fault();
  void inject_link_fault();
  void heal();

  ClusterSimulation simulation_;
  ClusterOracle::Managers managers_;
  ClusterOracle::Nodes nodes_;
  ClusterOracle oracle_{simulation_, managers_, nodes_};
  Operator operator_{simulation_};
  std::vector<std::pair<std::string, std::string>> blocked_;
};

void ClusterScenario::inject_fault() {
  Rng& rng = simulation_.rng;
  ManagerProcess& manager = *managers_[rng.below(kManagers)];
  NodeProcess& node = *nodes_[rng.below(kNodes)];
  simulation_.faults++;
  switch (rng.below(12)) {
    case 0: kill_or_start(manager); break;
    case 1:
    case 2: kill_or_start(node); break;
    case 3: pause_or_resume(manager); break;
    case 4: pause_or_resume(node); break;
    case 5: manager.partition_store(rng.below(2) == 0); break;
    case 6: node.fail_disk(!node.disk_failed()); break;
    case 7:  // restart at once, as a supervisor does
      if (node.running()) node.kill();
      node.start();
      break;
    default: inject_link_fault();
  }
}

void ClusterScenario::inject_link_fault() {
  sim::SimNet& net = simulation_.net;
  Rng& rng = simulation_.rng;
  const std::string a = any_name();
  const std::string b = any_name();
  switch (rng.below(5)) {
    case 0:  // one way
      net.block(a, b);
      blocked_.emplace_back(a, b);
      break;
    case 1:  // isolate from all nodes
      for (const auto& other : nodes_) {
        for (const auto& [from, to] : {std::pair(a, other->name()), std::pair(other->name(), a)}) {
          net.block(from, to);
          blocked_.emplace_back(from, to);
        }
      }
      break;
    case 2:
      for (const auto& [from, to] : blocked_) net.unblock(from, to);
      blocked_.clear();
      break;
    case 3: net.break_connections(rng.uniform01()); break;
    default: {
      const int64_t slowest = simulation_.some_ns(kSecond) + 2;
      net.set_link(a, b, {.delay_min_ns = slowest / 2, .delay_max_ns = slowest});
    }
  }
}

void ClusterScenario::heal() {
  for (const auto& [from, to] : blocked_) simulation_.net.unblock(from, to);
  simulation_.net.reset_links();
  for (auto& manager : managers_) {
    manager->partition_store(false);
    if (!manager->running()) manager->start();
    manager->pause(false);
  }
  for (auto& node : nodes_) {
    node->fail_disk(false);
    if (!node->running()) node->start();
    node->pause(false);
  }
  operator_.stop_draining();
}

}  // namespace

Result<ScenarioResult> run_cluster(uint64_t seed) {
  ClusterScenario scenario(seed);
  return scenario.run();
}

}  // namespace ff::scenario
