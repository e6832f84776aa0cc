// Calls over real TCP between threads: a server in one, clients in others, each with a loop of its
// own, and one registry of metrics for all. ThreadSanitizer runs this too.
#include "platform/net/system_transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/system_loop.h"
#include "platform/simd/crc32c.h"
#include "rpc_world.h"

namespace ff::rpc {
namespace {

constexpr int64_t kPatienceNs = 60 * kSecond;

// A loop and the thread that runs it.
class LoopThread {
 public:
  LoopThread() : thread_([this] { loop.run(); }) {}
  ~LoopThread() {
    loop.post([this] { loop.stop(); });
    thread_.join();
  }
  // Begins in the loop's thread what `make` makes there.
  template <class T>
  std::future<T> begin(std::function<Task<T>()> make) {
    const auto promise = std::make_shared<std::promise<T>>();
    loop.post([this, make = std::move(make), promise] { gate_.spawn(keep<T>(make, promise)); });
    return promise->get_future();
  }
  template <class T>
  T run(std::function<Task<T>()> make) {
    return take(begin(std::move(make)));
  }
  template <class T>
  static T take(std::future<T> future) {
    FF_CHECK(future.wait_for(std::chrono::nanoseconds(2 * kPatienceNs)) ==
             std::future_status::ready);
    return future.get();
  }

  SystemClock clock;
  SystemLoop loop{clock};

 private:
  template <class T>
  static Task<void> keep(std::function<Task<T>()> make, std::shared_ptr<std::promise<T>> promise) {
    auto task = make();
    promise->set_value(co_await std::move(task));
  }

  Gate gate_{loop};
  std::thread thread_;
};

auth::Key key_of(uint8_t byte) {
  auth::Key key;
  key.fill(std::byte{byte});
  return key;
}

net::TransportOptions transport_with(const auth::Key& key) {
  return {.mode = net::NetMode::tcp, .keyring = auth::root_keyring(key, auth::Role::rank)};
}

class ServerThread {
 public:
  explicit ServerThread(Metrics& metrics) : metrics_(metrics) { start(); }
  ~ServerThread() { stop(0); }

  // Always at the same address.
  void start() {
    EXPECT_TRUE(thread_.run<bool>([this] { return open(); }));
  }
  void stop(int64_t drain_ns) {
    thread_.run<bool>([this, drain_ns] { return close(drain_ns); });
  }
  std::future<bool> begin_stop(int64_t drain_ns) {
    return thread_.begin<bool>([this, drain_ns] { return close(drain_ns); });
  }
  const net::Address& at() const { return at_; }
  // These threads are the shards of one daemon, in this order.
  static void share(const std::vector<ServerThread*>& shards) {
    std::vector<Server*> servers;
    for (ServerThread* const shard : shards) servers.push_back(&*shard->server_);
    for (ServerThread* const shard : shards) {
      shard->thread_.run<bool>([shard, servers]() -> Task<bool> {
        shard->server_->set_shards(servers);
        co_return true;
      });
    }
  }
  size_t connections() {
    return thread_.run<size_t>([this]() -> Task<size_t> { co_return server_->connections(); });
  }

 private:
  Task<bool> open() {
    server_.emplace(thread_.loop, transport_, router_, metrics_,
                    Identity{.name = "server", .software = "ff test"});
    auto listening = server_->listen(at_);
    if (listening) at_ = *listening;
    co_return listening.ok();
  }
  Task<bool> close(int64_t drain_ns) {
    if (server_) co_await server_->close(drain_ns);
    server_.reset();
    co_return true;
  }

  Metrics& metrics_;
  net::Address at_{"127.0.0.1", 0, ""};
  net::SystemTransport transport_{transport_with(key_of(1))};
  Router router_;
  ProbeService probe_{router_};
  LoopThread thread_;
  std::optional<Server> server_;  // used in the thread alone
};

class ClientThread {
 public:
  ClientThread(Metrics& metrics, const net::Address& to, uint64_t number,
               const auth::Key& key = key_of(1))
      : rng_(number),
        transport_(transport_with(key)),
        context_{thread_.loop, transport_,
                 grants_,      metrics,
                 rng_,         {.name = fmt::format("client{}", number), .software = "ff test"}},
        client_(std::in_place, context_, to, auth::Service{auth::Role::rank, {}}) {}
  ~ClientThread() {
    thread_.run<bool>([this] { return close(); });
  }

  LoopThread& thread() { return thread_; }
  void use_any_shard() {
    thread_.run<bool>([this]() -> Task<bool> {
      client_->use_any_shard();
      co_return true;
    });
  }
  std::future<Result<wire::PingReply>> begin_ping(uint32_t wait_ms = 0) {
    return thread_.begin<Result<wire::PingReply>>([this, wait_ms] {
      return call_method(*client_, kPing, slow_ping(wait_ms), deadline_ns());
    });
  }
  Result<wire::PingReply> ping() { return LoopThread::take(begin_ping()); }
  // Pings, reads and writes one after the other; how many had the right result.
  Task<int> work(int rounds);
  // Pings until one is answered, whatever befalls the others.
  Task<bool> come_back();
  // Begins a ping, and gives it up once it has reached the server.
  Task<Error> give_up();

