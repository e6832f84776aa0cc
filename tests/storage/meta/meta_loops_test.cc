// A metadata server with two loops in threads of their own, on one SQLite file, with real sockets:
// its clients are divided among the loops, and each sees what the others have done. ThreadSanitizer
// runs this.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/auth/test_entities.h"
#include "platform/base/log.h"
#include "platform/base/run_on.h"
#include "platform/kv/sqlite_engine.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/manager_service.h"
#include "storage/meta/meta_client.h"
#include "storage/meta/meta_service.h"
#include "storage/shard_thread.h"

namespace ff::meta {
namespace {

using kv::SqliteEngine;
using test::LoopParts;
using test::Machine;
using test::ShardThread;

constexpr int64_t kLoopsPatienceNs = 120 * kSecond;

// A call as a task, for run_on().
Task<bool> acting(std::function<void()> act) {
  act();
  co_return true;
}

Task<Result<void>> pause(Loop& loop) { co_return co_await sleep_for(loop, kMillisecond); }

class MetaLoopThreads : public testing::Test {
 protected:
  // With a key the servers act as managers, and the clients as operators.
  explicit MetaLoopThreads(std::optional<auth::Key> key = std::nullopt) : key_(key) {}

  void SetUp() override {
    log_setup({.level = LogLevel::error});
    auto opened = kv::SqliteStore::open(machine_.dir.path() + "/meta.db", machine_.clock, {});
    ASSERT_TRUE(opened) << opened.error().message;
    store_ = std::move(*opened);
    engine_.emplace(*store_, machine_.loop);
    manager_.emplace(*engine_, machine_.loop, first_.rng, first_.router);
    services_[0].emplace(*engine_, first_.context, first_.router, options());
    in_second([this] {
      LoopParts& parts = second_.parts;
      second_engine_.emplace(*store_, parts.context.loop);
      services_[1].emplace(*second_engine_, parts.context, parts.router, options(&*services_[0]));
    });
    for (rpc::Server* const server : servers()) server->set_shards(servers());
    const auto at = first_.server.listen({"127.0.0.1", 0, ""});
    ASSERT_TRUE(at);
    address_ = *at;
    manager_->start({.address = at->text(), .sole_manager = true});
    services_[0]->start();
    in_second([this] { services_[1]->start(); });
    initialize();
    // In this order: the server divides its clients in turn.
    for (auto& one : clients_) {
      one.emplace(client_.context, std::vector{address_});
      ASSERT_TRUE(run(one->stat(root(), false)));
    }
  }
  void TearDown() override {
    for (auto& one : clients_) run_task(machine_.loop, one->close());
    close_servers();
    run_in_second(services_[1]->close());
    run_task(machine_.loop, services_[0]->close());
    run_task(machine_.loop, manager_->close());
    in_second([this] {
      services_[1].reset();
      second_engine_.reset();
    });
  }

  MetaService::Options options(MetaService* first = nullptr) const {
    return {.key = key_, .primary = [] { return true; }, .first = first};
  }
  std::shared_ptr<auth::Keyring> keyring(auth::Role role) const {
    return key_ ? auth::root_keyring(key_, role) : nullptr;
  }
  std::vector<rpc::Server*> servers() { return {&first_.server, &second_.parts.server}; }
  void close_servers() {
    run_task(machine_.loop, first_.server.close(0));
    run_in_second(second_.parts.server.close(0));
  }
  template <class T>
  T run(Task<T> task) {
    return run_task(machine_.loop, std::move(task));
  }
  void run_in_second(Task<void> task) {
    run_task(machine_.loop, run_on(machine_.loop, second_.parts.calls, std::move(task)));
  }
  void in_second(std::function<void()> act) {
    (void)run(run_on(machine_.loop, second_.parts.calls, acting(std::move(act))));
  }
  void initialize() {
    cluster::ManagerClient admin(client_.context, {address_});
    const int64_t end_ns = machine_.loop.now_ns() + kLoopsPatienceNs;
    const auto done =
        run(admin.call(cluster::kInit, cluster::wire::InitRequest(), 2 * kSecond, end_ns, true));
    ASSERT_TRUE(done) << done.error().message;
    run_task(machine_.loop, admin.close());
  }
  void expect_connections(size_t first, size_t second) {
    const auto reached = [&] {
      size_t at_second = 0;
      in_second([&] { at_second = second_.parts.server.connections(); });
      return first_.server.connections() == first && at_second == second;
    };
    const int64_t end_ns = machine_.loop.now_ns() + kLoopsPatienceNs;
    while (!reached()) {
      ASSERT_LT(machine_.loop.now_ns(), end_ns);
      (void)run(pause(machine_.loop));
    }
  }
  MetaClient& client(size_t loop) { return *clients_[loop]; }
  InodeView make_dir(size_t loop, std::string name) {
    Namespace::CreateOptions create{.kind = InodeType::directory, .mode = 0755};
    const auto made =
        run(client(loop).create(Caller(), root(), std::move(name), std::move(create)));
    EXPECT_TRUE(made) << made.error().message;
    return *made;
  }

