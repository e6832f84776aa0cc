// Tests specific to etcd: members that die, pause and return, lost answers, late commits, compacted
// revisions, and invalid URLs.
#include "platform/kv/etcd_engine.h"

#include <gtest/gtest.h>

#include "platform/base/gate.h"
#include "platform/kv/engine_fixture.h"
#include "platform/kv/etcd_cluster.h"
#include "platform/kv/holding_proxy.h"
#include "platform/kv/tested_engines.h"
#include "platform/net/test_certificates.h"

namespace ff::kv {
namespace {

class EtcdEngineTest : public EngineFixture {
 protected:
  // etcd's own API, for what the engine never does.
  void call(const EtcdCluster& cluster, const std::string& path, const std::string& body) {
    HttpThread http({});
    const auto reply =
        run_task(loop_, http.post(loop_, cluster.endpoint(0) + path, body, 10 * kSecond));
    ASSERT_TRUE(reply.ok());
    ASSERT_EQ(reply->status, 200) << reply->body;
  }
};

TEST(EtcdUrlTest, NamesMembersAndAPrefix) {
  const auto plain = parse_etcd_url("etcd://a:1,b,[::1]:3/here").value();
  EXPECT_EQ(plain.endpoints,
            (std::vector<std::string>{"http://a:1", "http://b:2379", "http://[::1]:3"}));
  EXPECT_EQ(plain.prefix, "here");
  const auto tls = parse_etcd_url("etcds://[::1]").value();
  EXPECT_EQ(tls.endpoints, (std::vector<std::string>{"https://[::1]:2379"}));
  EXPECT_EQ(tls.prefix, "ff");
  EXPECT_EQ(parse_etcd_url("etcd://a/").value().prefix, "ff");
  for (const char* const bad : {"", "etcd:/a", "http://a:1", "etcd://", "etcd://a,,b", "etcd://a,",
                                "etcd:///x", "etcd://a/x/y", "etcd://u@a", "etcd://a b",
                                "etcd://a:x", "etcd://a:65536", "etcd://*:1", "etcd://unix:x"}) {
    const auto refused = parse_etcd_url(bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().code, Errc::usage);
    EXPECT_FALSE(refused.error().hint.empty());
  }
}

TEST_F(EtcdEngineTest, PrefixesKeepClustersApart) {
  EtcdCluster cluster(1);
  EtcdGateway one(cluster.options());
  auto options = cluster.options();
  options.prefix = "other";
  EtcdGateway other(options);
  EtcdEngine engine(one, loop_, rng_, metrics_), elsewhere(other, loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  EXPECT_EQ(get(engine, "a").value(), Value("1"));
  EXPECT_EQ(get(elsewhere, "a").value(), Value());
}

TEST_F(EtcdEngineTest, NobodyThere) {
  EtcdCluster cluster(1);
  EtcdGateway gateway(cluster.options());
  EtcdEngine engine(gateway, loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  cluster.kill(0);
  const auto written = put(engine, "a", "2", kSecond);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Errc::unreachable) << written.error().message;
  const auto read = get(engine, "a", kSecond);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Errc::unreachable) << read.error().message;
  EXPECT_NE(read.error().message.find(cluster.endpoint(0)), std::string::npos);
  cluster.start(0);
  EXPECT_EQ(get(engine, "a").value(), Value("1"));
  EXPECT_TRUE(put(engine, "a", "3").ok());
  EXPECT_EQ(get(engine, "a").value(), Value("3"));
}

TEST_F(EtcdEngineTest, WokenTooLate) {
  EtcdOptions nobody;
  nobody.endpoints = {"http://127.0.0.1:9"};
  EtcdGateway gateway(nobody);
  check_woken_too_late([&](Loop& loop, uint64_t seed) {
    return std::make_unique<SeededEtcdEngine>(gateway, loop, seed);
  });
}

// A member that answers, but has lost the others: it can promise nothing.
TEST_F(EtcdEngineTest, AMemberWithoutAQuorum) {
  EtcdCluster cluster(3);
  auto options = cluster.options();
  options.endpoints = {cluster.endpoint(0)};
  EtcdGateway gateway(options);
  EtcdEngine engine(gateway, loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  cluster.halt(1);
  cluster.halt(2);
  EXPECT_FALSE(get(engine, "a", kSecond).ok());
  EXPECT_FALSE(put(engine, "a", "2", kSecond).ok());
  cluster.go_on(1);
  ASSERT_TRUE(put(engine, "a", "3").ok());
  EXPECT_EQ(get(engine, "a").value(), Value("3"));
}

TEST_F(EtcdEngineTest, AMemberOfAnotherCluster) {
  EtcdCluster cluster(1), other(1);
  auto options = cluster.options();
  options.endpoints.push_back(other.endpoint(0));
  EtcdGateway gateway(options);
  EtcdEngine engine(gateway, loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  cluster.kill(0);
  const auto refused = get(engine, "a");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_NE(refused.error().message.find(other.endpoint(0)), std::string::npos);
}

TEST_F(EtcdEngineTest, NotEtcd) {
  EtcdCluster cluster(1);
  auto options = cluster.options();
  options.endpoints = {cluster.endpoint(0) + "/health"};
  EtcdGateway gateway(options);
  EtcdEngine engine(gateway, loop_, rng_, metrics_);
  const auto refused = put(engine, "a", "1");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::failed);
  EXPECT_FALSE(refused.error().hint.empty());
}

TEST_F(EtcdEngineTest, TlsWithCertificatesOfBothSides) {
  net::TestFiles files;
  const net::TestCertificate authority({.name = "etcd authority", .authority = true});
  const auto own = authority.issue({.name = "ff", .hosts = "IP:127.0.0.1,DNS:localhost"});
  const auto good = files.put(own, authority.pem());
  EtcdCluster cluster(1, {good.ca, good.cert, good.key});
  EtcdGateway gateway(cluster.options());
  EtcdEngine engine(gateway, loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  EXPECT_EQ(get(engine, "a").value(), Value("1"));

  const net::TestCertificate stranger({.name = "stranger", .authority = true});
  const auto foreign = files.put(stranger.issue({.name = "ff"}), stranger.pem());
  const HttpTls wrong[] = {
      {foreign.ca, good.cert, good.key},     // trusts others
      {good.ca, foreign.cert, foreign.key},  // is not trusted
      {good.ca, {}, {}},                     // shows nothing
  };
  for (const HttpTls& tls : wrong) {
    auto options = cluster.options();
    options.tls = tls;
    EtcdGateway other(options);
    EtcdEngine outside(other, loop_, rng_, metrics_);
    const auto refused = get(outside, "a", kSecond);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::unreachable) << refused.error().message;
    EXPECT_FALSE(put(outside, "a", "2", kSecond).ok());
  }
  EXPECT_EQ(get(engine, "a").value(), Value("1"));
}

// A function whose revision is compacted away between two of its reads begins again.
TEST_F(EtcdEngineTest, ACompactedRevision) {
  EtcdCluster cluster(1);
  EtcdGateway gateway(cluster.options());
  EtcdEngine engine(gateway, loop_, rng_, metrics_), other(gateway, loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  int runs = 0;
  Value a, b;
  const TxnFunction look = [&](Txn& txn) -> Task<Result<void>> {
    runs++;
    FF_CO_TRY(a, co_await txn.get("a"));
    if (runs == 1) {
      for (const char* const key : {"a", "b"}) {
        auto putting = other.run(
            [key](Txn& inner) -> Task<Result<void>> {
              inner.put(key, "2");
              co_return Result<void>();
            },
            INT64_MAX);
        FF_CO_TRY(co_await std::move(putting));
      }
      EtcdGateway::Reads reads;
      reads.ranges.push_back({"b", {}, 1});
      FF_CO_TRY(const auto now, co_await gateway.read(loop_, std::move(reads), INT64_MAX));
      HttpThread http({});
      auto posting = http.post(loop_, cluster.endpoint(0) + "/v3/kv/compaction",
                               fmt::format(R"({{"revision":"{}"}})", now.revision), 10 * kSecond);
      FF_CO_TRY(const auto reply, co_await std::move(posting));
      EXPECT_EQ(reply.status, 200) << reply.body;
    }
    FF_CO_TRY(b, co_await txn.get("b"));
    co_return Result<void>();
  };
  ASSERT_TRUE(run_task(loop_, engine.run(look, INT64_MAX)).ok());
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(engine.series().conflicts.value(), 1u);
  EXPECT_EQ(a, Value("2"));
  EXPECT_EQ(b, Value("2"));
  runs = 0;
  ASSERT_TRUE(run_task(loop_, engine.view(look, INT64_MAX)).ok());
  EXPECT_EQ(runs, 2);
}

TEST_F(EtcdEngineTest, AFenceThatVanishes) {
  EtcdCluster cluster(1);
  EtcdGateway gateway(cluster.options());
  EtcdEngine engine(gateway, loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  // All keys under "ff/f/".
  call(cluster, "/v3/kv/deleterange", R"({"key":"ZmYvZi8=","range_end":"ZmYvZjA="})");
  ASSERT_TRUE(put(engine, "a", "2").ok());
  EXPECT_EQ(get(engine, "a").value(), Value("2"));
}

// A commit that reaches etcd long after the client has given it up and gone on: it must not undo
// what came after. Given up because there was no answer in time, or because its task was destroyed.
class LateCommitTest : public EtcdEngineTest {
 protected:
  EtcdOptions through_proxy() {
    auto options = cluster_.options();
    options.endpoints = {fmt::format("http://127.0.0.1:{}", proxy_.port())};
    return options;
  }
  void deliver_and_check() {
    ASSERT_TRUE(proxy_.holds());
    proxy_.release();
    wait_until([&] { return proxy_.answered(); });
    EXPECT_EQ(get(engine_, "a").value(), Value("2"));
  }

  EtcdCluster cluster_{1};
  HoldingProxy proxy_{cluster_.port(0)};
  EtcdGateway gateway_{through_proxy()};
  EtcdEngine engine_{gateway_, loop_, rng_, metrics_};
};

TEST_F(LateCommitTest, GivenUpWithoutAnAnswer) {
  ASSERT_TRUE(put(engine_, "a", "0").ok());
  proxy_.hold_next();
  ASSERT_TRUE(put(engine_, "a", "1").ok());
  ASSERT_TRUE(put(engine_, "a", "2").ok());
  deliver_and_check();
}

TEST_F(LateCommitTest, GivenUpAtTheDeadline) {
  ASSERT_TRUE(put(engine_, "a", "0").ok());
  proxy_.hold_next();
  const auto late = put(engine_, "a", "1", 100 * kMillisecond);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Errc::unreachable) << late.error().message;
  ASSERT_TRUE(put(engine_, "a", "2").ok());
  deliver_and_check();
}

TEST_F(LateCommitTest, DestroyedMeanwhile) {
  ASSERT_TRUE(put(engine_, "a", "0").ok());
  proxy_.hold_next();
  {
    Gate gate(loop_);
    gate.spawn([](EtcdEngine& of) -> Task<void> {
      auto running = of.run(
          [](Txn& txn) -> Task<Result<void>> {
            txn.put("a", "1");
            co_return Result<void>();
          },
          INT64_MAX);
      (void)co_await std::move(running);
    }(engine_));
    wait_until([&] { return proxy_.holds(); });
  }
  ASSERT_TRUE(put(engine_, "a", "2").ok());
  deliver_and_check();
}

// Three members, of which always one at a time is killed or stands still, and clients that all the
// while run transactions on engines of two loops.
TEST_F(EtcdEngineTest, MembersDieUnderManyClients) {
  EtcdCluster cluster(3);
  EtcdGateway gateway(cluster.options());
  const auto make = [&](Loop& loop, uint64_t seed) {
    return std::make_unique<SeededEtcdEngine>(gateway, loop, seed);
  };
  check_history(make, 150, [&] {
    for (int faults = 0; faults < 4 && clients_run(); faults++) {
      const size_t member = rng_.below(cluster.size());
      const bool dies = rng_.below(2) == 0;
      pause(static_cast<int64_t>(rng_.below(200)) * kMillisecond);
      dies ? cluster.kill(member) : cluster.halt(member);
      pause(static_cast<int64_t>(rng_.below(1500)) * kMillisecond);
      dies ? cluster.start(member) : cluster.go_on(member);
      pause(300 * kMillisecond);
    }
  });
}

}  // namespace
}  // namespace ff::kv
