// The file system on a real etcd of three members, and on PostgreSQL, with three metadata servers:
// programs go on while servers, members and the database are killed one after the other, and
// nothing they were told is wrong.
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/child.h"
#include "lab/scenario/files_load.h"
#include "platform/auth/key.h"
#include "platform/base/log.h"
#include "platform/kv/etcd_cluster.h"
#include "platform/kv/postgres_server.h"
#include "platform/net/system_transport.h"
#include "storage/meta/meta_client.h"
#include "storage/meta/service.h"

namespace ff::cmd {
namespace {

using nlohmann::json;
using scenario::files_parts::FilesLoad;
using scenario::files_parts::FilesOracle;
using Words = std::vector<std::string>;

constexpr size_t kServers = 3;
constexpr size_t kStorage = 2;
constexpr int64_t kEtcdMostNs = 90 * kSecond;

// A store of the managers, made of processes that can be killed.
class KilledStore {
 public:
  virtual ~KilledStore() = default;
  virtual std::string url() const = 0;
  virtual size_t processes() const = 0;
  virtual void kill(size_t i) = 0;
  virtual void start(size_t i) = 0;
};

class KilledEtcd final : public KilledStore {
 public:
  std::string url() const override {
    std::string members = "etcd://";
    for (size_t i = 0; i < etcd_.size(); i++) {
      members += (i == 0 ? "" : ",") + fmt::format("127.0.0.1:{}", etcd_.port(i));
    }
    return members;
  }
  size_t processes() const override { return etcd_.size(); }
  void kill(size_t i) override { etcd_.kill(i); }
  void start(size_t i) override { etcd_.start(i); }

 private:
  kv::EtcdCluster etcd_{3};
};

class KilledPostgres final : public KilledStore {
 public:
  std::string url() const override { return kv::PostgresServer::url({server_.port()}, database_); }
  size_t processes() const override { return 1; }
  void kill(size_t) override { server_.stop(SIGKILL); }
  void start(size_t) override { server_.start(); }

 private:
  kv::PostgresServer server_;
  const std::string database_ = server_.create_database();
};

struct StoreKind {
  std::string name;
  std::function<std::unique_ptr<KilledStore>()> make;
};
void PrintTo(const StoreKind& kind, std::ostream* out) { *out << kind.name; }

class FilesOnStoreTest : public testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    log_setup({.level = LogLevel::error});
    for (size_t i = 0; i < kServers; i++) start_server(i);
    for (const Server& server : servers_) {
      meta_ += (meta_.empty() ? "" : ",") + server.address;
    }
    until("a server is primary", [&] { return admin({"init"}).exit == 0; });
    for (size_t i = 1; i <= kStorage; i++) {
      const std::string number = std::to_string(i);
      storage_.push_back(run({"serve-storage", "--disk", dir_ / ("disk" + number), "--node", number,
                              "--meta", meta_, "--listen", "127.0.0.1:0"}));
    }
    until("nodes report", [&] { return data({"status"})["nodes"].size() == kStorage; });
    ASSERT_EQ(admin({"plan", "--replicas", "2", "--targets-per-disk", "2", "--apply"}).exit, 0);
    until("chains serve", [&] {
      const json chains = data({"status"})["chains"];
      return chains.is_object() && chains["all"] > 0 && chains["all"] == chains["whole"];
    });
  }

  struct Server {
    std::unique_ptr<test::Child> daemon;
    std::string address = "127.0.0.1:0";  // with the port once it has one
  };
  std::unique_ptr<test::Child> run(Words words) {
    words.insert(words.begin(), FF_BINARY);
    auto child = std::make_unique<test::Child>(test::Launch{.argv = std::move(words)});
    EXPECT_TRUE(child->wait_for_out("listening on ") && child->wait_for_out("\n")) << child->err;
    return child;
  }
  void start_server(size_t i) {
    Server& server = servers_[i];
    server.daemon = run(
        {"serve-meta", "--kv", store_->url(), "--collect-after", "1s", "--listen", server.address});
    const std::string& out = server.daemon->out;
    const size_t at = out.find("127.0.0.1:");
    ASSERT_NE(at, out.npos) << server.daemon->err;
    server.address = out.substr(at, out.find('\n', at) - at);
  }
  void kill_server(size_t i) {
    servers_[i].daemon->signal(SIGKILL);
    servers_[i].daemon->finish();
  }

