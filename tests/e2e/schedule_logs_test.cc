// ff schedule logs, run and nodes with a node that is played here: it reports, takes what it is
// told to, prints what the test says, and ends ranks as the test says.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cmd/options/net_client.h"
#include "cmd/schedule/log_reader.h"
#include "e2e/child.h"
#include "ops/scheduler/scheduler_state.h"
#include "ops/scheduler/service.h"
#include "platform/auth/test_entities.h"
#include "platform/base/clock.h"
#include "platform/base/log.h"
#include "platform/io/system_disk.h"
#include "platform/rpc/server.h"

namespace ff::cmd {
namespace {

using Words = std::vector<std::string>;
using nlohmann::json;

constexpr uint32_t kLogsUser = 61234;  // nobody has this name
constexpr const char* kPrinted = "one\ntwo \x1b[31m\nthree\n";

// What a rank prints and ends with, by attempt.
struct Script {
  std::string prints;
  int32_t status = 0;
};
using Scripts = std::map<uint32_t, Script>;

class PlayedNode {
 public:
  PlayedNode(const auth::Key& key, const std::string& scheduler, Scripts scripts)
      : stop_(clock_),
        net_(stop_, options(key), "agent"),
        scheduler_(net_.context, net::parse_address(scheduler).value(),
                   auth::Service{auth::Role::scheduler, {}}),
        scripts_(std::move(scripts)),
        server_(net_.loop, net_.transport, router_, net_.metrics, net_.context.self),
        gate_(net_.loop) {
    rpc::add_method(router_, scheduler::kLog, *this, &PlayedNode::log,
                    auth::Roles{auth::Role::user, auth::Role::admin});
    address_ = server_.listen(net::parse_address("127.0.0.1:0").value()).value().text();
    gate_.spawn(run());
    thread_ = std::thread([this] { net_.loop.run(); });
  }
  ~PlayedNode() {
    net_.loop.post([this] { net_.loop.stop(); });
    thread_.join();
    run_task(net_.loop, gate_.close(fail(Errc::interrupted, "the end")));
    run_task(net_.loop, scheduler_.close());
    run_task(net_.loop, server_.close(0));
  }

 private:
  static net::TransportOptions options(const auth::Key& key) {
    net::TransportOptions made;
    made.mode = net::NetMode::tcp;
    made.keyring = auth::root_keyring(key, auth::Role::agent, "n1");
    return made;
  }

  Task<void> run() {
    uint64_t seen = 0;
    std::string scheduler;
    for (;;) {
      scheduler::wire::SyncRequest request;
      auto& node = *request.mutable_node();
      node.set_name("n1");
      node.set_group("default");
      node.set_zone("a\x1b");
      node.set_leaf("l1");
      node.add_marks("disk=nvme");
      node.set_address("127.0.0.1");
      node.set_agent(address_);
      request.set_scheduler(scheduler);
      request.set_seen(seen);
      for (const auto& [key, held] : held_) *request.add_held() = held;
      auto reply = co_await rpc::call_method(scheduler_, scheduler::kSync, std::move(request),
                                             net_.loop.now_ns() + 10 * kSecond);
      if (!reply && reply.error().code == Errc::interrupted) co_return;
      if (reply) {
        scheduler = reply->scheduler();
        seen = reply->version();
        for (const auto& order : reply->orders()) apply(order);
        for (auto& [key, held] : held_) {
          // It is the next report that tells of the end.
          if (held.ranks(0).state() == static_cast<uint32_t>(scheduler::RankState::running))
            seen = 0;
        }
      }
      const auto waited = co_await sleep_for(net_.loop, 20 * kMillisecond);
      if (!waited) co_return;
    }
  }
  void apply(const scheduler::wire::Order& order) {
    const auto key = std::pair(order.task(), order.attempt());
    if (static_cast<scheduler::OrderAction>(order.action()) == scheduler::OrderAction::clean_up) {
      held_.erase(key);
      return;
    }
    auto& held = held_[key];
    held.set_task(order.task());
    held.set_attempt(order.attempt());
    held.set_port(29500);
    held.set_prepared(true);
    if (held.ranks().empty()) held.add_ranks();
    auto& rank = *held.mutable_ranks(0);
    const auto state = static_cast<scheduler::RankState>(rank.state());
    const bool runs =
        static_cast<scheduler::OrderAction>(order.action()) == scheduler::OrderAction::run;
    if (runs && state == scheduler::RankState::waiting) {
      rank.set_state(static_cast<uint32_t>(scheduler::RankState::running));
    } else if (static_cast<scheduler::OrderAction>(order.action()) !=
               scheduler::OrderAction::prepare) {
      rank.set_state(static_cast<uint32_t>(scheduler::RankState::exited));
      rank.set_status(scripts_[order.attempt()].status);
    }
  }
  Task<Result<scheduler::wire::LogReply>> log(rpc::ServerCall&,
                                              scheduler::wire::LogRequest request) {
    const std::string& all = scripts_[request.attempt()].prints;
    scheduler::wire::LogReply reply;
    uint64_t from = request.offset();
    if (request.from_end()) from = all.size() - std::min<uint64_t>(all.size(), request.limit());
    from = std::min<uint64_t>(from, all.size());
    // In small pieces, which cut lines and characters.
    const uint64_t most = request.from_end() ? request.limit() : 5;
    reply.set_data(all.substr(from, most));
    reply.set_offset(from);
    reply.set_end(all.size());
    reply.set_attempt(request.attempt());
    co_return reply;
  }

