// cluster.cc: the cluster, its operator, and what befalls it.
#include "lab/scenario/cluster.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/cluster_truth.h"
#include "platform/base/clock.h"
#include "storage/cluster/placement.h"
#include "storage/cluster/wire.h"

namespace ff::scenario {

namespace {

using namespace cluster_parts;

constexpr size_t kReplicas = 3;
constexpr size_t kTargetsPerDisk = 3;  // 4 chains
constexpr int64_t kClusterTroubleNs = 60 * kSecond;
// From a healed cluster to one that serves in full: a primary, its wait, one copy after the other.
constexpr int64_t kClusterHealNs = 60 * kSecond;
// Between two looks at the truth.
constexpr int64_t kClusterPollNs = 20 * kMillisecond;

// Whoever runs `ff admin`, on a machine that nothing befalls.
class Operator {
 public:
  explicit Operator(ClusterStage& stage)
      : stage_(stage),
        loop_(stage.world.loop()),
        transport_(stage.net.transport("operator")),
        context_{loop_,         *transport_, senders_,
                 stage.metrics, stage.rng,   stage.identity("operator")},
        managers_(context_, manager_addresses()),
        gate_(loop_) {
    gate_.spawn(work());
  }
  // From now on nodes and targets are drained, and taken back; losses are accepted, and taken back.
  void begin() { draining_ = true; }
  // No more drains, and none left.
  void settle() { settling_ = true; }

 private:
  template <class Request, class Reply>
  Task<Result<Reply>> call(rpc::Method<Request, Reply> method, Request request) {
    const int64_t now_ns = loop_.now_ns();
    auto calling = managers_.call(method, std::move(request), kManagerCallNs,
                                  now_ns + 5 * kManagerCallNs, true);
    co_return co_await std::move(calling);
  }
  Task<void> work();
  Task<Result<void>> form();
  Task<Result<void>> drain();
  Task<Result<cluster::Routing>> routing();
  Task<Result<void>> accept_loss();

  ClusterStage& stage_;
  Loop& loop_;
  rpc::Senders senders_;
  std::unique_ptr<net::Transport> transport_;
  rpc::ClientContext context_;
  cluster::ManagerClient managers_;
  bool draining_ = false;
  bool settling_ = false;
  Gate gate_;
};

Task<void> Operator::work() {
  for (bool formed = false; !formed;) {
    auto forming = form();
    const auto done = co_await std::move(forming);
    formed = done.ok();
    if (!co_await after(loop_, kSecond)) co_return;
  }
  for (;;) {
    const int64_t pause_ns = stage_.some_ns(settling_ ? kSecond : 20 * kSecond);
    if (!co_await after(loop_, pause_ns)) co_return;
    if (!draining_) continue;
    auto draining = drain();
    (void)co_await std::move(draining);
    if (settling_) continue;
    auto accepting = accept_loss();
    (void)co_await std::move(accepting);
  }
}

Task<Result<cluster::Routing>> Operator::routing() {
  auto asking = call(cluster::kRouting, cluster::wire::RoutingRequest());
  FF_CO_TRY(const auto reply, co_await std::move(asking));
  FF_CO_TRY(const auto changes, cluster::from_wire(reply.changes()));
  cluster::Routing routing;
  FF_CO_TRY(routing.apply(changes));
  co_return routing;
}

// Now and then of a chain whose last target is away, as the manager decides; now and then of one
// that serves again, for a target that was set aside.
Task<Result<void>> Operator::accept_loss() {
  auto asking = routing();
  FF_CO_TRY(const auto now, co_await std::move(asking));
  for (const auto& [id, chain] : now.chains) {
    cluster::wire::AcceptLossRequest request;
    request.set_chain(id);
    request.set_by("operator");
    request.set_expect(chain.version);
    const bool lost = chain.targets.front().state == cluster::State::lastsrv;
    if (stage_.rng.below(lost ? 2 : 8) != 0) continue;
    if (!lost) {
      if (chain.aside.empty()) continue;
      request.set_promote(chain.aside[stage_.rng.below(chain.aside.size())].target);
      request.set_incomplete(true);
    }
    stage_.steps++;
    auto accepting = call(cluster::kAcceptLoss, std::move(request));
    (void)co_await std::move(accepting);
  }
  co_return Result<void>();
}

// A cluster with chains, whatever has been made of it so far.
Task<Result<void>> Operator::form() {
  auto init = call(cluster::kInit, cluster::wire::InitRequest());
  (void)co_await std::move(init);
  auto asking = routing();
  FF_CO_TRY(const auto now, co_await std::move(asking));
  if (!now.chains.empty()) co_return Result<void>();
  if (now.nodes.size() < kNodes) co_return fail(Errc::busy, "nodes are missing");
  const auto request = cluster::placement_request(now, kTargetsPerDisk, kReplicas);
  FF_CO_TRY(const auto plan, cluster::place(request));
  cluster::wire::CreateChainsRequest create;
  for (const auto& places : plan.chains) {
    auto& chain = *create.add_chains();
    for (const cluster::Place place : places) {
      auto& target = *chain.add_targets();
      target.set_node(place.node);
      target.set_disk(place.disk);
    }
  }
  const int64_t now_ns = loop_.now_ns();
  auto creating = managers_.call(cluster::kCreateChains, std::move(create), kManagerCallNs,
                                 now_ns + 5 * kManagerCallNs, false);
  FF_CO_TRY(co_await std::move(creating));
  co_return Result<void>();
}

Task<Result<void>> Operator::drain() {
  auto asking = routing();
  FF_CO_TRY(const auto now, co_await std::move(asking));
  std::vector<cluster::TargetId> targets;
  for (const auto& [id, chain] : now.chains) {
    for (const cluster::Target& target : chain.targets) targets.push_back(target.id);
  }
  cluster::wire::DrainRequest request;
  request.set_drain(!settling_ && stage_.rng.below(2) == 0);
  const uint64_t pick = stage_.rng.below(kNodes + targets.size());
  stage_.steps++;
  if (!settling_) {
    pick < kNodes ? request.set_node(pick + 1) : request.set_target(targets[pick - kNodes]);
    auto draining = call(cluster::kDrain, std::move(request));
    FF_CO_TRY(co_await std::move(draining));
    co_return Result<void>();
  }
  for (uint64_t i = 0; i < kNodes + targets.size(); i++) {
    i < kNodes ? request.set_node(i + 1) : request.set_node(0);
    i < kNodes ? request.set_target(0) : request.set_target(targets[i - kNodes]);
    auto draining = call(cluster::kDrain, request);
    (void)co_await std::move(draining);
  }
  co_return Result<void>();
}

class ClusterStory {
 public:
  explicit ClusterStory(uint64_t seed) : stage_(seed) {
    for (int i = 0; i < kManagers; i++) {
      managers_.push_back(std::make_unique<ManagerProcess>(stage_, i));
    }
    for (cluster::NodeId id = 1; id <= kNodes; id++) {
      nodes_.push_back(std::make_unique<NodeProcess>(stage_, id));
      nodes_.back()->set_copy(
          [this](NodeProcess& node, cluster::TargetId target, uint64_t version) {
            return truth_.copy(node, target, version);
          });
    }
  }