  test::ProcessResult admin(Words words) {
    words.insert(words.begin(), "admin");
    return test::run_ff(std::move(words), {{"FF_META", meta_}});
  }
  json data(Words words) {
    words.push_back("--json");
    const json parsed = json::parse(admin(std::move(words)).out, nullptr, false);
    return parsed.is_object() && parsed["data"].is_object() ? parsed["data"] : json::object();
  }
  void run_for(int64_t ns) {
    run_task(loop_, [](Loop& loop, int64_t pause_ns) -> Task<void> {
      (void)co_await sleep_for(loop, pause_ns);
    }(loop_, ns));
  }
  template <class Condition>
  void until(const std::string& what, Condition condition) {
    const int64_t end_ns = clock_.steady_ns() + kEtcdMostNs;
    while (!condition()) {
      ASSERT_LT(clock_.steady_ns(), end_ns) << "not yet: " << what;
      run_for(100 * kMillisecond);
    }
  }
  // Until programs have done so much more.
  void work_goes_on(const FilesOracle& oracle, const std::string& when) {
    const uint64_t changes = oracle.changes + 20;
    until("work goes on " + when, [&] { return oracle.changes >= changes; });
  }

  const std::unique_ptr<KilledStore> store_ = GetParam().make();
  test::TempDir dir_;
  std::string meta_;
  std::array<Server, kServers> servers_;
  std::vector<std::unique_ptr<test::Child>> storage_;
  SystemClock clock_;
  SystemLoop loop_{clock_};
  net::SystemTransport transport_{net::TransportOptions{}};
  rpc::GrantScheduler grants_;
  Metrics metrics_;
  SeededRng rng_{system_seed()};
  rpc::ClientContext context_{loop_,    transport_, grants_,
                              metrics_, rng_,       {.name = "program", .software = "test"}};
};

INSTANTIATE_TEST_SUITE_P(
    Stores, FilesOnStoreTest,
    testing::Values(StoreKind{"etcd", [] { return std::make_unique<KilledEtcd>(); }},
                    StoreKind{"postgres", [] { return std::make_unique<KilledPostgres>(); }}),
    [](const auto& kind) { return kind.param.name; });

TEST_P(FilesOnStoreTest, ServersAndTheStoreAreKilledUnderLoad) {
  std::vector<net::Address> servers;
  for (const Server& server : servers_) {
    servers.push_back(net::parse_address(server.address).value());
  }
  FilesOracle oracle;
  oracle.now_ns = [this] { return clock_.steady_ns(); };
  oracle.report_violation = [](const std::string& what) { ADD_FAILURE() << what; };
  client::FileSystem examiner(context_, servers, {.arena = {}});
  const auto made = run_task(loop_, make_dirs(examiner, oracle, "run"));
  ASSERT_TRUE(made.ok()) << made.error().message;
  std::vector<std::unique_ptr<FilesLoad>> loads;
  for (int i = 0; i < 2; i++) {
    loads.push_back(std::make_unique<FilesLoad>(context_, servers, oracle));
  }
  work_goes_on(oracle, "at the start");
  for (size_t i = 0; i < kServers && !HasFailure(); i++) {
    kill_server(i);
    work_goes_on(oracle, fmt::format("without server {}", i));
    start_server(i);
  }
  for (size_t i = 0; i < store_->processes() && !HasFailure(); i++) {
    store_->kill(i);
    if (store_->processes() > 1) work_goes_on(oracle, fmt::format("without member {}", i));
    store_->start(i);
    work_goes_on(oracle, "once the store is whole again");
  }
  for (const auto& load : loads) load->stop();
  until("programs end",
        [&] { return std::ranges::none_of(loads, [](const auto& load) { return load->busy(); }); });
  const auto log = run_task(loop_, read_log(examiner, oracle));
  for (const auto& load : loads) run_task(loop_, load->close());
  run_task(loop_, examiner.close());
  ASSERT_TRUE(log.ok()) << log.error().message;
  if (const auto wrong = contradiction(oracle, *log)) ADD_FAILURE() << *wrong;
  const json found = data({"fsck"});
  for (const json& problem : found["told"]) {
    if (problem["kind"] != "orphan-chunks") ADD_FAILURE() << problem.dump();
  }
  EXPECT_GT(found["inodes"], 0);
}

