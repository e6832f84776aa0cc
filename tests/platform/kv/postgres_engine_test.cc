// Tests specific to PostgreSQL: servers that are killed, standbys, lost answers, late groups, users
// that are not let in, and invalid URLs.
#include "platform/kv/postgres_engine.h"

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "platform/base/gate.h"
#include "platform/kv/engine_fixture.h"
#include "platform/kv/holding_proxy.h"
#include "platform/kv/postgres_server.h"
#include "platform/kv/tested_engines.h"
#include "platform/net/test_certificates.h"

namespace ff::kv {
namespace {

class PostgresEngineTest : public EngineFixture {
 protected:
  // Adds one to a counter, once: the mark tells that an earlier run has taken effect.
  Result<void> count_up(Engine& engine, const std::string& mark) {
    return run_task(loop_, engine.run(
                               [&](Txn& txn) -> Task<Result<void>> {
                                 FF_CO_TRY(const auto done, co_await txn.get(mark));
                                 if (done) co_return Result<void>();
                                 FF_CO_TRY(const auto old, co_await txn.get("counter"));
                                 const int value = std::stoi(old.value_or("0"));
                                 txn.put("counter", std::to_string(value + 1));
                                 txn.put(mark, "");
                                 co_return Result<void>();
                               },
                               in(60 * kSecond)));
  }
  static MakeEngine maker(const PostgresOptions& options) {
    return [options](Loop& loop, uint64_t seed) {
      return std::make_unique<SeededPostgresEngine>(options, loop, seed);
    };
  }
};

TEST(PostgresUrlTest, NamesHostsAndADatabase) {
  EXPECT_EQ(parse_postgres_url("postgres://ff@a:1,b/meta").value().name, "postgres://a,b/meta");
  EXPECT_TRUE(parse_postgres_url("postgresql://[::1]:3/meta?sslmode=require").ok());
  EXPECT_TRUE(parse_postgres_url("postgres:///meta?host=/run/postgresql").ok());
  EXPECT_TRUE(parse_postgres_url("postgres://?service=meta").ok());
  for (const char* const bad :
       {"", "postgres:/a/b", "http://a/b", "postgres://", "postgres://a", "postgres://a/",
        "postgres:///meta", "postgres://a/meta?nonsense=1", "postgres://a:x:y/meta?host"}) {
    const auto refused = parse_postgres_url(bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().code, Errc::usage);
    EXPECT_FALSE(refused.error().hint.empty());
  }
  for (const char* const secret : {"postgres://ff:secret@a/meta", "postgres://a/b?password=secret",
                                   "postgres://a/b?sslpassword=secret"}) {
    const auto refused = parse_postgres_url(secret);
    ASSERT_FALSE(refused.ok()) << secret;
    EXPECT_EQ(refused.error().message.find("secret"), std::string::npos);
    EXPECT_NE(refused.error().hint.find("passfile"), std::string::npos);
  }
}

// On the server that all tests share.
class OneServerTest : public PostgresEngineTest {
 protected:
  PostgresOptions options() { return PostgresServer::options({server_.port()}, database_); }