 private:
  int64_t deadline_ns() { return thread_.loop.now_ns() + kPatienceNs; }
  Task<bool> close() {
    co_await client_->close();
    client_.reset();
    co_return true;
  }

  SeededRng rng_;
  net::SystemTransport transport_;
  GrantScheduler grants_;
  LoopThread thread_;
  ClientContext context_;
  std::optional<Client> client_;  // used in the thread alone
};

Task<int> ClientThread::work(int rounds) {
  int right = 0;
  std::vector<std::byte> memory(300 * kKiB + 7);
  for (int i = 0; i < rounds; i++) {
    wire::PingRequest request;
    request.set_answer_bytes(static_cast<uint32_t>(i));
    const auto pong = co_await call_method(*client_, kPing, std::move(request), deadline_ns());
    right += pong && pong->data().size() == static_cast<size_t>(i);
    const uint64_t seed = rng_.next();
    const auto read = co_await probe_read(*client_, memory, seed, deadline_ns());
    right += read && memory == ProbeService::pattern(seed, memory.size());
    const auto written = co_await probe_write(*client_, memory, deadline_ns());
    right += written && written->crc() == simd::crc32c(memory);
  }
  co_return right;
}

Task<bool> ClientThread::come_back() {
  const int64_t until_ns = deadline_ns();
  while (thread_.loop.now_ns() < until_ns) {
    const auto pong = co_await call_method(*client_, kPing, wire::PingRequest(), until_ns);
    if (pong) co_return true;
    if (pong.error().code != Errc::unreachable) co_return false;
  }
  co_return false;
}

Task<Error> ClientThread::give_up() {
  std::optional<Result<wire::PingReply>> reply;
  Gate gate(thread_.loop);
  gate.spawn(store(call_method(*client_, kPing, slow_ping(600'000), INT64_MAX), reply));
  (void)co_await call_method(*client_, kPing, wire::PingRequest(),
                             deadline_ns());  // behind the slow one, so that has arrived
  co_await gate.close(fail(Errc::interrupted, "enough"));
  co_return reply->error();
}

constexpr size_t kClients = 3;

class TcpTest : public testing::Test {
 protected:
  TcpTest() : server_(metrics_) {
    for (size_t i = 0; i < kClients; i++) {
      clients_.push_back(std::make_unique<ClientThread>(metrics_, server_.at(), i + 10));
    }
  }
  bool run_until(const std::function<bool()>& done) {
    SystemClock clock;
    const int64_t until_ns = clock.steady_ns() + kPatienceNs;
    while (!done()) {
      if (clock.steady_ns() > until_ns) return false;
      std::this_thread::yield();
    }
    return true;
  }
  uint64_t answered(std::string_view code) { return answered_calls(metrics_, "probe.ping", code); }

  Metrics metrics_;
  ServerThread server_;
  std::vector<std::unique_ptr<ClientThread>> clients_;
};

// The address is that of the first shard.
TEST(TcpShards, AConnectionIsServedByTheShardThatItAsksFor) {
  Metrics metrics;
  ServerThread first(metrics);
  ServerThread second(metrics);
  ServerThread::share({&first, &second});
  struct Case {
    std::optional<uint32_t> shard;
    size_t at_second;
  };
  for (const Case& one : {Case{std::nullopt, 0}, Case{0, 0}, Case{1, 1}, Case{99, 0}}) {
    net::Address at = first.at();
    at.shard = one.shard;
    {
      ClientThread client(metrics, at, 1);
      const auto answer = client.ping();
      ASSERT_TRUE(answer) << answer.error().message;
      EXPECT_EQ(second.connections(), one.at_second);
      EXPECT_EQ(first.connections(), 1 - one.at_second);
      EXPECT_EQ(LoopThread::take(client.thread().begin<int>([&] { return client.work(3); })), 9);
    }
    // The next client is counted alone.
    SystemClock clock;
    const int64_t until_ns = clock.steady_ns() + kPatienceNs;
    while (first.connections() + second.connections() > 0) ASSERT_LT(clock.steady_ns(), until_ns);
  }
}

// One after the other, and a client stays where it is. Clients that say nothing stay in the first.
TEST(TcpShards, AServerDividesClientsThatAnyShardMayServe) {
  Metrics metrics;
  ServerThread first(metrics);
  ServerThread second(metrics);
  ServerThread::share({&first, &second});
  std::vector<std::unique_ptr<ClientThread>> clients;
  for (const bool any : {true, false, true}) {
    clients.push_back(std::make_unique<ClientThread>(metrics, first.at(), clients.size()));
    if (any) clients.back()->use_any_shard();
    ASSERT_TRUE(clients.back()->ping());
  }
  const auto expect_divided = [&] {
    SystemClock clock;
    const int64_t until_ns = clock.steady_ns() + kPatienceNs;
    while (first.connections() != 2 || second.connections() != 1) {
      ASSERT_LT(clock.steady_ns(), until_ns);
    }
  };
  expect_divided();
  // It is not the turn of the second shard.
  second.stop(0);
  second.start();
  ServerThread::share({&first, &second});
  EXPECT_TRUE(
      LoopThread::take(clients[2]->thread().begin<bool>([&] { return clients[2]->come_back(); })));
  expect_divided();
}

TEST_F(TcpTest, ThreadsCallAndMoveBulkAtOnce) {
  constexpr int kRounds = 30;
  std::vector<std::future<int>> working;
  for (auto& client : clients_) {
    for (int lane = 0; lane < 2; lane++) {
      working.push_back(client->thread().begin<int>([&client] { return client->work(kRounds); }));
    }
  }
  for (auto& work : working) EXPECT_EQ(LoopThread::take(std::move(work)), 3 * kRounds);
  const size_t lanes = 2 * kClients;
  EXPECT_EQ(answered("ok"), lanes * kRounds);
  for (const std::string method : {"probe.ping", "probe.read", "probe.write"}) {
    const std::string labels = fmt::format("{{method=\"{}\",code=\"ok\"}}", method);
    EXPECT_EQ(series(metrics_, "ff_rpc_client_calls_total" + labels), lanes * kRounds);
  }
  EXPECT_EQ(series(metrics_, "ff_rpc_connects_total{code=\"ok\"}"), kClients);
  EXPECT_EQ(series(metrics_, "ff_rpc_connections"), kClients);
}

TEST_F(TcpTest, ACancelReachesTheServer) {
  std::vector<std::future<Error>> ends;
  for (auto& client : clients_) {
    ends.push_back(client->thread().begin<Error>([&client] { return client->give_up(); }));
  }
  for (auto& end : ends) EXPECT_EQ(LoopThread::take(std::move(end)).message, "enough");
  EXPECT_TRUE(run_until([this] { return answered("interrupted") == kClients; }));
  for (auto& client : clients_) EXPECT_TRUE(client->ping().ok());
}

TEST_F(TcpTest, AServerGoesDownUnderCallsAndComesBack) {
  for (const int64_t drain_ns : {2 * kSecond, int64_t{0}}) {
    for (auto& client : clients_) EXPECT_TRUE(client->ping().ok());
    const uint64_t before = answered("ok");
    std::vector<std::future<Result<wire::PingReply>>> slow;
    std::vector<std::future<Result<wire::PingReply>>> short_ones;
    for (auto& client : clients_) {
      slow.push_back(client->begin_ping(600'000));
      if (drain_ns > 0) short_ones.push_back(client->begin_ping(100));
      EXPECT_TRUE(client->ping().ok());  // behind both, so they have arrived
    }
    // The short ones are waited for, the slow ones are not.
    auto stopping = server_.begin_stop(drain_ns);
    for (auto& ping : short_ones) EXPECT_TRUE(LoopThread::take(std::move(ping)).ok());
    for (auto& ping : slow) {
      EXPECT_EQ(LoopThread::take(std::move(ping)).error().code, Errc::unreachable);
    }
    EXPECT_TRUE(LoopThread::take(std::move(stopping)));
    EXPECT_EQ(answered("ok"), before + kClients + short_ones.size());
    EXPECT_EQ(series(metrics_, "ff_rpc_connections"), 0u);
    std::vector<std::future<bool>> coming;
    for (auto& client : clients_) {
      EXPECT_EQ(client->ping().error().code, Errc::unreachable);
      coming.push_back(client->thread().begin<bool>([&client] { return client->come_back(); }));
    }
    server_.start();
    for (auto& back : coming) EXPECT_TRUE(LoopThread::take(std::move(back)));
  }
}

TEST_F(TcpTest, AWrongKeyIsRefusedWhileOthersCall) {
  ClientThread wrong(metrics_, server_.at(), 99, key_of(2));
  std::vector<std::future<int>> working;
  for (auto& client : clients_) {
    working.push_back(client->thread().begin<int>([&client] { return client->work(10); }));
  }
  for (int i = 0; i < 3; i++) {
    const auto refused = wrong.ping();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::refused);
    EXPECT_NE(refused.error().message.find("does not accept the key of rank/test"),
              std::string::npos)
        << refused.error().message;
  }
  for (auto& work : working) EXPECT_EQ(LoopThread::take(std::move(work)), 30);
  EXPECT_TRUE(run_until(
      [this] { return series(metrics_, "ff_rpc_refused_total{code=\"refused\"}") == 3; }));
}

}  // namespace
}  // namespace ff::rpc