// A metadata server on PostgreSQL, and a client that knows only this one.
class ServerWithClient {
 public:
  ServerWithClient(const std::string& store, rpc::ClientContext& context)
      : loop_(context.loop),
        daemon_({.argv = {FF_BINARY, "serve-meta", "--kv", store, "--listen", "127.0.0.1:0"}}),
        gate_(context.loop) {
    EXPECT_TRUE(daemon_.wait_for_out("listening on ") && daemon_.wait_for_out("\n")) << daemon_.err;
    const size_t at = daemon_.out.find("127.0.0.1:");
    address_ = daemon_.out.substr(at, daemon_.out.find('\n', at) - at);
    const std::vector<net::Address> only = {net::parse_address(address_).value()};
    client_ = std::make_unique<meta::MetaClient>(context, only);
  }
  // Programs that make directories in one of their own, until they are to stop or a call fails. A
  // call fails if it takes longer than a lease.
  Result<void> start_load(const std::string& name) {
    FF_TRY(const auto dir, run_task(loop_, client_->create({}, meta::root(), name, directory())));
    for (int program = 0; program < 8; program++) gate_.spawn(make_dirs(dir.ref(), program));
    return {};
  }
  void stop_load() {
    stopped_ = true;
    run_task(loop_, gate_.wait_empty());
  }
  void kill() {
    daemon_.signal(SIGKILL);
    daemon_.finish();
  }
  void close() { run_task(loop_, client_->close()); }
  const std::string& address() const { return address_; }
  int made() const { return made_; }
  const Result<void>& outcome() const { return outcome_; }

 private:
  static meta::Namespace::CreateOptions directory() {
    return {.kind = meta::InodeType::directory, .mode = 0755};
  }
  Task<void> make_dirs(meta::InodeRef dir, int program) {
    for (int i = 0; !stopped_ && outcome_; i++) {
      auto making = client_->create({}, dir, fmt::format("{}.{}", program, i), directory());
      const auto made = co_await with_deadline(loop_, loop_.now_ns() + meta::kDelegationLeaseNs,
                                               "a call waits too long", std::move(making));
      if (!made && outcome_) outcome_ = made.error();
      made_++;
    }
  }

  Loop& loop_;
  test::Child daemon_;
  std::string address_;
  std::unique_ptr<meta::MetaClient> client_;
  Gate gate_;
  bool stopped_ = false;
  int made_ = 0;
  Result<void> outcome_;
};

TEST(ServersOnPostgres, OneThatIsKilledCostsClientsOfAnotherNothing) {
  log_setup({.level = LogLevel::error});
  const KilledPostgres store;
  SystemClock clock;
  SystemLoop loop(clock);
  net::SystemTransport transport{net::TransportOptions{}};
  rpc::GrantScheduler grants;
  Metrics metrics;
  SeededRng rng{system_seed()};
  rpc::ClientContext context{loop,    transport, grants,
                             metrics, rng,       {.name = "program", .software = "test"}};
  const auto goes_on = [&](const ServerWithClient& server) {
    const int until = server.made() + 30;
    while (server.made() < until && server.outcome()) {
      run_task(loop, [](Loop& of) -> Task<void> {
        (void)co_await sleep_for(of, 10 * kMillisecond);
      }(loop));
    }
    return server.outcome().ok();
  };
  std::unique_ptr<ServerWithClient> killed =
      std::make_unique<ServerWithClient>(store.url(), context);
  ASSERT_TRUE(test::eventually([&] {
    return test::run_ff({"admin", "init"}, {{"FF_META", killed->address()}}).exit == 0;
  }));
  ServerWithClient other(store.url(), context);
  ASSERT_TRUE(other.start_load("other").ok());
  // The first one is the primary manager.
  for (int round = 0; round < 3; round++) {
    ASSERT_TRUE(killed->start_load(fmt::format("killed{}", round)).ok());
    ASSERT_TRUE(goes_on(*killed)) << killed->outcome().error().message;
    killed->kill();
    EXPECT_TRUE(goes_on(other)) << other.outcome().error().message;
    killed->close();
    killed->stop_load();
    killed = std::make_unique<ServerWithClient>(store.url(), context);
  }
  other.stop_load();
  EXPECT_TRUE(other.outcome().ok()) << other.outcome().error().message;
  other.close();
  killed->close();
}

}  // namespace
}  // namespace ff::cmd
