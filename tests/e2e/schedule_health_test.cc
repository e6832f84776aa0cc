// Nodes and their health with real daemons: ff validate --drain, the checks that the scheduler has
// idle nodes run, and tasks that keep loads away.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "e2e/agents.h"

namespace ff::cmd {
namespace {

using nlohmann::json;
using test::has;

// A scheduler and agents, all of them programs.
class ScheduleHealth : public testing::Test {
 protected:
  void SetUp() override {
    io::SystemDisk disk;
    ASSERT_TRUE(auth::make_key_file(disk, key()).ok());
    ASSERT_TRUE(auth::make_key_file(disk, dir_ / "forged").ok());
    const auth::Key cluster = auth::read_key_file(disk, key()).value();
    test::write_file(dir_ / "token", auth::token_text(cluster, {61'234, 1}));
    std::filesystem::permissions(dir_ / "token", std::filesystem::perms::owner_read);
    test::write_file(dir_ / "bad.log", "[1.0] NVRM: Xid (PCI:0000:3b:00): 79, fell off the bus\n");
    test::write_file(dir_ / "good.log", "[1.0] Linux version 6.1.0\n");
  }
  void TearDown() override {
    if (!HasFailure()) return;
    for (auto& [name, daemon] : daemons_) {
      daemon->signal(SIGTERM);
      daemon->finish();
      std::cerr << name << ": " << daemon->out << daemon->err << "\n";
    }
  }

  std::string key() const { return dir_ / "key"; }
  void start_scheduler(const std::string& validate_every) {
    auto& scheduler = daemons_["scheduler"];
    scheduler = std::make_unique<test::Child>(
        test::Launch{.argv = {FF_BINARY, "schedule", "serve", "--listen", "127.0.0.1:0", "--dir",
                              dir_ / "s", "--key", key(), "--validate-every", validate_every}});
    ASSERT_TRUE(scheduler->wait_for_out("listening on ")) << scheduler->err;
    ASSERT_TRUE(scheduler->wait_for_out("\n"));
    const size_t at = scheduler->out.find("127.0.0.1:");
    address_ = scheduler->out.substr(at, scheduler->out.find('\n', at) - at);
  }
  void start_agent(const std::string& name, std::map<std::string, std::string> env = {}) {
    env["FF_STATE"] = dir_ / "state";
    auto& agent = daemons_[name];
    agent = std::make_unique<test::Child>(test::Launch{
        .argv = {FF_BINARY, "schedule", "agent", "--scheduler", address_, "--name", name, "--dir",
                 dir_ / name, "--task-dir", dir_ / ("tasks-" + name), "--listen", "127.0.0.1:0",
                 "--key", key(), "--validate-level", "quick"},
        .env = std::move(env)});
    ASSERT_TRUE(agent->wait_for_out("listening")) << agent->err;
    ASSERT_TRUE(test::eventually([&] { return node(name).is_object(); }));
  }

  // As the operator, unless `keys` says otherwise.
  test::ProcessResult ff(Words words, std::map<std::string, std::string> keys = {}) {
    if (keys.empty()) keys["FF_KEY"] = key();
    keys.insert({{"FF_SCHEDULER", address_}, {"FF_STATE", dir_ / "own-state"}});
    return test::run_ff(std::move(words), std::move(keys));
  }
  test::ProcessResult validate(const std::string& node, Words words) {
    words.insert(words.begin(), {"validate", "--drain", "--node", node});
    return ff(std::move(words));
  }
  Words log(const std::string& name) { return {"--only", "log", "--log", dir_ / name}; }
  json node(const std::string& name) {
    const auto ran = ff({"schedule", "nodes", "--json"});
    const json parsed = json::parse(ran.out, nullptr, false);
    if (!parsed.is_object()) return {};
    for (const json& one : parsed["data"]["nodes"]) {
      if (one["node"] == name) return one;
    }
    return {};
  }

  const test::TempDir dir_;
  std::string address_;
  std::map<std::string, std::unique_ptr<test::Child>> daemons_;
};

TEST_F(ScheduleHealth, AVerdictTakesANodeOutAndAPassingRunReturnsIt) {
  start_scheduler("never");
  start_agent("n0");
  start_agent("n1");
  EXPECT_EQ(node("n0")["state"], "free");
  EXPECT_EQ(node("n0")["validated"], nullptr);

  const auto bad = validate("n0", log("bad.log"));
  EXPECT_EQ(bad.exit, 3) << bad.err;
  EXPECT_TRUE(has(bad.err, "node n0 is drained: log.kernel")) << bad.err;
  const json out = node("n0");
  EXPECT_EQ(out["state"], "drained by verdict: log.kernel");
  EXPECT_EQ(out["usable"], false);
  EXPECT_EQ(out["drained"], false);
  EXPECT_EQ(out["drained_by_verdict"], true);
  EXPECT_EQ(out["failed"], json({"log.kernel"}));
  EXPECT_EQ(out["verdict"], "fail");
  EXPECT_TRUE(out["validated"].is_string());
  EXPECT_TRUE(has(ff({"schedule", "nodes"}).out, " ago: fail, log.kernel\t"));

  // No more than one of two.
  const auto spared = validate("n1", log("bad.log"));
  EXPECT_EQ(spared.exit, 3);
  EXPECT_TRUE(has(spared.err, "node n1 stays in service: 1 nodes are drained for failed checks"))
      << spared.err;
  EXPECT_EQ(node("n1")["state"], "free");

  const auto other = validate("n0", {"--only", "host.cpu"});
  EXPECT_EQ(other.exit, 0) << other.err;
  EXPECT_TRUE(has(other.err, "this run did not check log.kernel")) << other.err;
  EXPECT_EQ(node("n0")["drained_by_verdict"], true);
  EXPECT_EQ(validate("n0", log("none.log")).exit, 4);
  EXPECT_EQ(node("n0")["drained_by_verdict"], true);

  Words words = log("good.log");
  words.push_back("--json");
  const auto good = validate("n0", words);
  EXPECT_EQ(good.exit, 0) << good.err;
  const json told = json::parse(good.out)["data"]["scheduler"];
  EXPECT_EQ(told["effect"], "returned");
  EXPECT_EQ(told["node"], "n0");
  EXPECT_EQ(node("n0")["state"], "free");
  EXPECT_EQ(node("n0")["verdict"], "pass");
}

TEST_F(ScheduleHealth, TheOperatorsHandIsAboveAVerdict) {
  start_scheduler("never");
  start_agent("n0");
  ASSERT_EQ(ff({"schedule", "drain", "n0", "--reason", "ticket 42"}).exit, 0);
  EXPECT_EQ(validate("n0", log("bad.log")).exit, 3);
  EXPECT_EQ(node("n0")["state"], "drained: ticket 42; by verdict: log.kernel");
  const auto good = validate("n0", log("good.log"));
  EXPECT_EQ(good.exit, 0) << good.err;
  EXPECT_TRUE(has(good.err, "the operator has drained node n0: ticket 42")) << good.err;
  EXPECT_EQ(node("n0")["state"], "drained: ticket 42");
  EXPECT_EQ(validate("n0", log("bad.log")).exit, 3);
  EXPECT_EQ(ff({"schedule", "undrain", "n0"}).exit, 0);
  EXPECT_EQ(node("n0")["state"], "free");
  EXPECT_EQ(node("n0")["verdict"], "fail");
}

TEST_F(ScheduleHealth, WhoMayNotTellIsRefusedAndTheVerdictStands) {
  start_scheduler("never");
  start_agent("n0");
  const auto tell = [&](const std::string& file, std::map<std::string, std::string> keys) {
    Words words = {"validate", "--drain", "--node", "n0"};
    for (const std::string& word : log(file)) words.push_back(word);
    return ff(words, std::move(keys));
  };
  for (const auto& keys : {std::map<std::string, std::string>{{"FF_TOKEN_FILE", dir_ / "token"}},
                           {{"FF_KEY", dir_ / "forged"}},
                           {{"FF_QUIET", "0"}}}) {
    const auto good = tell("good.log", keys);
    EXPECT_EQ(good.exit, 5) << good.err;
    EXPECT_TRUE(has(good.err, "could not report to the scheduler: ")) << good.err;
    const auto bad = tell("bad.log", keys);
    EXPECT_EQ(bad.exit, 3) << bad.err;
    EXPECT_TRUE(has(bad.err, "warning: could not report to the scheduler: ")) << bad.err;
    EXPECT_EQ(node("n0")["state"], "free");
    EXPECT_EQ(node("n0")["validated"], nullptr);
  }
}

TEST_F(ScheduleHealth, WhatCannotBeToldIsSaid) {
  start_scheduler("never");
  start_agent("n0");
  const auto unknown = validate("n7", log("good.log"));
  EXPECT_EQ(unknown.exit, 1);
  EXPECT_TRUE(has(unknown.err, "there is no node n7")) << unknown.err;
  EXPECT_TRUE(has(unknown.err, "ff schedule nodes")) << unknown.err;
  Words words = log("good.log");
  words.insert(words.end(), {"--scheduler", "127.0.0.1:1"});
  const auto away = validate("n0", words);
  EXPECT_EQ(away.exit, 1);
  EXPECT_TRUE(has(away.err, "no scheduler answers at 127.0.0.1:1")) << away.err;
  EXPECT_EQ(validate("n0", {"--only", "log", "--scheduler", "nowhere"}).exit, 2);
  const auto tree = ff({"validate", "--drain", "--root", dir_ / "tree"});
  EXPECT_EQ(tree.exit, 2);
  EXPECT_TRUE(has(tree.err, "--node")) << tree.err;
}

TEST_F(ScheduleHealth, MistakesAreNamed) {
  for (const auto& [words, said] :
       {std::pair<Words, std::string>{{"--max-drained", "101%"}, "0% and 100%"},
        {{"--max-drained", "some"}, "'some'"},
        {{"--max-drained", "-1"}, "'-1'"},
        {{"--validate-every", "weekly"}, "weekly"}}) {
    Words line = {"schedule", "serve", "--dir", dir_ / "s", "--listen", "127.0.0.1:0"};
    line.insert(line.end(), words.begin(), words.end());
    const auto ran = test::run_ff(line);
    EXPECT_EQ(ran.exit, 2) << words[1];
    EXPECT_TRUE(has(ran.err, said)) << ran.err;
  }
}

// Its kernel's log, of which the machine has forgotten the beginning, tells of a GPU.
std::map<std::string, std::string> sick_machine(const test::TempDir& dir) {
  test::write_file(dir / "bin/journalctl",
                   "#!/bin/sh\n[ -e " + (dir / "well") +
                       " ] || echo \"$(date -d '-156 hours' +%Y-%m-%dT%H:%M:%S.000000%:z) host "
                       "kernel: NVRM: Xid (PCI:0000:3b:00): 48, DBE\"\n");
  std::filesystem::permissions(dir / "bin/journalctl", std::filesystem::perms::all);
  return {{"PATH", dir / "bin" + ":/usr/bin:/bin"}};
}

TEST_F(ScheduleHealth, AnIdleNodeRunsItsChecksAndIsDrainedAndReturnedByThem) {
  double up = 0;
  std::istringstream(test::read_file("/proc/uptime")) >> up;
  if (up > 6 * 86'400) GTEST_SKIP() << "the kernel remembers a week";
  start_scheduler("1s");
  start_agent("n0", sick_machine(dir_));
  ASSERT_TRUE(test::eventually([&] { return node("n0")["state"] == "validating"; }));
  EXPECT_EQ(node("n0")["usable"], false);
  ASSERT_TRUE(test::eventually([&] { return node("n0")["validated"].is_string(); }));
  const json out = node("n0");
  EXPECT_EQ(out["drained_by_verdict"], true) << out;
  EXPECT_EQ(out["verdict"], "fail") << out;
  EXPECT_EQ(out["failed"][0], "log.kernel") << out;
  // What the agent runs is recorded where cron's runs are.
  const auto report =
      test::run_ff({"validate", "report", "--json"}, {{"FF_STATE", dir_ / "state"}});
  EXPECT_GE(json::parse(report.out)["data"]["runs"].size(), 1u);

  // Repaired, it is found well by its next run, and returns unless this machine has other faults.
  test::write_file(dir_ / "well", "");
  json well;
  EXPECT_TRUE(test::eventually([&] {
    well = node("n0");
    return std::ranges::find(well["failed"], "log.kernel") == well["failed"].end();
  })) << well;
  EXPECT_EQ(well["drained_by_verdict"], !well["failed"].empty()) << well;
}

// The runs of `ff validate` that the agent has started. A process that still is to become one does
// not yet end with its parent, and has the words of the agent, such as --validate-level.
std::set<pid_t> checks_of(pid_t agent) {
  std::set<pid_t> found;
  const std::string pid = std::to_string(agent);
  const std::string run("validate\0run", sizeof "validate run" - 1);
  std::istringstream all(test::read_file("/proc/" + pid + "/task/" + pid + "/children"));
  for (pid_t child = 0; all >> child;) {
    if (has(test::read_file("/proc/" + std::to_string(child) + "/cmdline"), run)) {
      found.insert(child);
    }
  }
  return found;
}

bool lives(pid_t pid) {
  const std::string stat = test::read_file("/proc/" + std::to_string(pid) + "/stat");
  return !stat.empty() && !has(stat, ") Z ");
}

TEST_F(ScheduleHealth, ChecksEndWithTheirAgentAndAreRunAgain) {
  start_scheduler("1s");
  start_agent("n0");
  for (const int signal : {SIGKILL, SIGTERM}) {
    std::set<pid_t> checks;
    ASSERT_TRUE(test::eventually([&] {
      checks = checks_of(daemons_["n0"]->pid());
      return !checks.empty();
    }));
    // They do not just come to their own end.
    for (const pid_t pid : checks) ::kill(pid, SIGSTOP);
    daemons_["n0"]->signal(signal);
    daemons_["n0"]->finish();
    for (const pid_t pid : checks) {
      EXPECT_TRUE(test::eventually([&] { return !lives(pid); })) << signal;
      ::kill(pid, SIGKILL);
    }
    start_agent("n0");
  }
  EXPECT_TRUE(test::eventually([&] { return node("n0")["validated"].is_string(); }));
}

TEST_F(AgentsTest, ARankKeepsLoadsAway) {
  start_scheduler();
  start_agent("n0");
  (void)submit(script("echo $$ >$OUT/pid; exec sleep 1000"));
  (void)pid_of("pid");
  const auto ran = test::run_ff({"validate", "--only", "cpu"}, {{"FF_STATE", dir_ / "state"}});
  EXPECT_EQ(ran.exit, 4) << ran.out << ran.err;
  EXPECT_TRUE(has(ran.out, "a task of 'ff schedule'")) << ran.out;
}

}  // namespace
}  // namespace ff::cmd