  Result<Outcome> run() {
    run_until_all_serve(kFormNs, "formed");
    operator_.begin();
    int64_t next_ns = stage_.world.now_ns();
    for (const int64_t end_ns = next_ns + kClusterTroubleNs;
         next_ns < end_ns && !stage_.violation;) {
      next_ns += stage_.some_ns(3 * kSecond);
      run_to(next_ns);
      trouble();
    }
    heal();
    run_until_all_serve(kClusterHealNs, "healed");
    if (stage_.violation) return *stage_.violation;
    const uint64_t trace = stage_.net.trace() ^ truth_.writes() * 0x9e3779b97f4a7c15;
    return Outcome{trace, stage_.world.now_ns(), truth_.writes() + stage_.steps, stage_.faults,
                   stage_.net.delivered()};
  }

 private:
  void run_to(int64_t until_ns) {
    while (stage_.world.now_ns() < until_ns && !stage_.violation) {
      stage_.world.run_for(kClusterPollNs);
      truth_.look();
    }
  }
  void run_until_all_serve(int64_t within_ns, std::string_view when) {
    const int64_t end_ns = stage_.world.now_ns() + within_ns;
    while (!truth_.all_serve() && !stage_.violation) {
      if (stage_.world.now_ns() >= end_ns) {
        return stage_.broken(fmt::format("the cluster has {} and not all of it serves{}", when,
                                         not_serving(truth_.stored())));
      }
      run_to(stage_.world.now_ns() + kSecond);
    }
  }
  std::string any_name() {
    const uint64_t pick = stage_.rng.below(kManagers + kNodes);
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
  void trouble();
  void trouble_links();
  void heal();

  ClusterStage stage_;
  Truth::Managers managers_;
  Truth::Nodes nodes_;
  Truth truth_{stage_, managers_, nodes_};
  Operator operator_{stage_};
  std::vector<std::pair<std::string, std::string>> blocked_;
};

void ClusterStory::trouble() {
  Rng& rng = stage_.rng;
  ManagerProcess& manager = *managers_[rng.below(kManagers)];
  NodeProcess& node = *nodes_[rng.below(kNodes)];
  stage_.faults++;
  switch (rng.below(12)) {
    case 0: kill_or_start(manager); break;
    case 1:
    case 2: kill_or_start(node); break;
    case 3: pause_or_resume(manager); break;
    case 4: pause_or_resume(node); break;
    case 5: manager.cut(rng.below(2) == 0); break;
    case 6: node.fail_disk(!node.disk_failed()); break;
    case 7:  // at once, as a supervisor does
      if (node.running()) node.kill();
      node.start();
      break;
    default: trouble_links();
  }
}

void ClusterStory::trouble_links() {
  sim::SimNet& net = stage_.net;
  Rng& rng = stage_.rng;
  const std::string a = any_name();
  const std::string b = any_name();
  switch (rng.below(5)) {
    case 0:  // one way
      net.block(a, b);
      blocked_.emplace_back(a, b);
      break;
    case 1:  // from everybody
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
    case 3: net.break_connections(rng.unit()); break;
    default: {
      const int64_t slowest = stage_.some_ns(kSecond) + 2;
      net.set_link(a, b, {.delay_min_ns = slowest / 2, .delay_max_ns = slowest});
    }
  }
}

void ClusterStory::heal() {
  for (const auto& [from, to] : blocked_) stage_.net.unblock(from, to);
  stage_.net.forget_links();
  for (auto& manager : managers_) {
    manager->cut(false);
    if (!manager->running()) manager->start();
    manager->pause(false);
  }
  for (auto& node : nodes_) {
    node->fail_disk(false);
    if (!node->running()) node->start();
    node->pause(false);
  }
  operator_.settle();
}

}  // namespace

Result<Outcome> run_cluster(uint64_t seed) {
  ClusterStory story(seed);
  return story.run();
}

}  // namespace ff::scenario
