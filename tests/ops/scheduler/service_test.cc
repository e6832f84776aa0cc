// The scheduler service on a simulated network: replies follow the store, users are separated,
// agents get new orders at once, and a store failure halts it.
#include "ops/scheduler/service.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "ops/scheduler/simulated_nodes.h"
#include "platform/auth/test_entities.h"
#include "platform/base/log.h"
#include "platform/kv/memory_engine.h"
#include "platform/rpc/server.h"
#include "platform/sim/sim_net.h"

namespace ff::scheduler {
namespace {

// A store that can be made to fail, and to take its time.
class FailingEngine final : public kv::Engine {
 public:
  FailingEngine(kv::Engine& engine, Loop& loop) : engine_(engine), loop_(loop) {}
  Task<Result<void>> run(kv::TxnFunction function, int64_t deadline_ns) override {
    if (fails) co_return fail(Errc::disk_full, "the store's disk is full");
    if (delay_ns > 0) {
      FF_CO_TRY(co_await sleep_for(loop_, delay_ns));
    }
    co_return co_await engine_.run(std::move(function), deadline_ns);
  }
  Task<Result<void>> view(kv::TxnFunction function, int64_t deadline_ns) override {
    return engine_.view(std::move(function), deadline_ns);
  }
  bool fails = false;
  int64_t delay_ns = 0;

 private:
  kv::Engine& engine_;
  Loop& loop_;
};

struct SchedulerWorld {
  SchedulerWorld() { log_setup({.level = LogLevel::none}); }
  static rpc::Identity identity(std::string name) {
    return {.name = std::move(name), .software = "ff test"};
  }

  void pass(int64_t ns) {
    run_task(loop, [](sim::SimLoop& on, int64_t pause_ns) -> Task<void> {
      (void)co_await sleep_for(on, pause_ns);
    }(loop, ns));
  }

  sim::SimWorld world;
  SeededRng rng{5};
  sim::SimNet net{world, 5};
  sim::SimLoop& loop = world.loop();
  Metrics metrics;
  kv::MemoryStore store;
  TaskLimits limits;
  std::function<Task<Result<void>>(auth::TokenId)> check_token =
      [](auth::TokenId) -> Task<Result<void>> { co_return Result<void>(); };
};

class TestScheduler {
 public:
  explicit TestScheduler(SchedulerWorld& of, const std::string& name = "s",
                         SchedulerTimeouts timeouts = {})
      : world_(of),
        name_(name),
        transport_(of.net.transport(name)),
        memory_(of.store, of.loop, of.rng),
        engine(memory_, of.loop),
        service(engine, of.loop, of.rng, router_,
                {.timeouts = timeouts,
                 .limits = of.limits,
                 .name_of = [](uint32_t uid) { return fmt::format("user{}", uid); },
                 .check_token = of.check_token}),
        server_(of.loop, *transport_, router_, of.metrics, of.identity(name)) {
    EXPECT_TRUE(server_.listen({"", 7000, ""}).ok());
    service.start();
  }
  ~TestScheduler() {
    run_task(world_.loop, service.close());
    world_.net.stop_process(name_);
    run_task(world_.loop, server_.close(0));
  }

 private:
  SchedulerWorld& world_;
  const std::string name_;
  std::unique_ptr<net::Transport> transport_;
  kv::MemoryEngine memory_;
  rpc::Router router_;

 public:
  FailingEngine engine;
  SchedulerService service;

 private:
  rpc::Server server_;
};

class TestClient {
 public:
  TestClient(SchedulerWorld& of, const std::string& name, std::optional<auth::TokenId> user = {})
      : world_(of),
        transport_(user ? of.net.transport(name, auth::user_entity(*user))
                        : of.net.transport(name)),
        context_{of.loop, *transport_, grants_, of.metrics, of.rng, SchedulerWorld::identity(name)},
        client_(context_, {"s", 7000, ""}, auth::Service{auth::Role::scheduler, {}}) {}
  ~TestClient() { run_task(world_.loop, client_.close()); }

  template <class Request, class Reply>
  Result<Reply> call(rpc::Method<Request, Reply> method, Request request) {
    const int64_t deadline_ns = world_.loop.now_ns() + 20 * kSecond;
    // It may still be starting.
    for (;;) {
      auto reply = run_task(world_.loop, rpc::call_method(client_, method, request, deadline_ns));
      const bool again =
          !reply && reply.error().code == Errc::unreachable && world_.loop.now_ns() < deadline_ns;
      if (!again) return reply;
      run_task(world_.loop, pause());
    }
  }
  Result<uint64_t> submit(uint32_t uid = 1000) {
    wire::SubmitRequest request;
    request.mutable_owner()->set_uid(uid);
    request.mutable_owner()->set_name("ada");
    wire::Spec& spec = *request.mutable_spec();
    spec.add_argv("train");
    spec.set_cwd("/");
    spec.set_nodes(1);
    spec.set_processes(1);
    spec.set_group("default");
    spec.set_priority(30);
    FF_TRY(const auto reply, call(kSubmit, std::move(request)));
    return reply.task();
  }
  Result<wire::Task> task(uint64_t id) {
    wire::ListRequest request;
    request.set_task(id);
    FF_TRY(const auto reply, call(kList, std::move(request)));
    return reply.tasks(0).task();
  }
  Result<void> control(uint64_t id, TaskControl what) {
    wire::ControlRequest request;
    request.set_task(id);
    request.set_what(static_cast<uint32_t>(what));
    FF_TRY(call(kControl, std::move(request)));
    return {};
  }

