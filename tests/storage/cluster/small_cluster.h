// A manager and a few members with direct calls and one clock that the tests advance: tests the
// interaction of both state machines.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "storage/cluster/manager.h"
#include "storage/cluster/member.h"
#include "storage/cluster/timing.h"

namespace ff::cluster {

#define FF_ASSERT_OK(expression)                                           \
  do {                                                                     \
    const auto result_ = (expression);                                     \
    ASSERT_TRUE(result_.ok()) << (result_ ? "" : result_.error().message); \
  } while (false)

// Nothing on success.
template <class T>
std::optional<Errc> code_of(const Result<T>& result) {
  if (result) return std::nullopt;
  return result.error().code;
}

class SmallCluster {
 public:
  // Nodes 1 to `nodes`, each with disk 1, registered at the manager.
  explicit SmallCluster(NodeId nodes) {
    Routing routing;
    routing.cluster = "c1";
    manager = std::make_unique<Manager>(std::move(routing), now_ns);
    for (NodeId id = 1; id <= nodes; id++) {
      start(id);
      (void)beat(id);
    }
    publish();
  }

  static NodeInfo node(NodeId id, uint64_t generation) {
    return {.id = id,
            .name = fmt::format("node{}", id),
            .generation = generation,
            .addresses = {fmt::format("10.0.0.{}:7000", id)},
            .disks = {{.id = 1, .path = "/data", .capacity = 1000}}};
  }
  // Restarts the node with its saved routing.
  void start(NodeId id) {
    Routing held;
    if (members.contains(id)) held = members.at(id)->routing();
    members[id] = std::make_unique<Member>(node(id, ++generations[id]), std::move(held));
  }
  // Replaces the primary by one that loads the stored routing.
  void fail_over() { manager = std::make_unique<Manager>(manager->routing(), now_ns); }

  Result<void> beat(NodeId id) {
    Member& member = *members.at(id);
    const Heartbeat sent = member.next_heartbeat();
    auto answer = manager->heartbeat(sent, now_ns);
    if (!answer) return std::move(answer).error();
    return member.on_response(sent, now_ns, *answer);
  }
  // Applies all proposed changes.
  void publish() {
    for (int i = 0; i < 100 && !manager->propose(now_ns).empty(); i++) manager->applied();
  }
  Result<void> order(Result<Proposal> proposal) {
    if (!proposal) return std::move(proposal).error();
    manager->applied();
    return {};
  }
  // Acts as the storage daemons: creates targets, and completes copies at once.
  void work(NodeId id) {
    Member& member = *members.at(id);
    for (const TargetId target : member.targets_to_create()) member.set_usable(target, true);
    for (const auto& [chain_id, chain] : member.routing().chains) {
      for (const Target& target : chain.targets) {
        if (target.node != id) continue;
        if (target.created && usable.contains(target.id)) member.set_usable(target.id, true);
        if (target.created && member.local_state(target.id) != LocalTargetState::offline)
          usable[target.id] = true;
        if (target.state == TargetState::syncing && copies)
          member.set_copied(target.id, chain.version);
        if (sizes.contains(target.id)) member.set_size(target.id, sizes.at(target.id));
      }
    }
  }
  // All nodes in `up` send a heartbeat every second.
  void run(const std::vector<NodeId>& up, int64_t ns) {
    for (const int64_t end_ns = now_ns + ns; now_ns < end_ns; now_ns += kHeartbeatIntervalNs) {
      for (int turn = 0; turn < 3; turn++) {
        for (const NodeId id : up) {
          work(id);
          const auto done = beat(id);
          EXPECT_TRUE(done.ok()) << (done ? "" : done.error().message);
        }
        publish();
      }
    }
  }
  void silence(int64_t ns) {
    now_ns += ns;
    publish();
  }
  ChainId make_chain(const std::vector<NodeId>& nodes) {
    std::vector<DiskLocation> places;
    for (const NodeId id : nodes) places.push_back({id, 1});
    const auto made = order(manager->create_chains({places}));
    EXPECT_TRUE(made.ok()) << (made ? "" : made.error().message);
    return manager->routing().chains.rbegin()->first;
  }

  const Chain& chain(ChainId id = 1) const { return *manager->routing().chain(id); }
  // "1:serving 2:offline": node and state, in chain order.
  std::string text(ChainId id = 1) const {
    std::string all;
    for (const Target& target : chain(id).targets) {
      all += fmt::format("{}{}:{}", all.empty() ? "" : " ", target.node, name_of(target.state));
    }
    return all;
  }
  TargetId target_on(NodeId node, ChainId id = 1) const {
    for (const Target& target : chain(id).targets) {
      if (target.node == node) return target.id;
    }
    return 0;
  }
  bool reads(NodeId node) { return members.at(node)->may_read(target_on(node), now_ns); }
  bool writes(NodeId node) { return members.at(node)->may_write(target_on(node), now_ns); }

  int64_t now_ns = 1000 * kSecond;
  std::unique_ptr<Manager> manager;
  std::map<NodeId, std::unique_ptr<Member>> members;
  std::map<NodeId, uint64_t> generations;
  std::map<TargetId, bool> usable;       // created once, on a disk that outlives the process
  std::map<TargetId, TargetSize> sizes;  // as reported by their nodes
  bool copies = true;                    // copies complete
};

}  // namespace ff::cluster
