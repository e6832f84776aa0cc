// Managers on one store, nodes and an operator on a simulated network; only the test causes faults.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/auth/test_entities.h"
#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/kv/memory_engine.h"
#include "platform/rpc/server.h"
#include "platform/sim/sim_net.h"
#include "storage/cluster/heartbeat_sender.h"
#include "storage/cluster/manager_service.h"
#include "storage/cluster/small_cluster.h"

namespace ff::cluster {

struct ServiceWorld {
  ServiceWorld() { log_setup({.level = LogLevel::error}); }
  static rpc::Identity identity(std::string name) {
    return {.name = std::move(name), .software = "ff test"};
  }
  static std::vector<net::Address> addresses(int managers) {
    std::vector<net::Address> all;
    for (int i = 0; i < managers; i++) all.push_back({fmt::format("m{}", i), 7000, ""});
    return all;
  }
  double seconds() { return static_cast<double>(world.now_ns()) / kSecond; }

  sim::SimWorld world;
  SeededRng rng{5};
  sim::SimNet net{world, 5};
  sim::SimLoop& loop = world.loop();
  Metrics metrics;
  kv::MemoryStore store;
};

class TestManager {
 public:
  TestManager(ServiceWorld& of, int number, bool alone = false)
      : world_(of),
        name_(fmt::format("m{}", number)),
        transport_(of.net.transport(name_)),
        engine_(of.store, of.loop, of.rng),
        service(engine_, of.loop, of.rng, router_),
        server_(of.loop, *transport_, router_, of.metrics, of.identity(name_)) {
    EXPECT_TRUE(server_.listen({"", 7000, ""}).ok());
    service.start({.address = name_ + ":7000", .sole_manager = alone, .metrics = &of.metrics});
  }
  ~TestManager() {
    world_.net.stop_process(name_);
    run_task(world_.loop, server_.close(0));
  }

 private:
  ServiceWorld& world_;
  const std::string name_;
  std::unique_ptr<net::Transport> transport_;
  kv::MemoryEngine engine_;
  rpc::Router router_;

 public:
  ManagerService service;

 private:
  rpc::Server server_;
};

class TestOperator {
 public:
  explicit TestOperator(ServiceWorld& of, int managers = 1)
      : TestOperator(of, managers, auth::admin_entity("operator")) {}
  TestOperator(ServiceWorld& of, int managers, const auth::Entity& self)
      : world_(of),
        transport_(of.net.transport(self.name, self)),
        context_{of.loop,    *transport_, grants_,
                 of.metrics, of.rng,      ServiceWorld::identity(self.name)},
        managers_(context_, ServiceWorld::addresses(managers)) {}
  ~TestOperator() { run_task(world_.loop, managers_.close()); }

  template <class Request, class Reply>
  Result<Reply> call(rpc::Method<Request, Reply> method, Request request,
                     int64_t within_ns = 20 * kSecond) {
    const int64_t deadline_ns = world_.loop.now_ns() + within_ns;
    return run_task(world_.loop,
                    managers_.call(method, std::move(request), kSecond, deadline_ns, false));
  }
  Result<wire::StatusReply> status() { return call(kStatus, wire::StatusRequest()); }
  rpc::ClientContext& context() { return context_; }

 private:
  ServiceWorld& world_;
  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport_;
  rpc::ClientContext context_;
  ManagerClient managers_;
};

// A node that creates and copies its targets at once.
class TestNode {
 public:
  TestNode(ServiceWorld& of, NodeId id, int managers = 1, uint64_t generation = 1,
           Routing held = {})
      : member(SmallCluster::node(id, generation), std::move(held)),
        transport_(of.net.transport(fmt::format("n{}", id))),
        context_{of.loop,    *transport_, grants_,
                 of.metrics, of.rng,      of.identity(fmt::format("n{}", id))},
        heartbeats(context_, ServiceWorld::addresses(managers), member, [this] { adopted++; }),
        loop_(of.loop),
        gate_(of.loop) {
    gate_.spawn(heartbeats.run());
    gate_.spawn(work());
  }

  int adopted = 0;
  Member member;

 private:
  Task<void> work() {
    for (;;) {
      if (!co_await sleep_for(loop_, 100 * kMillisecond)) co_return;
      for (const TargetId id : member.targets_to_create()) member.set_usable(id, true);
      for (const auto& [id, chain] : member.routing().chains) {
        for (const Target& target : chain.targets) {
          if (target.node != member.self().id) continue;
          if (target.state == TargetState::syncing) member.set_copied(target.id, chain.version);
        }
      }
      if (member.has_unreported_changes()) heartbeats.request_heartbeat();
    }
  }

  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport_;
  rpc::ClientContext context_;

 public:
  HeartbeatSender heartbeats;

 private:
  Loop& loop_;
  Gate gate_;
};

}  // namespace ff::cluster