 private:
  Task<void> pause() { (void)co_await sleep_for(world_.loop, 10 * kMillisecond); }

  SchedulerWorld& world_;
  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport_;
  rpc::ClientContext context_;
  rpc::Client client_;
};

TEST(SchedulerService, WhatWasAnsweredIsThereAfterAFall) {
  SchedulerWorld world;
  std::vector<uint64_t> ids;
  {
    TestScheduler scheduler(world);
    TestClient user(world, "u");
    for (int i = 0; i < 250; i++) ids.push_back(user.submit().value());
    ASSERT_TRUE(user.control(ids[3], TaskControl::suspend).ok());
    wire::QuotaRequest quota;
    wire::Quota& one = *quota.add_set();
    one.set_user("*");
    one.set_group("default");
    one.set_priority(30);
    one.set_nodes(7);
    EXPECT_EQ(user.call(kQuota, std::move(quota)).value().quotas_size(), 1);
  }
  TestScheduler again(world);
  TestClient user(world, "v");
  for (const uint64_t id : ids) EXPECT_EQ(user.task(id).value().id(), id);
  EXPECT_EQ(user.task(ids[3]).value().phase(), static_cast<uint32_t>(TaskPhase::suspended));
  EXPECT_EQ(user.call(kQuota, wire::QuotaRequest()).value().quotas(0).nodes(), 7u);
  EXPECT_GT(user.submit().value(), ids.back());
  EXPECT_EQ(user.task(12'345).error().code, Errc::not_found);
}

TEST(SchedulerService, PagesOfTheNewestFirst) {
  SchedulerWorld world;
  TestScheduler scheduler(world);
  TestClient user(world, "u");
  for (int i = 0; i < 7; i++) ASSERT_TRUE(user.submit().ok());
  wire::ListRequest request;
  request.set_limit(3);
  std::vector<uint64_t> seen;
  for (bool more = true; more;) {
    const auto reply = user.call(kList, request).value();
    for (const auto& one : reply.tasks()) seen.push_back(one.task().id());
    more = reply.more();
    request.set_before(seen.back());
  }
  EXPECT_EQ(seen, (std::vector<uint64_t>{7, 6, 5, 4, 3, 2, 1}));
}

TEST(SchedulerService, UsersHaveTheirOwnTasks) {
  SchedulerWorld world;
  TestScheduler scheduler(world);
  TestClient ada(world, "a", auth::TokenId{.uid = 1001});
  TestClient bob(world, "b", auth::TokenId{.uid = 1002});
  TestClient admin(world, "admin");
  // The claimed owner is ignored.
  const uint64_t id = ada.submit(0).value();
  EXPECT_EQ(bob.task(id).value().owner().uid(), 1001u);
  EXPECT_EQ(bob.task(id).value().owner().name(), "user1001");
  EXPECT_EQ(bob.control(id, TaskControl::stop).error().code, Errc::refused);
  EXPECT_TRUE(ada.control(id, TaskControl::suspend).ok());
  EXPECT_TRUE(admin.control(id, TaskControl::stop).ok());
  EXPECT_EQ(ada.call(kQuota, wire::QuotaRequest()).error().code, Errc::refused);
  EXPECT_EQ(ada.call(kSync, wire::SyncRequest()).error().code, Errc::refused);
  EXPECT_EQ(ada.call(kDrain, wire::DrainRequest()).error().code, Errc::refused);
  EXPECT_EQ(admin.submit(0).error().code, Errc::refused);  // root has no tasks
  TestClient root(world, "r", auth::TokenId{.uid = 0});
  EXPECT_EQ(root.submit(1000).error().code, Errc::refused);
}

TEST(SchedulerService, AUsersShareIsNotTheOperators) {
  SchedulerWorld world;
  world.limits = {.tasks = 100, .tasks_per_user = 1};
  TestScheduler scheduler(world);
  TestClient ada(world, "a", auth::TokenId{.uid = 1001});
  TestClient bob(world, "b", auth::TokenId{.uid = 1002});
  TestClient admin(world, "admin");
  ASSERT_TRUE(ada.submit().ok());
  const auto refused = ada.submit();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::busy);
  EXPECT_NE(refused.error().message.find("user user1001 (uid 1001) has 1 unfinished"),
            std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().hint.find("--max-user-tasks"), std::string::npos);
  EXPECT_TRUE(bob.submit().ok());
  EXPECT_TRUE(admin.submit(1001).ok());
}

TEST(SchedulerService, ARevokedTokenIsRefusedByEveryCall) {
  SchedulerWorld world;
  bool is_revoked = false;
  world.check_token = [&](auth::TokenId token) -> Task<Result<void>> {
    if (is_revoked && token.uid == 1001) co_return fail(Errc::refused, "the token is revoked");
    co_return Result<void>();
  };
  TestScheduler scheduler(world);
  TestClient ada(world, "a", auth::TokenId{.uid = 1001});
  TestClient bob(world, "b", auth::TokenId{.uid = 1002});
  TestClient admin(world, "admin");
  const uint64_t id = ada.submit().value();
  is_revoked = true;  // while she is connected
  const auto is_refused = [](const auto& result) {
    return !result.ok() && result.error().code == Errc::refused &&
           result.error().message.find("the token is revoked") != std::string::npos;
  };
  EXPECT_TRUE(is_refused(ada.submit()));
  EXPECT_TRUE(is_refused(ada.task(id)));
  EXPECT_TRUE(is_refused(ada.call(kList, wire::ListRequest())));
  EXPECT_TRUE(is_refused(ada.control(id, TaskControl::stop)));
  EXPECT_TRUE(is_refused(ada.call(kNodes, wire::NodesRequest())));
  EXPECT_TRUE(bob.task(id).ok());
  EXPECT_TRUE(admin.control(id, TaskControl::stop).ok());
  // The question of an agent has the same answer.
  wire::HoldsRequest asked;
  asked.set_uid(1001);
  EXPECT_TRUE(is_refused(admin.call(kHolds, asked)));
  asked.set_uid(1002);
  EXPECT_TRUE(admin.call(kHolds, asked).ok());
}

TEST(SchedulerService, WhoCannotCheckTokensAcceptsNone) {
  SchedulerWorld world;
  world.check_token = nullptr;
  TestScheduler scheduler(world);
  TestClient ada(world, "a", auth::TokenId{.uid = 1001});
  TestClient admin(world, "admin");
  ASSERT_TRUE(admin.submit(1001).ok());
  const auto refused = ada.submit();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_NE(refused.error().hint.find("--meta"), std::string::npos) << refused.error().hint;
  EXPECT_EQ(ada.call(kNodes, wire::NodesRequest()).error().code, Errc::refused);
  EXPECT_EQ(admin.call(kHolds, wire::HoldsRequest()).error().code, Errc::refused);
}

TEST(SchedulerService, AnAgentHearsOfNewsAtOnceAndOtherwiseInTime) {
  SchedulerWorld world;
  TestScheduler scheduler(world);
  TestClient user(world, "u");
  TestClient agent(world, "n");
  SimulatedNode node("n0", 0);
  wire::SyncRequest request = node.request();
  const auto first = agent.call(kSync, request).value();
  EXPECT_EQ(first.orders_size(), 0);
  request.set_scheduler(first.scheduler());
  request.set_seen(first.version());
  int64_t began_ns = world.loop.now_ns();
  const auto quiet = agent.call(kSync, request).value();
  EXPECT_EQ(quiet.version(), first.version());
  EXPECT_GE(world.loop.now_ns() - began_ns, kSyncNs);
  const uint64_t id = user.submit().value();
  began_ns = world.loop.now_ns();
  const auto news = agent.call(kSync, request).value();
  EXPECT_LT(world.loop.now_ns() - began_ns, kSyncNs);
  ASSERT_EQ(news.orders_size(), 1);
  EXPECT_EQ(news.orders(0).task(), id);
  EXPECT_EQ(news.orders(0).action(), static_cast<uint32_t>(OrderAction::prepare));
}

TEST(SchedulerService, ATaskRunsThroughAScheduler) {
  SchedulerWorld world;
  TestClient user(world, "u");
  TestClient agent(world, "n");
  SimulatedNode node("n0", 0);
  std::map<uint64_t, SimulatedTask> tasks;
  uint64_t id = 0;
  uint64_t seen = 0;
  // Each step under a scheduler that has just started.
  for (const TaskPhase aim : {TaskPhase::preparing, TaskPhase::running, TaskPhase::finished}) {
    TestScheduler scheduler(world);
    if (id == 0) {
      id = user.submit().value();
      tasks[id] = {.work_ns = 5 * kSecond};
    }
    for (int i = 0; i < 60; i++) {
      if (user.task(id).value().phase() == static_cast<uint32_t>(aim)) break;
      node.pass(world.loop.now_ns(), tasks);
      wire::SyncRequest request = node.request();
      request.set_seen(seen);
      const auto told = agent.call(kSync, std::move(request));
      ASSERT_TRUE(told.ok()) << told.error().message;
      const wire::SyncReply& reply = *told;
      seen = reply.version();
      const std::vector<wire::Order> orders(reply.orders().begin(), reply.orders().end());
      node.apply(reply.scheduler(), orders, reply.lease(), world.loop.now_ns(), tasks);
    }
    const wire::Task task = user.task(id).value();
    EXPECT_EQ(task.phase(), static_cast<uint32_t>(aim));
    const bool ends = aim == TaskPhase::finished;
    EXPECT_EQ(task.outcome(),
              static_cast<uint32_t>(ends ? TaskOutcome::succeeded : TaskOutcome::none));
  }
}

TEST(SchedulerService, TheUseOfTheLastDaySurvivesARestart) {
  SchedulerWorld world;
  nlohmann::json before;
  {
    TestScheduler scheduler(world);
    TestClient agent(world, "n");
    SimulatedNode node("n0", 0);
    for (int i = 0; i < 45; i++) {
      wire::SyncRequest request = node.request();
      request.set_seen(agent.call(kSync, request).value().version());
      ASSERT_TRUE(agent.call(kSync, std::move(request)).ok());  // kSyncNs later
    }
    before = nlohmann::json::parse(scheduler.service.overview(""))["use"]["spans"];
    ASSERT_FALSE(before.empty());
    EXPECT_EQ(nlohmann::json::parse(scheduler.service.node_map())["zones"].size(), 1u);
  }
  TestScheduler again(world);
  TestClient user(world, "u");
  ASSERT_TRUE(user.submit().ok());  // it has loaded its store
  const auto after = nlohmann::json::parse(again.service.overview(""));
  ASSERT_FALSE(after["use"]["spans"].empty());
  EXPECT_EQ(after["use"]["spans"][0][0], before[0][0]);
  EXPECT_GE(after["use"]["spans"][0][2], 55);
  EXPECT_EQ(after["states"], "5");
}

TEST(SchedulerService, OfTwoOnOneStoreTheFirstEnds) {
  for (const bool is_idle : {true, false}) {
    SchedulerWorld world;
    TestScheduler first(world);
    TestClient user(world, "u");
    ASSERT_TRUE(user.submit().ok());
    TestScheduler second(world, "t");
    world.pass(kSecond);
    EXPECT_FALSE(first.service.halted().has_value());
    if (is_idle) {
      world.pass(Overview::kSampleNs);
    } else {
      EXPECT_EQ(user.submit().error().code, Errc::refused);
    }
    ASSERT_TRUE(first.service.halted().has_value());
    EXPECT_EQ(first.service.halted()->code, Errc::refused);
    EXPECT_FALSE(second.service.halted().has_value());
  }
}

TEST(SchedulerService, DroppedTasksLeaveTheStore) {
  SchedulerWorld world;
  {
    TestScheduler scheduler(world, "s", {.max_finished_tasks = 2});
    TestClient user(world, "u");
    for (uint64_t id = 1; id <= 5; id++) {
      ASSERT_EQ(user.submit().value(), id);
      ASSERT_TRUE(user.control(id, TaskControl::stop).ok());
    }
    ASSERT_TRUE(user.submit().ok());
    world.pass(kSecond);
  }
  TestScheduler again(world);
  TestClient user(world, "v");
  EXPECT_TRUE(user.task(4).ok());
  EXPECT_TRUE(user.task(5).ok());
  EXPECT_EQ(user.task(2).error().code, Errc::not_found);
  EXPECT_EQ(user.submit().value(), 7u);
}

TEST(SchedulerService, AStoreThatFailsEndsIt) {
  SchedulerWorld world;
  TestScheduler scheduler(world);
  TestClient user(world, "u");
  ASSERT_TRUE(user.submit().ok());
  scheduler.engine.fails = true;
  const auto lost = user.submit();
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, Errc::disk_full);
  EXPECT_TRUE(scheduler.service.halted().has_value());
  EXPECT_EQ(user.task(1).error().code, Errc::disk_full);
  EXPECT_NE(scheduler.service.overview("").find("the store's disk is full"), std::string::npos);
}

TEST(SchedulerService, OneThatIsClosedWhileItStartsHasNotFailed) {
  SchedulerWorld world;
  TestScheduler scheduler(world);
  scheduler.engine.delay_ns = kSecond;
  world.pass(kMillisecond);
  run_task(world.loop, scheduler.service.close());
  EXPECT_FALSE(scheduler.service.halted().has_value());
}

}  // namespace
}  // namespace ff::scheduler