  const std::optional<auth::Key> key_;
  Machine machine_{net::NetMode::automatic, keyring(auth::Role::meta)};
  net::SystemTransport client_transport_{{.keyring = keyring(auth::Role::admin)}};
  std::unique_ptr<kv::SqliteStore> store_;
  std::optional<SqliteEngine> engine_;
  std::optional<SqliteEngine> second_engine_;
  LoopParts first_{machine_, machine_.loop, "meta"};
  ShardThread second_{machine_, "meta"};
  LoopParts client_{machine_, machine_.loop, "client", &client_transport_};
  std::optional<cluster::ManagerService> manager_;
  std::optional<MetaService> services_[2];
  net::Address address_;
  std::optional<MetaClient> clients_[2];  // of the first loop, and of the second
};

// What a client does in one loop, another one sees in the other at once. Names of links need no
// chains.
Task<void> change_and_look(MetaClient& changes, MetaClient& looks, std::string name) {
  const Caller caller;
  for (int i = 0; i < 100; ++i) {
    Namespace::CreateOptions create{.kind = InodeType::symlink, .target = std::to_string(i)};
    const auto made = co_await changes.create(caller, root(), name, std::move(create));
    EXPECT_TRUE(made) << made.error().message;
    const auto found = co_await looks.lookup(caller, root(), name);
    EXPECT_TRUE(found) << found.error().message;
    EXPECT_EQ(found ? found->inode.target : "", std::to_string(i));
    const auto removed = co_await changes.unlink(caller, root(), name, std::nullopt);
    EXPECT_TRUE(removed) << removed.error().message;
    const auto gone = co_await looks.lookup(caller, root(), name);
    EXPECT_EQ(gone ? 0 : gone.error().sys, uint32_t{ENOENT});
  }
}

TEST_F(MetaLoopThreads, ClientsOfAllLoopsSeeEachChangeAtOnce) {
  expect_connections(1, 1);
  Gate gate(machine_.loop);
  for (int i = 0; i < 8; ++i) {
    const size_t loop = static_cast<size_t>(i) % 2;
    gate.spawn(change_and_look(client(loop), client(1 - loop), fmt::format("link{}", i)));
  }
  run_task(machine_.loop, gate.wait_empty());
}

// It stays in the first loop.
TEST_F(MetaLoopThreads, AnOlderClientNeedsToKnowNothingOfLoops) {
  rpc::Client older(client_.context, address_, auth::Service{auth::Role::meta, {}});
  const InodeView dir = make_dir(1, "dir");
  wire::StatRequest request;
  request.mutable_inode()->set_inode(dir.inode.id);
  const int64_t end_ns = machine_.loop.now_ns() + kLoopsPatienceNs;
  const auto answer = run(rpc::call_method(older, kStat, std::move(request), end_ns));
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->inode().id(), dir.inode.id);
  expect_connections(2, 1);
  run_task(machine_.loop, older.close());
}

// The client holds a delegation of a directory.
void expect_held(Result<wire::LeaseReply> lease, Result<wire::DelegateReply> delegation) {
  ASSERT_TRUE(lease && delegation);
  EXPECT_TRUE(lease->live());
  EXPECT_TRUE(delegation->granted());
}

// Gives back what is recalled.
Task<void> return_recalled(MetaClient& holder, InodeId dir) {
  const auto recalled = co_await holder.recalls(0);
  EXPECT_EQ(recalled ? *recalled : std::vector<InodeId>(), std::vector{dir});
  wire::BatchRequest batch;
  batch.set_lease(holder.lease());
  batch.add_operations()->set_give_back(dir);
  std::vector<UncommittedChanges::Change> changes;
  const auto given = co_await holder.apply_batch(std::move(batch), std::move(changes), 1);
  EXPECT_TRUE(given) << given.error().message;
}

Task<void> look_up_missing(MetaClient& client, InodeRef dir) {
  const Caller caller;
  const auto found = co_await client.lookup(caller, std::move(dir), "missing");
  EXPECT_EQ(found ? 0 : found.error().sys, uint32_t{ENOENT});
}

class MetaLoopDelegations : public MetaLoopThreads, public testing::WithParamInterface<size_t> {
 protected:
  InodeView make_held(size_t loop) {
    const InodeView dir = make_dir(loop, "dir");
    wire::LeaseRequest request;
    request.set_client(77);
    request.set_lease(77);
    request.set_fresh(true);
    auto lease = run(client(loop).renew_lease(std::move(request)));
    client(loop).set_lease(77);
    expect_held(std::move(lease), run(client(loop).delegate(dir.inode.id)));
    return dir;
  }
};

TEST_P(MetaLoopDelegations, ALookUpInOneLoopRecallsADelegationOfAClientOfTheOther) {
  const size_t holder = GetParam();
  const InodeView dir = make_held(holder);
  Gate gate(machine_.loop);
  gate.spawn(return_recalled(client(holder), dir.inode.id));
  gate.spawn(look_up_missing(client(1 - holder), dir.ref()));
  run_task(machine_.loop, gate.wait_empty());
  const std::string text = machine_.metrics.text();
  EXPECT_NE(text.find("\nff_meta_delegation_recalls_total 1\n"), text.npos) << text;
}

// A call waits for the holder, in the first loop. The server closes meanwhile.
TEST_P(MetaLoopDelegations, AServerGoesDownWhileACallWaitsForAHolder) {
  const InodeView dir = make_held(1 - GetParam());
  wire::LookupRequest request;
  request.mutable_place()->mutable_dir()->set_inode(dir.inode.id);
  request.mutable_place()->set_name("missing");
  std::optional<Result<wire::InodeReply>> answer;
  rpc::Client caller(client_.context, address_, auth::Service{auth::Role::meta, {}});
  // The next one that any shard may serve belongs to the first loop.
  if (GetParam() == 1) {
    rpc::Client other(client_.context, address_, auth::Service{auth::Role::meta, {}});
    other.use_any_shard();
    ASSERT_TRUE(run(other.channel(INT64_MAX)));
    run_task(machine_.loop, other.close());
    caller.use_any_shard();
  }
  ASSERT_TRUE(run(caller.channel(INT64_MAX)));
  Gate gate(machine_.loop);
  gate.spawn([](Task<Result<wire::InodeReply>> task, auto& into) -> Task<void> {
    into.emplace(co_await std::move(task));
  }(rpc::call_method(caller, kLookup, std::move(request), INT64_MAX), answer));
  const auto recalls = [this] {
    return machine_.metrics.text().find("\nff_meta_delegation_recalls_total 1\n") !=
           std::string::npos;
  };
  run_task(machine_.loop, poll_until(machine_.loop, recalls));
  EXPECT_FALSE(answer);
  close_servers();
  run_task(machine_.loop, gate.wait_empty());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error().code, Errc::unreachable);
  run_task(machine_.loop, caller.close());
}