  SystemClock clock_;
  StopToken stop_;
  NetClient net_;
  rpc::Client scheduler_;
  Scripts scripts_;
  rpc::Router router_;
  rpc::Server server_;
  std::string address_;
  std::map<std::pair<uint64_t, uint32_t>, scheduler::wire::Held> held_;
  Gate gate_;
  std::thread thread_;
};

class ScheduleLogs : public testing::Test {
 protected:
  void SetUp() override {
    log_setup({.level = LogLevel::error});
    io::SystemDisk disk;
    ASSERT_TRUE(auth::make_key_file(disk, dir_ / "key").ok());
    key_ = auth::read_key_file(disk, dir_ / "key").value();
    test::write_file(dir_ / "ann", auth::token_text(key_, {kLogsUser, 1}));
    std::filesystem::permissions(dir_ / "ann", std::filesystem::perms::owner_read);
    test::write_file(dir_ / "revoked", "");
    test::Launch launch;
    launch.argv = {FF_BINARY,       "schedule",     "serve", "--listen",   "127.0.0.1:0",
                   "--dir",         dir_ / "state", "--key", dir_ / "key", "--revoked-tokens",
                   dir_ / "revoked"};
    scheduler_ = std::make_unique<test::Child>(launch);
    ASSERT_TRUE(scheduler_->wait_for_out("listening on ")) << scheduler_->err;
    ASSERT_TRUE(scheduler_->wait_for_out("\n"));
    const size_t at = scheduler_->out.find("127.0.0.1:");
    address_ = scheduler_->out.substr(at, scheduler_->out.find('\n', at) - at);
  }
  test::Launch ann(Words words) {
    words.insert(words.begin(), {FF_BINARY, "schedule"});
    return {.argv = std::move(words),
            .env = {{"FF_SCHEDULER", address_}, {"FF_TOKEN_FILE", dir_ / "ann"}}};
  }