  PostgresServer& server_ = shared_postgres();
  const std::string database_ = server_.create_database();
};

// In a snapshot from before its turn, a group would miss what another engine has just committed.
TEST_F(OneServerTest, AGroupSeesWhatWasCommittedBeforeItsTurnWhateverTheDatabaseIsSetTo) {
  server_.sql(database_, fmt::format("ALTER DATABASE {} SET default_transaction_isolation = "
                                     "'repeatable read'",
                                     database_));
  PostgresEngine engine(options(), loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  const std::unique_ptr<PGconn, decltype(&PQfinish)> other(
      PQconnectdb(fmt::format("host=127.0.0.1 port={} user=ff dbname={} sslmode=disable",
                              server_.port(), database_)
                      .c_str()),
      &PQfinish);
  PQclear(PQexec(other.get(), "BEGIN; SELECT pg_advisory_xact_lock(1717990774)"));
  int runs = 0;
  bool committed = false;
  Gate gate(loop_);
  gate.spawn([](PostgresEngine& of, int64_t deadline_ns, int& count, bool& done) -> Task<void> {
    auto running = of.run(
        [&count](Txn& txn) -> Task<Result<void>> {
          count++;
          FF_CO_TRY(const auto seen, co_await txn.get("a"));
          txn.put("b", *seen);
          co_return Result<void>();
        },
        deadline_ns);
    done = (co_await std::move(running)).ok();
  }(engine, in(60 * kSecond), runs, committed));
  wait_until([&] {
    return server_.sql(database_,
                       "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "
                       "NOT granted") == "1";
  });
  PQclear(PQexec(other.get(), "UPDATE ff_kv SET version = version + 1 WHERE key = 'a'; COMMIT"));
  wait_until([&] { return committed; });
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(engine.series().conflicts.value(), 1u);
}

TEST_F(OneServerTest, NobodyThere) {
  PostgresEngine engine(options(), loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  server_.stop(SIGKILL);
  const auto written = put(engine, "a", "2", kSecond);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Errc::unreachable) << written.error().message;
  const auto read = get(engine, "a", kSecond);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Errc::unreachable) << read.error().message;
  EXPECT_NE(read.error().message.find(database_), std::string::npos);
  server_.start();
  EXPECT_EQ(get(engine, "a").value(), Value("1"));
  EXPECT_TRUE(put(engine, "a", "3").ok());
  EXPECT_EQ(get(engine, "a").value(), Value("3"));
}

TEST_F(OneServerTest, ConcurrentTransactionsShareCommits) {
  PostgresEngine engine(options(), loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  const uint64_t commits = engine.series().commits.value();
  const uint64_t groups = engine.series().groups.value();
  constexpr uint64_t kTasks = 64;
  Gate gate(loop_);
  for (uint64_t i = 0; i < kTasks; i++) {
    gate.spawn([](PostgresEngine& of, uint64_t number) -> Task<void> {
      const std::string key = fmt::format("key/{}", number);
      auto running = of.run(
          [&](Txn& txn) -> Task<Result<void>> {
            FF_CO_TRY(const auto old, co_await txn.get(key));
            txn.put(key, "");
            txn.put("last", key);  // blind: everybody may
            co_return Result<void>();
          },
          INT64_MAX);
      EXPECT_TRUE((co_await std::move(running)).ok());
    }(engine, i));
  }
  run_task(loop_, gate.wait_empty());
  EXPECT_EQ(engine.series().commits.value() - commits, kTasks);
  EXPECT_LE(engine.series().groups.value() - groups, kTasks / 4);
  EXPECT_EQ(engine.series().conflicts.value(), 0u);
  EXPECT_EQ(server_.sql(database_, "SELECT count(*) FROM ff_kv"), std::to_string(kTasks + 2));
}

// A connection is cut at each round trip in turn: before the server gets the request, and after it
// has executed it. Every transaction takes effect once.
TEST_F(OneServerTest, AConnectionIsCutAtEachRoundTrip) {
  HoldingProxy proxy(server_.port());
  auto through_proxy = PostgresServer::options({proxy.port()}, database_);
  int count = 0;
  for (const bool request : {true, false}) {
    bool over = false;
    for (int trip = 0; !over; trip++) {
      ASSERT_LT(trip, 100);
      request ? proxy.cut_request(trip) : proxy.cut_answer(trip);
      PostgresEngine engine(through_proxy, loop_, rng_, metrics_);
      for (int i = 0; i < 2; i++) {
        const auto counted = count_up(engine, fmt::format("mark/{}", ++count));
        ASSERT_TRUE(counted.ok()) << counted.error().message;
      }
      ASSERT_EQ(get(engine, "counter").value(), Value(std::to_string(count)));
      over = proxy.called_off();
    }
  }
  EXPECT_GT(count, 10);
}

// A transaction that the server refuses (a key too long for an index) takes no other with it.
TEST_F(OneServerTest, OnlyTheTransactionThatIsRefusedFails) {
  PostgresEngine engine(options(), loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "first", "").ok());
  std::vector<Result<void>> results(3);
  const std::string keys[] = {"a", std::string(3000, '\xb7'), "b"};
  Gate gate(loop_);
  for (size_t i = 0; i < results.size(); i++) {
    gate.spawn([](PostgresEngine& of, std::string key, Result<void>& result) -> Task<void> {
      auto running = of.run(
          [&](Txn& txn) -> Task<Result<void>> {
            // Not a row of equal bytes, which the server would compress.
            SeededRng bytes(1);
            if (key.size() > 1) {
              for (char& byte : key) byte = static_cast<char>(bytes.next());
            }
            txn.put(key, "");
            co_return Result<void>();
          },
          INT64_MAX);
      result = co_await std::move(running);
    }(engine, keys[i], results[i]));
  }
  run_task(loop_, gate.wait_empty());
  EXPECT_TRUE(results[0].ok());
  EXPECT_TRUE(results[2].ok());
  ASSERT_FALSE(results[1].ok());
  EXPECT_EQ(results[1].error().code, Errc::failed) << results[1].error().message;
}

// The server hears of the end of a manager at any moment, also in the middle of a group, which is
// larger than what the proxy passes on at once. Nobody else has to wait or to repeat anything.
TEST_F(OneServerTest, AnEngineThatIsKilledCostsOthersNothing) {
  PostgresEngine engine(options(), loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "0").ok());
  HoldingProxy proxy(server_.port());
  auto through_proxy = PostgresServer::options({proxy.port()}, database_);
  const TxnFunction write = [](Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const auto old, co_await txn.get("killed"));
    txn.put("killed", std::string(400 * kKiB, 'x'));
    co_return Result<void>();
  };
  for (int trip = 0;; trip++) {
    ASSERT_LT(trip, 200);
    proxy.cut_request(trip);
    {
      Metrics metrics;
      PostgresEngine killed(through_proxy, loop_, rng_, metrics);
      Gate gate(loop_);
      bool ended = false;
      gate.spawn([](PostgresEngine& of, const TxnFunction& function, bool& done) -> Task<void> {
        (void)co_await of.run(function, INT64_MAX);
        done = true;
      }(killed, write, ended));
      wait_until([&] { return proxy.has_cut() || ended; });
      ASSERT_TRUE(put(engine, "a", std::to_string(trip), 5 * kSecond).ok()) << trip;
    }
    if (proxy.called_off()) break;
  }
  EXPECT_EQ(engine.series().unknown.value(), 0u);
  EXPECT_EQ(engine.series().conflicts.value(), 0u);
}