INSTANTIATE_TEST_SUITE_P(Loops, MetaLoopDelegations, testing::Values(0, 1));

auth::Key some_key() {
  auth::Key key;
  key.fill(std::byte{7});
  return key;
}

class MetaLoopUsers : public MetaLoopThreads {
 protected:
  static constexpr uint32_t kUid = 1000;

  MetaLoopUsers() : MetaLoopThreads(some_key()) {}
  // The keys of a new user, from one of the loops.
  std::shared_ptr<auth::Keyring> make_user(size_t loop) {
    wire::User user;
    user.set_uid(kUid);
    user.set_name("anna");
    EXPECT_TRUE(run(client(loop).set_user(std::move(user))));
    const auto token = run(client(loop).token(kUid, false));
    EXPECT_TRUE(token);
    auto keys = auth::parse_key_text(token->token() + "\n");
    EXPECT_TRUE(keys);
    return *keys;
  }
  // The errno of a list of the directory.
  uint32_t list(MetaClient& as, const InodeView& dir) {
    const auto listed = run(as.list(Caller(), dir.ref(), {}, 10, false));
    return listed ? 0 : listed.error().sys;
  }
};

// Also with the rights that the user gets or loses at another loop.
TEST_F(MetaLoopUsers, EachLoopChecksWhatAUserMayDo) {
  const InodeView dir = make_dir(0, "open");
  for (const size_t loop : {size_t{0}, size_t{1}}) {
    SCOPED_TRACE(loop);
    net::SystemTransport transport{{.keyring = make_user(loop)}};
    LoopParts parts{machine_, machine_.loop, "user", &transport};
    MetaClient user(parts.context, {address_});
    const auto found = run(user.lookup(Caller(), root(), "open"));
    ASSERT_TRUE(found) << found.error().message;
    expect_connections(2 - loop, 1 + loop);
    EXPECT_EQ(list(user, *found), 0u);
    EXPECT_EQ(list(user, dir), uint32_t{EACCES});  // without a proof
    Namespace::Attributes closed{.mode = 0700};
    ASSERT_TRUE(run(client(1 - loop).set_attributes(Caller(), dir.ref(), closed)));
    EXPECT_EQ(list(user, *found), uint32_t{EACCES});
    Namespace::Attributes opened{.mode = 0755};
    ASSERT_TRUE(run(client(1 - loop).set_attributes(Caller(), dir.ref(), opened)));
    EXPECT_EQ(list(user, *found), 0u);
    EXPECT_TRUE(run(client(1 - loop).token(kUid, true)));
    const auto refused = run(user.lookup(Caller(), root(), "open"));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::refused);
    EXPECT_NE(refused.error().message.find("is revoked"), std::string::npos)
        << refused.error().message;
    run_task(machine_.loop, user.close());
    expect_connections(1, 1);
  }
}

}  // namespace
}  // namespace ff::meta