  const test::TempDir dir_;
  auth::Key key_;
  std::unique_ptr<test::Child> scheduler_;
  std::string address_;
};

TEST_F(ScheduleLogs, RunEndsAsTheTaskDoes) {
  const PlayedNode node(key_, address_, {{1, {kPrinted, 7 << 8}}});
  const auto failed = test::run(ann({"run", "train"}));
  EXPECT_EQ(failed.exit, 7) << failed.err;
  EXPECT_EQ(failed.out, kPrinted);
  const auto as_json = test::run(ann({"run", "--json", "train"}));
  EXPECT_EQ(as_json.exit, 7);
  const std::string last = as_json.out.substr(as_json.out.rfind('\n', as_json.out.size() - 2) + 1);
  EXPECT_EQ(json::parse(last)["data"]["exit"], 7) << last;

  const auto whole = test::run(ann({"logs", "1"}));
  EXPECT_EQ(whole.out, kPrinted) << whole.err;
  EXPECT_EQ(test::run(ann({"logs", "1", "-n", "1"})).out, "three\n");
  EXPECT_EQ(test::run(ann({"logs", "1", "-n", "2"})).out, "two \x1b[31m\nthree\n");
  EXPECT_EQ(test::run(ann({"logs", "1", "-n", "9"})).out, kPrinted);
  EXPECT_EQ(test::run(ann({"logs", "1", "-n", "0"})).out, "");
  auto terminal = ann({"logs", "1"});
  terminal.stdout_terminal = true;
  const auto shown = test::run(terminal);
  EXPECT_NE(shown.out.find("two \\x1b[31m"), std::string::npos) << shown.out;
  EXPECT_EQ(shown.out.find('\x1b'), std::string::npos) << shown.out;
  EXPECT_EQ(test::run(ann({"logs", "1", "--attempt", "2"})).exit, 1);

  const auto nodes = test::run(ann({"nodes"}));
  EXPECT_NE(nodes.out.find("n1\tdefault\ta\\x1b\tl1\t\t"), std::string::npos) << nodes.out;
  EXPECT_NE(nodes.out.find("disk=nvme\tnever\tfree\n"), std::string::npos) << nodes.out;
  const auto tried = test::run(ann({"show", "1"}));
  EXPECT_NE(tried.out.find("rank 0, exit 7"), std::string::npos) << tried.out;
  EXPECT_NE(tried.out.find("rank 0 exited with 7"), std::string::npos) << tried.out;
}

// x=$(ff schedule run …) has the output of the program, and no more.
TEST_F(ScheduleLogs, RunPrintsWhatTheProgramPrinted) {
  const std::string at = "2026-11-23T14:03:39.123456";
  const std::string log = at + "-00:00 ff: here begins byte 77\n" + at + "Z one\n" + at + "Z \n" +
                          at + "Z 50 %\n" + at + "+00:00  done\n" + at +
                          "-00:00 ff: 9 bytes of output were dropped here: x\n" + at +
                          "Z 2026-11-23T14:03:39.123456Z mine\n";
  const PlayedNode node(key_, address_, {{1, {log, 0}}});
  const auto plain = test::run(ann({"run", "train"}));
  EXPECT_EQ(plain.out, "one\n\n50 % done\n2026-11-23T14:03:39.123456Z mine\n") << plain.err;
  EXPECT_TRUE(test::has(plain.err, "9 bytes of output were dropped")) << plain.err;
  EXPECT_EQ(test::run(ann({"run", "--timestamps", "train"})).out, log);
}

TEST(PlainOutput, KeepsWhatAKilledShimLeft) {
  PlainOutput output;
  std::vector<std::string> messages;
  EXPECT_EQ(output.strip("2026-11-23T14:03:39.123456Z one\n2026-11-23T14:0", messages), "one");
  EXPECT_EQ(output.end_line(), "\n");
  EXPECT_EQ(output.strip("3:39.123457Z tw", messages), "");
  EXPECT_EQ(output.finish(), "tw\n");
  EXPECT_EQ(output.finish(), "");
}

TEST_F(ScheduleLogs, FollowsThroughRestarts) {
  const PlayedNode node(key_, address_, {{1, {"first\n", 9}}, {2, {"second\n", 0}}});
  ASSERT_EQ(test::run(ann({"submit", "--restart", "on-failure:1", "train"})).exit, 0);
  const auto followed = test::run(ann({"logs", "-f", "1"}));
  EXPECT_EQ(followed.exit, 0) << followed.err;
  EXPECT_EQ(followed.out, "first\nsecond\n");
  EXPECT_NE(followed.err.find("attempt 2 of task 1"), std::string::npos) << followed.err;
  EXPECT_NE(followed.err.find("waits before its restart"), std::string::npos) << followed.err;
  EXPECT_EQ(test::run(ann({"logs", "1", "--attempt", "1"})).out, "first\n");
  EXPECT_EQ(test::run(ann({"logs", "1"})).out, "second\n");
  const auto all = test::run(ann({"logs", "-a", "1"}));
  EXPECT_EQ(all.exit, 0) << all.err;
  EXPECT_EQ(all.out, "first\nsecond\n");
  EXPECT_NE(all.err.find("attempt 1 of task 1"), std::string::npos) << all.err;
  EXPECT_EQ(test::run(ann({"logs", "-a", "-f", "1"})).out, "first\nsecond\n");
  EXPECT_EQ(test::run(ann({"logs", "-a", "--attempt", "1", "1"})).exit, 2);
}

TEST_F(ScheduleLogs, ASignalIsToldAsAShellDoes) {
  const PlayedNode node(key_, address_, {{1, {"", SIGKILL}}});
  const auto killed = test::run(ann({"run", "train"}));
  EXPECT_EQ(killed.exit, 128 + SIGKILL) << killed.err;
  EXPECT_EQ(killed.out, "");
}

}  // namespace
}  // namespace ff::cmd