// A row of the fence that an administrator has deleted comes back.
TEST_F(OneServerTest, AFenceThatVanishes) {
  PostgresEngine engine(options(), loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  EXPECT_EQ(server_.sql(database_, "DELETE FROM ff_fence"), "");
  ASSERT_TRUE(put(engine, "a", "2").ok());
  EXPECT_EQ(get(engine, "a").value(), Value("2"));
}

// A server may close connections that are idle, and cancel statements.
TEST_F(OneServerTest, TimeoutsOfTheServer) {
  EXPECT_EQ(server_.sql("postgres",
                        fmt::format("ALTER DATABASE {} SET idle_session_timeout = 50", database_)),
            "");
  PostgresEngine engine(options(), loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  ASSERT_TRUE(PostgresServer::until([&] {
    return server_.sql(
               "postgres",
               "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'ff %'") == "0";
  }));
  EXPECT_EQ(get(engine, "a").value(), Value("1"));
  EXPECT_TRUE(put(engine, "a", "2").ok());
  EXPECT_EQ(get(engine, "a").value(), Value("2"));
  // A lock of somebody else, for which the server lets no statement wait.
  EXPECT_EQ(server_.sql("postgres",
                        fmt::format("ALTER DATABASE {} SET statement_timeout = 500", database_)),
            "");
  PostgresEngine other(options(), loop_, rng_, metrics_);
  std::thread locker([&] {
    server_.sql(database_,
                "BEGIN; LOCK TABLE ff_kv; SET LOCAL statement_timeout = 0; SELECT "
                "pg_sleep(1.2); COMMIT");
  });
  ASSERT_TRUE(PostgresServer::until([&] {
    return server_.sql("postgres",
                       "SELECT count(*) FROM pg_stat_activity WHERE wait_event = "
                       "'PgSleep'") == "1";
  }));
  EXPECT_TRUE(put(other, "a", "3").ok());
  EXPECT_EQ(get(other, "a").value(), Value("3"));
  locker.join();
}

// As an administrator makes a server that another one shall replace.
TEST_F(OneServerTest, AServerThatAcceptsNoWritesForAWhile) {
  const auto read_only = [&](const char* value) {
    EXPECT_EQ(server_.sql("postgres", fmt::format("ALTER SYSTEM SET default_transaction_read_only "
                                                  "= {}",
                                                  value)),
              "");
    EXPECT_EQ(server_.sql("postgres", "SELECT pg_reload_conf()"), "t");
    EXPECT_TRUE(PostgresServer::until(
        [&] { return server_.sql("postgres", "SHOW default_transaction_read_only") == value; }));
  };
  PostgresEngine engine(options(), loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  read_only("on");
  const auto refused = put(engine, "a", "2", kSecond);
  read_only("off");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::unreachable) << refused.error().message;
  EXPECT_NE(refused.error().message.find("read-only"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(get(engine, "a").value(), Value("1"));
  EXPECT_TRUE(put(engine, "a", "3").ok());
}

// Only the server's clock decides which fences are old. When it jumps ahead, another engine removes
// the fence of one that still works.
TEST_F(OneServerTest, TheClockOfTheServerJumps) {
  PostgresEngine engine(options(), loop_, rng_, metrics_);
  ASSERT_TRUE(count_up(engine, "first").ok());
  EXPECT_EQ(server_.sql(database_, "UPDATE ff_fence SET touched = touched - interval '2 days'"),
            "");
  ShiftedClock ahead(int64_t{400} * 24 * 3600 * kSecond);
  SystemLoop loop(ahead);
  PostgresEngine other(options(), loop, rng_, metrics_);
  ASSERT_TRUE(run_task(loop, other.run(
                                 [](Txn& txn) -> Task<Result<void>> {
                                   txn.put("other", "1");
                                   co_return Result<void>();
                                 },
                                 INT64_MAX))
                  .ok());
  EXPECT_EQ(server_.sql(database_, "SELECT count(*) FROM ff_fence"), "1");
  ASSERT_TRUE(count_up(engine, "second").ok());
  EXPECT_EQ(server_.sql(database_, "SELECT count(*) FROM ff_fence"), "2");
  EXPECT_EQ(get(engine, "counter").value(), Value("2"));
}

TEST_F(PostgresEngineTest, WokenTooLate) {
  check_woken_too_late(maker(parse_postgres_url("postgres://127.0.0.1:9/none").value()));
}

// Almost all changes of records leave the index alone and reuse the space of older versions, so the
// table does not grow.
TEST_F(OneServerTest, ARecordThatChangesStaysInItsPage) {
  constexpr int kKeys = 2000, kChanges = 6000, kAtOnce = 20;
  {
    PostgresEngine engine(options(), loop_, rng_, metrics_);
    ASSERT_TRUE(put(engine, "a", "1").ok());
    for (int first = 0; first < kKeys + kChanges; first += kAtOnce) {
      ASSERT_TRUE(run_task(loop_, engine.run(
                                      [&](Txn& txn) -> Task<Result<void>> {
                                        for (int i = first; i < first + kAtOnce; i++) {
                                          const int key = i < kKeys ? i : i * 7919 % kKeys;
                                          txn.put(fmt::format("key/{}", key),
                                                  std::string(100, static_cast<char>(i)));
                                        }
                                        co_return Result<void>();
                                      },
                                      INT64_MAX))
                      .ok());
    }
  }  // the server counts what a connection has done when it ends
  const auto counted = [&](const std::string& what) {
    const auto sql =
        fmt::format("SELECT {} FROM pg_stat_user_tables WHERE relname = 'ff_kv'", what);
    return std::atoi(server_.sql(database_, sql).c_str());
  };
  wait_until([&] { return counted("n_tup_upd") >= kChanges; });
  EXPECT_GT(counted("n_tup_hot_upd"), kChanges * 995 / 1000);
  EXPECT_LT(counted("pg_table_size(relid) / 8192"), kKeys / 25);
}

// The time to open a store does not depend on the number of records.
TEST_F(OneServerTest, OpeningReadsNoRecords) {
  {
    PostgresEngine engine(options(), loop_, rng_, metrics_);
    for (int part = 0; part < 5; part++) {
      ASSERT_TRUE(run_task(loop_, engine.run(
                                      [&](Txn& txn) -> Task<Result<void>> {
                                        for (int i = 0; i < 100; i++) {
                                          txn.put(fmt::format("key/{}/{}", part, i), "");
                                        }
                                        co_return Result<void>();
                                      },
                                      INT64_MAX))
                      .ok());
    }
  }
  const auto sum = [&](const std::string& what) {
    const auto sql =
        fmt::format("SELECT {} FROM pg_stat_user_tables WHERE relname = 'ff_kv'", what);
    return std::atoi(server_.sql(database_, sql).c_str());
  };
  wait_until([&] { return sum("n_tup_ins") >= 500; });
  const int before = sum("seq_tup_read + idx_tup_fetch"), scans = sum("idx_scan");
  {
    PostgresEngine engine(options(), loop_, rng_, metrics_);
    EXPECT_EQ(get(engine, "key/1/1").value(), Value(""));
    EXPECT_TRUE(put(engine, "key/1/2", "1").ok());
  }
  wait_until([&] { return sum("n_tup_upd") >= 1 && sum("idx_scan") > scans; });
  EXPECT_LE(sum("seq_tup_read + idx_tup_fetch") - before, 3);
}

TEST_F(OneServerTest, TablesOfANewerVersion) {
  {
    PostgresEngine engine(options(), loop_, rng_, metrics_);
    ASSERT_TRUE(put(engine, "a", "1").ok());
  }
  EXPECT_EQ(server_.sql(database_, "UPDATE ff_format SET format = 2"), "");
  PostgresEngine engine(options(), loop_, rng_, metrics_);
  const auto read = get(engine, "a");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Errc::newer_format) << read.error().message;
  const auto written = put(engine, "a", "2");
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Errc::newer_format) << written.error().message;
}

TEST_F(OneServerTest, ADamagedRecordIsNamed) {
  PostgresEngine engine(options(), loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  EXPECT_EQ(server_.sql(database_, "UPDATE ff_kv SET value = set_bit(value, 1, 1)"), "");
  const auto read = get(engine, "a");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Errc::corrupt) << read.error().message;
}

// A long view is one snapshot, although the records change meanwhile and the connection breaks.
TEST_F(OneServerTest, ALongViewIsOneSnapshotAndBeginsAgainIfTheConnectionBreaks) {
  PostgresEngine engine(options(), loop_, rng_, metrics_), other(options(), loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  ASSERT_TRUE(put(engine, "b", "1").ok());
  int runs = 0;
  std::vector<Entry> first, second;
  const TxnFunction scan = [&](Txn& txn) -> Task<Result<void>> {
    runs++;
    const Range a{"a", "b", 1}, b{"b", "c", 1};
    FF_CO_TRY(first, co_await txn.range(a, ""));
    for (const char* const key : {"a", "b"}) {
      auto putting = other.run(
          [key, runs](Txn& inner) -> Task<Result<void>> {
            inner.put(key, std::to_string(runs + 1));
            co_return Result<void>();
          },
          INT64_MAX);
      FF_CO_TRY(co_await std::move(putting));
    }
    if (runs == 2) {
      EXPECT_EQ(server_.sql("postgres",
                            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE "
                            "application_name = 'ff scan'"),
                "t");
    }
    FF_CO_TRY(second, co_await txn.range(b, ""));
    co_return Result<void>();
  };
  ASSERT_TRUE(run_task(loop_, engine.view(scan, INT64_MAX)).ok());
  EXPECT_EQ(runs, 3);  // without a snapshot, with a lost one, with another
  EXPECT_EQ(first, (std::vector<Entry>{{"a", "3"}}));
  EXPECT_EQ(second, (std::vector<Entry>{{"b", "3"}}));
}

// A group that reaches the server long after the client has given it up and gone on: it must not
// undo what came after. Given up because there was no answer in time, or because its task was
// destroyed.
class LateGroupTest : public OneServerTest {
 protected:
  PostgresOptions through_proxy() {
    auto options = PostgresServer::options({proxy_.port()}, database_);
    options.answer_ns = kSecond;
    return options;
  }
  void deliver_and_check() {
    ASSERT_TRUE(proxy_.holds());
    proxy_.release();
    // The server had closed this connection.
    pause(100 * kMillisecond);
    EXPECT_EQ(get(engine_, "a").value(), Value("2"));
  }

  HoldingProxy proxy_{server_.port()};
  PostgresEngine engine_{through_proxy(), loop_, rng_, metrics_};
};

TEST_F(LateGroupTest, GivenUpWithoutAnAnswer) {
  ASSERT_TRUE(put(engine_, "a", "0").ok());
  proxy_.hold_next();
  ASSERT_TRUE(put(engine_, "a", "1").ok());
  ASSERT_TRUE(put(engine_, "a", "2").ok());
  EXPECT_EQ(engine_.series().unknown.value(), 1u);
  deliver_and_check();
}

TEST_F(LateGroupTest, GivenUpAtTheDeadline) {
  ASSERT_TRUE(put(engine_, "a", "0").ok());
  proxy_.hold_next();
  const auto late = put(engine_, "a", "1", 100 * kMillisecond);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Errc::unreachable) << late.error().message;
  ASSERT_TRUE(put(engine_, "a", "2").ok());
  deliver_and_check();
}

TEST_F(LateGroupTest, DestroyedMeanwhile) {
  ASSERT_TRUE(put(engine_, "a", "0").ok());
  proxy_.hold_next();
  {
    Gate gate(loop_);
    gate.spawn([](PostgresEngine& of) -> Task<void> {
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

// The server got a part of a group and waits for the rest, with the lock: nobody else could commit.
TEST_F(LateGroupTest, ALostConnectionHoldsTheLock) {
  ASSERT_TRUE(put(engine_, "a", "0").ok());
  const std::string name = server_.sql(
      "postgres",
      fmt::format("SELECT application_name FROM pg_stat_activity WHERE datname = '{}' AND "
                  "application_name LIKE 'ff commit %'",
                  database_));
  ASSERT_FALSE(name.empty());
  const std::unique_ptr<PGconn, decltype(&PQfinish)> lost(
      PQconnectdb(fmt::format("host=127.0.0.1 port={} user=ff dbname={} sslmode=disable "
                              "application_name='{}'",
                              server_.port(), database_, name)
                      .c_str()),
      &PQfinish);
  PQclear(PQexec(lost.get(), "BEGIN; SELECT pg_advisory_xact_lock(1717990774)"));
  ASSERT_EQ(PQtransactionStatus(lost.get()), PQTRANS_INTRANS);
  EXPECT_TRUE(put(engine_, "a", "1", 30 * kSecond).ok());
  EXPECT_EQ(get(engine_, "a").value(), Value("1"));
}

TEST_F(OneServerTest, TheServerIsKilledUnderManyClients) {
  check_history(maker(options()), 120, [&] {
    for (int i = 0; i < 3; i++) {
      pause(static_cast<int64_t>(rng_.below(300)) * kMillisecond);
      server_.stop(SIGKILL);
      pause(static_cast<int64_t>(rng_.below(300)) * kMillisecond);
      server_.start();
    }
  });
}

// A primary, which confirms nothing that its standby has not stored, is killed; the standby takes
// over. It stands first in the list of hosts, so it is also refused while it only reads.
TEST_F(PostgresEngineTest, AStandbyIsPromotedUnderManyClients) {
  PostgresServer primary;
  const std::string database = primary.create_database();
  PostgresServer standby({.primary = &primary});
  EXPECT_EQ(primary.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'standby'"), "");
  EXPECT_EQ(primary.sql("postgres", "SELECT pg_reload_conf()"), "t");
  ASSERT_TRUE(PostgresServer::until([&] {
    return primary.sql("postgres", "SELECT sync_state FROM pg_stat_replication") == "sync";
  }));
  const auto both = PostgresServer::options({standby.port(), primary.port()}, database);
  {
    PostgresEngine engine(both, loop_, rng_, metrics_);
    ASSERT_TRUE(put(engine, "before", "1").ok());
  }
  check_history(maker(both), 120, [&] {
    pause(300 * kMillisecond);
    primary.stop(SIGKILL);
    standby.promote();
  });
  PostgresEngine engine(both, loop_, rng_, metrics_);
  EXPECT_EQ(get(engine, "before").value(), Value("1"));
}

// A tmpfs with a file that takes most of it.
class SmallDisk {
 public:
  explicit SmallDisk(int mib) {
    mounted_ =
        ::mount("none", dir_.path().c_str(), "tmpfs", 0, fmt::format("size={}m", mib).c_str()) == 0;
    if (mounted_) PostgresServer::give_path(dir_.path(), 0700);
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(dir_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& path() const { return dir_.path(); }
  void fill(uint64_t left_bytes) const {
    std::ofstream(ballast()) << std::string(std::filesystem::space(path()).free - left_bytes, 'x');
  }
  void make_room() const { std::filesystem::remove(ballast()); }

 private:
  std::string ballast() const { return dir_ / "ballast"; }

  io::TempDir dir_;
  bool mounted_ = false;
};

class FullDiskTest : public PostgresEngineTest {
 protected:
  // Puts records, under `keys` keys in turn, until the server takes no more, which the error says.
  void put_until_full(Engine& engine, int keys, Errc code, int64_t patience_ns) {
    for (int i = 0;; i++) {
      const std::string key = fmt::format("key/{:06}", i % keys);
      const auto written = put(engine, key, record(i), patience_ns);
      if (written && i < 20'000) {
        acknowledged_[key] = i;
        continue;
      }
      const Errc got = written ? Errc::failed : written.error().code;
      // A table may be the first file that finds no space.
      EXPECT_TRUE(got == code || got == Errc::disk_full)
          << (written ? "the disk is never full" : written.error().message);
      if (got == Errc::unreachable) acknowledged_.erase(key);  // it may have been written
      break;
    }
    EXPECT_GT(acknowledged_.size(), 10u);
  }
  // Bytes that the server cannot compress.
  static std::string record(int number) {
    SeededRng rng(static_cast<uint64_t>(number));
    std::string bytes(4000, ' ');
    for (char& byte : bytes) byte = static_cast<char>(rng.next());
    return bytes;
  }
  void expect_acknowledged(Engine& engine) {
    for (const auto& [key, number] : acknowledged_) {
      ASSERT_EQ(get(engine, key).value(), Value(record(number))) << key;
    }
  }

  std::map<std::string, int> acknowledged_;  // which record each key has
};

// The disk of the tables is full: changes are refused, and the error says why; reads go on.
TEST_F(FullDiskTest, TablesFindNoSpace) {
  SmallDisk disk(24);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  PostgresServer server;
  EXPECT_EQ(
      server.sql("postgres", fmt::format("CREATE TABLESPACE small LOCATION '{}'", disk.path())),
      "");
  EXPECT_EQ(server.sql("postgres", "CREATE DATABASE meta TABLESPACE small"), "");
  PostgresEngine engine(PostgresServer::options({server.port()}, "meta"), loop_, rng_, metrics_);
  ASSERT_TRUE(put(engine, "a", "1").ok());
  disk.fill(kMiB);
  put_until_full(engine, INT32_MAX, Errc::disk_full, 60 * kSecond);
  const auto refused = put(engine, "b", record(0));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("No space left"), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().hint.find("Free space"), std::string::npos);
  expect_acknowledged(engine);
  disk.make_room();
  EXPECT_TRUE(put(engine, "b", record(0)).ok());
  expect_acknowledged(engine);
}

// The disk of the server's log is full: the server stops, as PostgreSQL does, and nothing that it
// has acknowledged is lost.
TEST_F(FullDiskTest, TheLogFindsNoSpace) {
  if (::getuid() != 0) GTEST_SKIP() << "mounting a tmpfs needs root";
  PostgresServer server({.settings = {"max_wal_size = 1GB"}, .disk_mib = 48});
  const std::string database = server.create_database();
  PostgresEngine engine(PostgresServer::options({server.port()}, database), loop_, rng_, metrics_);
  put_until_full(engine, 50, Errc::unreachable, 3 * kSecond);
  server.stop(SIGKILL);
  server.set_disk_size(256);
  server.start();
  expect_acknowledged(engine);
  EXPECT_TRUE(put(engine, "b", "2").ok());
}

// The password comes from a passfile, by SCRAM over TLS; the server must prove its name.
TEST_F(PostgresEngineTest, TlsAndAPasswordFromAFile) {
  net::TestFiles files;
  const net::TestCertificate authority({.name = "database authority", .authority = true});
  const net::TestCertificate stranger({.name = "stranger", .authority = true});
  PostgresServer server({.hba = {"hostssl all meta 127.0.0.1/32 scram-sha-256",
                                 "host all meta 127.0.0.1/32 reject"}});
  const auto certify = [&](const std::string& hosts) {
    const auto own = authority.issue({.name = "server", .hosts = hosts});
    for (const auto& [name, text] :
         {std::pair{"server.crt", own.pem()}, std::pair{"server.key", own.key_pem()}}) {
      std::filesystem::remove(server.file(name));
      std::ofstream(server.file(name)) << text;
      server.give(name);
    }
    EXPECT_EQ(server.sql("postgres", "ALTER SYSTEM SET ssl = on"), "");
    EXPECT_EQ(server.sql("postgres", "SELECT pg_reload_conf()"), "t");
    EXPECT_TRUE(PostgresServer::until([&] { return server.sql("postgres", "SHOW ssl") == "on"; }));
  };
  certify("IP:127.0.0.1");
  EXPECT_EQ(server.sql("postgres", "CREATE ROLE meta LOGIN PASSWORD 'right:one'"), "");
  EXPECT_EQ(server.sql("postgres", "CREATE DATABASE meta OWNER meta"), "");
  const std::string ca = files.put("ca", authority.pem()),
                    other = files.put("other", stranger.pem());
  const std::string right = files.put("pgpass", "127.0.0.1:*:meta:meta:right\\:one\n");
  const std::string wrong = files.put("wrong", "127.0.0.1:*:meta:meta:wrong\n");
  const auto try_with = [&](const std::string& parameters) {
    const auto url = fmt::format("postgres://meta@127.0.0.1:{}/meta?{}", server.port(), parameters);
    PostgresEngine engine(parse_postgres_url(url).value(), loop_, rng_, metrics_);
    auto written = put(engine, "a", "1");
    return written ? std::string("written") : std::string(errc_name(written.error().code));
  };
  EXPECT_EQ(try_with(fmt::format("passfile={}&sslrootcert={}&channel_binding=require", right, ca)),
            "written");
  EXPECT_EQ(try_with(fmt::format("passfile={}&sslrootcert={}", wrong, ca)), "refused");
  EXPECT_EQ(try_with(fmt::format("passfile=/dev/null&sslrootcert={}", ca)), "refused");
  EXPECT_EQ(try_with(fmt::format("passfile={}&sslrootcert={}", right, other)), "refused");
  EXPECT_EQ(try_with(fmt::format("passfile={}", right)), "refused");  // verifies all the same
  EXPECT_EQ(try_with(fmt::format("passfile={}&sslmode=disable", right)), "refused");
  const std::string service =
      files.put("service", fmt::format("[db]\nhost=127.0.0.1\nport={}\ndbname=meta\nuser=meta\n"
                                       "passfile={}\nsslrootcert={}\n",
                                       server.port(), right, ca));
  ASSERT_EQ(::setenv("PGSERVICEFILE", service.c_str(), 1), 0);
  PostgresEngine named(parse_postgres_url("postgres://?service=db").value(), loop_, rng_, metrics_);
  const auto written = put(named, "a", "2");
  EXPECT_TRUE(written.ok()) << written.error().message;
  certify("DNS:elsewhere");
  EXPECT_EQ(try_with(fmt::format("passfile={}&sslrootcert={}", right, ca)), "refused");
}

}  // namespace
}  // namespace ff::kv
