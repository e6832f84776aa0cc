// ff schedule agent as real processes: tasks from their order to their end, and everything that can
// be killed meanwhile.
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "e2e/agents.h"
#include "ops/shim/rank_log.h"

namespace ff::cmd {
namespace {

using scheduler::StopReason;
using scheduler::TaskControl;
using scheduler::TaskOutcome;
using scheduler::TaskPhase;

constexpr const char* kWaits = "echo $$ >$OUT/pid; while [ ! -e $OUT/go ]; do sleep 0.05; done";

TaskOutcome outcome(const wire::Task& task) { return static_cast<TaskOutcome>(task.outcome()); }

// Of `env -0` and the like.
std::set<std::string> parts(const std::string& text) {
  std::set<std::string> all;
  for (const auto part : split(text, '\0')) all.emplace(part);
  return all;
}

TEST_F(AgentsTest, ARankHasItsUserItsWordsAndItsPlace) {
  start_scheduler();
  start_agent("n0", {"--address", "127.0.0.1", "--label", "gpu=h200", "--zone", "east"});
  const Words words = {"two words", "a'b\"c$d", "line\nbreak", ""};
  wire::Spec spec = script(
      "id -u >$OUT/uid.$RANK; id -G >$OUT/gids.$RANK; pwd >$OUT/cwd.$RANK;"
      "printf '%s\\0' \"$@\" >$OUT/args.$RANK; env -0 >$OUT/env.$RANK;"
      "stat -c '%a %u' $FF_TASK_DIR $FF_KEY_FILE >$OUT/modes.$RANK;"
      "cat $FF_KEY_FILE >$OUT/key.$RANK",
      words);
  spec.set_processes(2);
  spec.add_marks("gpu=h200");
  spec.set_cwd("/usr");
  spec.add_env("FF_TOKEN_FILE=/home/me/token");
  spec.add_env("FF_KEY=/etc/ff/key");
  spec.add_env("RANK=99");
  spec.add_env("MINE=line\nbreak");
  const uint64_t id = submit(spec);
  const wire::Task task = finished(id);
  EXPECT_EQ(outcome(task), TaskOutcome::succeeded) << task.outcome_text();
  std::string args;
  for (const std::string& word : words) args += word + '\0';
  const wire::Attempt attempt = last_attempt(id);
  for (const std::string rank : {"0", "1"}) {
    EXPECT_EQ(out("uid." + rank), "65534\n");
    EXPECT_EQ(out("gids." + rank), "65534\n");
    EXPECT_EQ(out("cwd." + rank), "/usr\n");
    EXPECT_EQ(out("args." + rank), args);
    EXPECT_EQ(out("modes." + rank), "700 65534\n600 65534\n");
    const auto env = parts(out("env." + rank));
    const std::string tasks = dir_ / "tasks-n0";
    for (const std::string& variable :
         {std::string("WORLD_SIZE=2"), "RANK=" + rank, "LOCAL_RANK=" + rank,
          std::string("LOCAL_WORLD_SIZE=2"), std::string("NNODES=1"), std::string("NODE_RANK=0"),
          std::string("MASTER_ADDR=127.0.0.1"), fmt::format("MASTER_PORT={}", attempt.port()),
          fmt::format("FF_TASK={}", id), fmt::format("FF_TASK_RANK={}.1.{}", id, rank),
          fmt::format("FF_TASK_DIR={}/{}.1", tasks, id),
          fmt::format("FF_KEY_FILE={}/{}.1/key", tasks, id), std::string("FF_ZONE=east"),
          std::string("MINE=line\nbreak")}) {
      EXPECT_TRUE(env.contains(variable)) << variable;
    }
    for (const std::string& variable : env) {
      EXPECT_FALSE(variable.starts_with("FF_TOKEN")) << variable;
      EXPECT_FALSE(variable.starts_with("FF_KEY=")) << variable;
    }
    EXPECT_EQ(out("key." + rank).size(), 65u);
    EXPECT_EQ(out("key." + rank).find(hex(*key_)), std::string::npos);
  }
  EXPECT_EQ(out("key.0"), out("key.1"));
  EXPECT_GE(attempt.port(), 1024u);
  // The agent keeps the log, and nothing else.
  until("the attempt is put away", [&] { return attempts_of("n0") == 0; });
  EXPECT_FALSE(std::filesystem::exists(dir_ / ("tasks-n0/" + fmt::format("{}.1", id))));
}

// The agent of root runs it: nothing of root's environment is there.
TEST_F(AgentsTest, ATaskWithoutVariablesHasThoseOfALogin) {
  start_scheduler();
  start_agent("n0", {}, {{"SECRET_OF_ROOT", "1"}, {"FF_SECRET_OF_ROOT", "1"}});
  wire::Spec spec = script("env -0 >$1/env", {out_});
  spec.clear_env();
  const wire::Task task = finished(submit(spec));
  EXPECT_EQ(outcome(task), TaskOutcome::succeeded) << task.outcome_text();
  const passwd* const nobody = ::getpwuid(kNobodyUid);
  ASSERT_NE(nobody, nullptr);
  const auto env = parts(out("env"));
  for (const std::string& variable :
       {fmt::format("HOME={}", nobody->pw_dir), fmt::format("USER={}", nobody->pw_name),
        fmt::format("LOGNAME={}", nobody->pw_name), fmt::format("SHELL={}", nobody->pw_shell),
        std::string("PATH=/usr/local/bin:/usr/bin:/bin")}) {
    EXPECT_TRUE(env.contains(variable)) << variable;
  }
  // The shell adds PWD, SHLVL, OLDPWD and _; all others are of the node.
  const std::set<std::string> shell = {"PWD", "OLDPWD", "SHLVL", "_"};
  const std::set<std::string> node = {
      "HOME",        "USER",       "LOGNAME",          "SHELL",  "PATH",      "WORLD_SIZE",
      "RANK",        "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NNODES", "NODE_RANK", "MASTER_ADDR",
      "MASTER_PORT", "FF_ZONE"};
  for (const std::string& variable : env) {
    const std::string name = variable.substr(0, variable.find('='));
    EXPECT_TRUE(name.empty() || shell.contains(name) || node.contains(name) ||
                name.starts_with("FF_TASK") || name == "FF_KEY_FILE")
        << variable;
  }
}

TEST_F(AgentsTest, UsersReachTheirFoldersWhateverTheUmask) {
  start_scheduler();
  const mode_t before = ::umask(077);
  start_agent("n0", {"--task-dir", dir_ / "new/tasks"});
  ::umask(before);
  const wire::Task task = finished(submit(script("stat -c %u $FF_TASK_DIR >$OUT/owner")));
  EXPECT_EQ(outcome(task), TaskOutcome::succeeded) << task.outcome_text();
  EXPECT_EQ(out("owner"), "65534\n");
}

TEST_F(AgentsTest, HowARankEnds) {
  start_scheduler();
  start_agent("n0");
  EXPECT_EQ(outcome(finished(submit(script("exit 0")))), TaskOutcome::succeeded);
  const wire::Task seven = finished(submit(script("exit 7")));
  EXPECT_EQ(outcome(seven), TaskOutcome::failed);
  EXPECT_EQ(seven.attempts(0).status(), 7 << 8);
  EXPECT_EQ(finished(submit(script("kill -SEGV $$"))).attempts(0).status() & 0x7f, SIGSEGV);
  wire::Spec none = script("");
  none.set_argv(0, "/no/such/program");
  EXPECT_EQ(finished(submit(none)).attempts(0).status(), 127 << 8);
  // One of two ranks: it is named, and the other is ended.
  wire::Spec two = script("[ $RANK = 1 ] && exit 5; exec sleep 1000");
  two.set_processes(2);
  const wire::Task five = finished(submit(two));
  EXPECT_EQ(five.attempts(0).status_rank(), 1u);
  EXPECT_EQ(five.attempts(0).status(), 5 << 8);
}

TEST_F(AgentsTest, WhoCannotRunHereIsToldWhy) {
  start_scheduler();
  start_agent("n0");
  const wire::Task unknown = finished(submit(script("exit 0"), 4'123'456));
  EXPECT_EQ(outcome(unknown), TaskOutcome::failed);
  EXPECT_EQ(static_cast<StopReason>(unknown.attempts(0).stop()), StopReason::unprepared);
  EXPECT_NE(unknown.outcome_text().find("this node has no user with uid 4123456"),
            std::string::npos)
      << unknown.outcome_text();
  wire::Spec nowhere = script("exit 0");
  nowhere.set_cwd("/no/such/folder");
  EXPECT_NE(finished(submit(nowhere)).outcome_text().find("/no/such/folder"), std::string::npos);
  // There, but not for this user.
  ASSERT_EQ(::mkdir((dir_ / "private").c_str(), 0700), 0);
  wire::Spec closed = script("exit 0");
  closed.set_cwd(dir_ / "private");
  EXPECT_NE(finished(submit(closed)).outcome_text().find("Permission denied"), std::string::npos);
  EXPECT_EQ(outcome(finished(submit(script("exit 0")))), TaskOutcome::succeeded);
}

TEST_F(AgentsTest, ATaskThatIsAskedSavesAndLeaves) {
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(script(
      "cd $FF_TASK_DIR; echo 7 >heartbeat.0; echo 5 >life_state; echo ready >$OUT/ready;"
      "while [ ! -e stop ]; do sleep 0.05; done; cat stop >$OUT/stop; : >ack; echo 41 >saved;"
      "while [ ! -e $OUT/go ]; do sleep 0.05; done; echo 42 >saved"));
  until("it runs", [&] { return has_out("ready"); });
  control(id, TaskControl::stop);
  until("it has said that it saves", [&] { return last_attempt(id).acked() != 0; });
  until("a step is saved", [&] { return last_attempt(id).saved_step() == 41; });
  EXPECT_EQ(task(id).life_state(), 5u);
  EXPECT_TRUE(is_in(id, TaskPhase::stopping));
  put_out("go");
  const wire::Task task = finished(id);
  EXPECT_EQ(outcome(task), TaskOutcome::stopped);
  EXPECT_EQ(task.attempts(0).saved_step(), 42u);
  EXPECT_EQ(task.attempts(0).terminated(), 0);
  EXPECT_TRUE(out("stop").starts_with("stopped 1")) << out("stop");
}

TEST_F(AgentsTest, TheNextAttemptHasTheWordOfTheLast) {
  start_scheduler();
  start_agent("n0");
  wire::Spec spec = script(
      "cat $FF_TASK_DIR/life_state >$OUT/word.$FF_TASK_RANK; echo 77 >$FF_TASK_DIR/life_state;"
      "[ $FF_TASK_ATTEMPT = 2 ] || exit 1");
  spec.set_restarts(1);
  const uint64_t id = submit(spec);
  const wire::Task task = finished(id);
  EXPECT_EQ(outcome(task), TaskOutcome::succeeded);
  EXPECT_EQ(out(fmt::format("word.{}.2.0", id)), "77\n");
}

TEST_F(AgentsTest, ARankMayAskToBeStartedAgain) {
  start_scheduler();
  start_agent("n0");
  wire::Spec spec = script("[ $FF_TASK_ATTEMPT = 3 ] || exit 75");
  spec.set_restart_on(75);
  const uint64_t asks = submit(spec);
  spec.set_restart_on(74);
  const uint64_t fails = submit(spec);
  const wire::Task task = finished(asks);
  EXPECT_EQ(outcome(task), TaskOutcome::succeeded);
  EXPECT_EQ(task.attempts_made(), 3u);
  EXPECT_EQ(task.failures(), 0u);
  EXPECT_EQ(outcome(finished(fails)), TaskOutcome::failed);
}

TEST_F(AgentsTest, ASignalAsksToo) {
  start_scheduler();
  start_agent("n0");
  wire::Spec spec = script(
      "trap 'cp $FF_TASK_DIR/stop $OUT/stop; exit 0' USR1; echo $$ >$OUT/pid;"
      "while :; do sleep 0.05; done");
  spec.set_signal(SIGUSR1);
  const uint64_t id = submit(spec);
  (void)pid_of("pid");
  control(id, TaskControl::stop);
  EXPECT_EQ(finished(id).attempts(0).terminated(), 0);
  EXPECT_TRUE(out("stop").starts_with("stopped 1"));
}

TEST_F(AgentsTest, WhoDoesNotAnswerIsTerminated) {
  timeouts_.ack_ns = 200 * kMillisecond;
  start_scheduler();
  start_agent("n0");
  const uint64_t id =
      submit(script("trap 'echo term >$OUT/term; exit 3' TERM;"
                    "echo $$ >$OUT/pid; while :; do sleep 0.05; done"));
  (void)pid_of("pid");
  control(id, TaskControl::stop);
  const wire::Task task = finished(id);
  EXPECT_EQ(outcome(task), TaskOutcome::stopped);
  EXPECT_EQ(out("term"), "term\n");
  EXPECT_NE(task.attempts(0).terminated(), 0);
  EXPECT_EQ(task.attempts(0).killed(), 0);
}

TEST_F(AgentsTest, WhoDoesNotObeyIsKilled) {
  timeouts_.ack_ns = timeouts_.term_ns = 200 * kMillisecond;
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(
      script("trap '' TERM; setsid sh -c 'echo $$ >$OUT/other; while :; do sleep 0.05; done' &"
             "echo $$ >$OUT/pid; while :; do sleep 0.05; done"));
  const pid_t pid = pid_of("pid"), other = pid_of("other");
  control(id, TaskControl::stop);
  EXPECT_NE(finished(id).attempts(0).killed(), 0);
  EXPECT_TRUE(is_gone(pid));
  EXPECT_TRUE(is_gone(other));
}

TEST_F(AgentsTest, AKilledAgentFindsItsRanksAgain) {
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(script(std::string(kWaits) + "; exit 9"));
  const pid_t pid = pid_of("pid");
  until("it is known to run", [&] { return is_in(id, TaskPhase::running); });
  kill_agent("n0");
  start_agent("n0");
  run_for(500 * kMillisecond);
  EXPECT_FALSE(is_gone(pid));
  EXPECT_EQ(task(id).attempts_made(), 1u);
  // And when it ends while there is no agent.
  kill_agent("n0");
  put_out("go");
  until("it has ended", [&] { return is_gone(pid); });
  start_agent("n0");
  const wire::Task task = finished(id);
  EXPECT_EQ(task.attempts_made(), 1u);
  EXPECT_EQ(task.attempts(0).status(), 9 << 8);
}

// At any moment, again and again: no rank runs twice, none is forgotten.
TEST_F(AgentsTest, AnAgentThatIsKilledAllTheTime) {
  start_scheduler();
  start_agent("n0");
  constexpr int kTasks = 6;
  std::vector<uint64_t> ids;
  for (int i = 0; i < kTasks; i++) {
    wire::Spec spec = script("echo $FF_TASK_RANK >>$OUT/runs; sleep 0.2");
    spec.set_processes(2);
    ids.push_back(submit(spec));
  }
  const uint64_t seed = system_seed();
  SeededRng rng(seed);
  until(fmt::format("all are finished, seed {}", seed), [&] {
    run_for(static_cast<int64_t>(rng.below(600)) * kMillisecond);
    kill_agent("n0");
    start_agent("n0");
    return std::ranges::all_of(ids, [&](uint64_t id) { return is_in(id, TaskPhase::finished); });
  });
  std::multiset<std::string> expected, runs;
  for (const uint64_t id : ids) {
    EXPECT_EQ(outcome(task(id)), TaskOutcome::succeeded) << task(id).outcome_text();
    for (const int rank : {0, 1}) expected.insert(fmt::format("{}.1.{}", id, rank));
  }
  const std::string text = out("runs");
  for (const auto line : split(text, '\n')) {
    if (!line.empty()) runs.emplace(line);
  }
  EXPECT_EQ(runs, expected);
}

TEST_F(AgentsTest, AKilledShimLosesItsRank) {
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(script(kWaits));
  const pid_t pid = pid_of("pid");
  const auto dirs = rank_dirs();
  ASSERT_EQ(dirs.size(), 1u);
  const auto state = shim::read_state(disk_, dirs[0]);
  ASSERT_TRUE(state.ok() && state->running);
  ASSERT_EQ(::kill(state->running->shim.pid, SIGKILL), 0);
  until("it starts anew", [&] { return task(id).attempts_made() == 2; });
  EXPECT_TRUE(is_gone(pid));
  put_out("go");
  const wire::Task task = finished(id);
  EXPECT_EQ(outcome(task), TaskOutcome::succeeded);
  EXPECT_EQ(task.failures(), 0u);
}

TEST_F(AgentsTest, ASchedulerThatIsAwayForAWhileIsNotMissed) {
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(script(kWaits));
  const pid_t pid = pid_of("pid");
  until("it is known to run", [&] { return is_in(id, TaskPhase::running); });
  stop_scheduler();
  run_for(kSecond);
  start_scheduler();
  until("the agent is back", [&] {
    const auto nodes = call(scheduler::kNodes, wire::NodesRequest());
    return nodes.ok() && nodes->nodes(0).heard() >= 0;
  });
  EXPECT_FALSE(is_gone(pid));
  put_out("go");
  const wire::Task task = finished(id);
  EXPECT_EQ(outcome(task), TaskOutcome::succeeded);
  EXPECT_EQ(task.attempts_made(), 1u);
}

TEST_F(AgentsTest, RanksEndWithTheLease) {
  timeouts_.lease_ns = 4 * kSecond;
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(script(std::string("trap '' TERM; ") + kWaits));
  const pid_t pid = pid_of("pid");
  until("it is known to run", [&] { return is_in(id, TaskPhase::running); });
  stop_scheduler();
  until("the lease is over", [&] { return is_gone(pid); });
  start_scheduler();
  put_out("go");
  const wire::Task task = finished(id);
  // It was not its own doing.
  EXPECT_EQ(outcome(task), TaskOutcome::succeeded);
  EXPECT_EQ(task.attempts_made(), 2u);
  EXPECT_EQ(task.failures(), 0u);
  EXPECT_EQ(task.attempts(0).stop(), static_cast<uint32_t>(StopReason::node_lost));
}

// Nothing runs twice, also where no agent is left to end it.
TEST_F(AgentsTest, RanksEndWithTheLeaseWithoutAnAgent) {
  timeouts_.lease_ns = 4 * kSecond;
  timeouts_.term_ns = kSecond;
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(script(std::string("trap '' TERM; ") + kWaits));
  const pid_t pid = pid_of("pid");
  until("it is known to run", [&] { return is_in(id, TaskPhase::running); });
  kill_agent("n0");
  bool was_gone = false;
  until("it is given up", [&] {
    was_gone = is_gone(pid);
    return is_in(id, TaskPhase::queued);
  });
  EXPECT_TRUE(was_gone);
  EXPECT_NE(test::read_file(agent_dir("n0") + fmt::format("/attempts/{}.1/0.log", id))
                .find("the lease has expired without contact"),
            std::string::npos);
  put_out("go");
  start_agent("n1");
  const wire::Task task = finished(id);
  EXPECT_EQ(outcome(task), TaskOutcome::succeeded);
  EXPECT_EQ(task.attempts_made(), 2u);
}

TEST_F(AgentsTest, AnAgentThatCannotKnowOfItsLeaseKills) {
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(script(kWaits));
  const pid_t pid = pid_of("pid");
  until("it is known to run", [&] { return is_in(id, TaskPhase::running); });
  kill_agent("n0");
  stop_scheduler();
  // A lease that holds: it goes on.
  start_agent("n0");
  run_for(kSecond);
  EXPECT_FALSE(is_gone(pid));
  kill_agent("n0");
  // One of another boot.
  const std::string path = agent_dir("n0") + "/lease";
  const auto lease = shim::read_lease(disk_, path, shim::boot_id(disk_).value());
  ASSERT_TRUE(lease.has_value());
  shim::RankLease other = *lease;
  other.boot = "other";
  test::write_file(path, shim::lease_text(other));
  start_agent("n0");
  until("it is killed", [&] { return is_gone(pid); });
}

TEST_F(AgentsTest, WhatWasOnlyPreparedGoesWithoutATrace) {
  start_scheduler();
  start_agent("n0");
  wire::Spec spec = script("echo run >$OUT/run");
  spec.set_nodes(2);
  const uint64_t id = submit(spec);
  // The other node of the gang says that it cannot.
  wire::SyncRequest other;
  other.mutable_node()->set_name("n1");
  other.mutable_node()->set_group("default");
  other.mutable_node()->set_zone("default");
  other.mutable_node()->set_address("127.0.0.1");
  other.set_boot("b");
  EXPECT_TRUE(call(scheduler::kSync, other).ok());
  until("both have it", [&] {
    other.set_seen(0);
    const auto reply = call(scheduler::kSync, other);
    return reply.ok() && reply->orders_size() > 0 && attempts_of("n0") == 1;
  });
  wire::Held& held = *other.add_held();
  held.set_task(id);
  held.set_attempt(1);
  held.set_text("no room");
  EXPECT_TRUE(call(scheduler::kSync, other).ok());
  until("it is taken away", [&] { return attempts_of("n0") == 0; });
  other.clear_held();
  EXPECT_TRUE(call(scheduler::kSync, other).ok());
  const wire::Task task = finished(id);
  EXPECT_EQ(static_cast<StopReason>(task.attempts(0).stop()), StopReason::unprepared);
  EXPECT_FALSE(has_out("run"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "tasks-n0"));
}

TEST_F(AgentsTest, TwoNodesAreOneGang) {
  start_scheduler();
  start_agent("n0", {"--leaf", "a"});
  start_agent("n1", {"--leaf", "b"});
  wire::Spec spec = script(
      "echo \"$NODE_RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT\" >$OUT/rank.$RANK;"
      "cat $FF_KEY_FILE >$OUT/key.$RANK");
  spec.set_nodes(2);
  spec.set_processes(2);
  const uint64_t id = submit(spec);
  EXPECT_EQ(outcome(finished(id)), TaskOutcome::succeeded);
  const uint32_t port = last_attempt(id).port();
  for (uint32_t rank = 0; rank < 4; rank++) {
    EXPECT_EQ(out(fmt::format("rank.{}", rank)),
              fmt::format("{} {} 4 127.0.0.1 {}\n", rank / 2, rank % 2, port));
    EXPECT_EQ(out(fmt::format("key.{}", rank)), out("key.0"));
  }
}

TEST_F(AgentsTest, AFullDiskHaltsNothing) {
  ASSERT_EQ(::mkdir(agent_dir("n0").c_str(), 0711), 0);
  if (::mount("none", agent_dir("n0").c_str(), "tmpfs", 0, "size=1m,mode=0711") != 0) {
    GTEST_SKIP() << "no file system can be mounted here";
  }
  start_scheduler();
  start_agent("n0");
  const uint64_t first = submit(script(kWaits));
  (void)pid_of("pid");
  until("it is known to run", [&] { return is_in(first, TaskPhase::running); });
  {
    const auto file =
        disk_.open(agent_dir("n0") + "/full", {.access = io::AccessMode::write, .create = true});
    ASSERT_TRUE(file.ok());
    const std::string bytes(4096, 'x');
    uint64_t at = 0;
    while ((*file)->write_at(as_bytes(bytes), at).ok()) at += bytes.size();
  }
  control(first, TaskControl::stop);
  timeouts_.ack_ns = 0;
  stop_scheduler();
  start_scheduler();
  // Its shim waits for room to say that it has ended; the agent goes on.
  pid_t pid = pid_of("pid");
  until("it is terminated", [&] { return is_gone(pid); });
  ASSERT_EQ(::unlink((agent_dir("n0") + "/full").c_str()), 0);
  EXPECT_EQ(outcome(finished(first)), TaskOutcome::stopped);
  EXPECT_EQ(outcome(finished(submit(script("exit 0")))), TaskOutcome::succeeded);
  kill_agent("n0");
  ::umount2(agent_dir("n0").c_str(), MNT_DETACH);
}

// Logs. -------------------------------------------------------------------------------------------

class AgentLogsTest : public AgentsTest {
 protected:
  // Where the node's agent answers, asked with a key or a token.
  std::string agent_address() {
    if (!agent_address_.empty()) return agent_address_;
    until("the agent has told where it answers", [&] {
      const auto nodes = call(scheduler::kNodes, wire::NodesRequest());
      if (nodes && nodes->nodes_size() > 0) agent_address_ = nodes->nodes(0).node().agent();
      return !agent_address_.empty();
    });
    return agent_address_;
  }
  Result<wire::LogReply> ask(auth::Entity self, wire::LogRequest request) {
    const auth::Entity agent{.role = auth::Role::agent, .name = "n0"};
    const int64_t expires_s = loop_.clock().wall_ns() / kSecond + auth::kTicketSeconds;
    auto keyring = std::make_shared<auth::Keyring>(self);
    keyring->add_ticket(agent, auth::make_ticket(*key_, agent, self, expires_s), expires_s);
    net::SystemTransport transport({.mode = net::NetMode::tcp, .keyring = std::move(keyring)});
    rpc::ClientContext context{loop_, transport, grants_, metrics_, rng_, identity()};
    rpc::Client client(context, net::parse_address(agent_address()).value(),
                       auth::Service{auth::Role::agent, "n0"});
    auto reply = run_task(loop_, rpc::call_method(client, scheduler::kLog, std::move(request),
                                                  loop_.now_ns() + 10 * kSecond));
    run_task(loop_, client.close());
    run_task(loop_, transport.drain(loop_));
    return reply;
  }
  Result<wire::LogReply> log(wire::LogRequest request) {
    return ask(auth::admin_entity("test"), std::move(request));
  }
  Result<wire::LogReply> log_as(uint32_t uid, wire::LogRequest request) {
    const auth::TokenId user{.uid = uid, .serial = 1};
    return ask(auth::user_entity(user), std::move(request));
  }

  std::string agent_address_;
};

TEST_F(AgentLogsTest, ATokenThatWasWithdrawnReadsNothing) {
  bool is_withdrawn = true;
  check_token_ = [&](auth::TokenId token) -> Task<Result<void>> {
    if (!is_withdrawn || token.uid != kNobodyUid) co_return Result<void>();
    co_return fail(Errc::refused, "the token was withdrawn");
  };
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(script("echo one"));
  (void)finished(id);
  wire::LogRequest request;
  request.set_task(id);
  const auto refused = log_as(kNobodyUid, request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_NE(refused.error().message.find("withdrawn"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(log(request).ok());
  is_withdrawn = false;
  const auto reply = log_as(kNobodyUid, request);
  EXPECT_TRUE(reply.ok()) << reply.error().message;
}

TEST_F(AgentLogsTest, WhatWasValidIsAskedAgain) {
  bool is_withdrawn = false;
  check_token_ = [&](auth::TokenId) -> Task<Result<void>> {
    if (!is_withdrawn) co_return Result<void>();
    co_return fail(Errc::refused, "the token was withdrawn");
  };
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(script("echo one"));
  (void)finished(id);
  wire::LogRequest request;
  request.set_task(id);
  ASSERT_TRUE(log_as(kNobodyUid, request).ok());
  is_withdrawn = true;
  std::optional<Error> refused;
  until("the agent has asked again", [&] {
    const auto reply = log_as(kNobodyUid, request);
    if (!reply) refused = reply.error();
    return refused.has_value();
  });
  EXPECT_EQ(refused->code, Errc::refused) << refused->message;
  EXPECT_TRUE(log(request).ok());
}

TEST_F(AgentLogsTest, WithoutTheSchedulerNoTokenIsValid) {
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(script("echo one"));
  (void)finished(id);
  wire::LogRequest request;
  request.set_task(id);
  ASSERT_TRUE(log(request).ok());
  stop_scheduler();
  EXPECT_FALSE(log_as(kNobodyUid, request).ok());
  EXPECT_TRUE(log(request).ok());  // the operator has no token
  start_scheduler();
  until("the agent has found the scheduler", [&] { return log_as(kNobodyUid, request).ok(); });
}

TEST_F(AgentLogsTest, FromAnywhereToTheEnd) {
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(
      script("echo one; echo two; echo $$ >$OUT/pid; while [ ! -e $OUT/go ]; do sleep 0.05; done;"
             "echo three"));
  (void)pid_of("pid");
  wire::LogRequest request;
  request.set_task(id);
  request.set_limit(1000);
  std::string text;
  until("two lines are there", [&] {
    const auto reply = log(request);
    if (reply) text = reply->data();
    EXPECT_FALSE(reply && reply->ended());
    return text.ends_with("Z two\n");
  });
  request.set_offset(text.size());
  put_out("go");
  (void)finished(id);
  auto reply = log(request);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_TRUE(reply->data().ends_with("Z three\n"));
  EXPECT_EQ(reply->offset(), text.size());
  EXPECT_EQ(reply->end(), text.size() + reply->data().size());
  EXPECT_TRUE(reply->ended());
  EXPECT_EQ(reply->attempt(), 1u);
  // The same once it is put away.
  until("the attempt is put away", [&] { return attempts_of("n0") == 0; });
  request.set_from_end(true);
  request.set_limit(6);
  reply = log(request);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->data(), "three\n");
  EXPECT_TRUE(reply->ended());
  request.set_attempt(2);
  EXPECT_EQ(log(request).error().code, Errc::not_found);
  request.set_attempt(1);
  request.set_rank(1);
  EXPECT_EQ(log(request).error().code, Errc::not_found);
}

TEST_F(AgentLogsTest, OfTheOwnerAlone) {
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(script("echo secret"));
  (void)finished(id);
  wire::LogRequest request;
  request.set_task(id);
  request.set_limit(1000);
  const auto own = log_as(kNobodyUid, request);
  ASSERT_TRUE(own.ok()) << own.error().message;
  EXPECT_NE(own->data().find("secret"), std::string::npos);
  EXPECT_EQ(log_as(1234, request).error().code, Errc::refused);
  EXPECT_EQ(log_as(0, request).error().code, Errc::refused);
}

TEST_F(AgentLogsTest, ALogOfSeveralFilesIsOne) {
  start_scheduler();
  start_agent("n0");
  // More than one file holds, and less than the rate allows at once.
  const uint64_t id = submit(script("seq 1 100000"));
  (void)finished(id);
  wire::LogRequest request;
  request.set_task(id);
  request.set_limit(100'000);
  std::string text;
  for (bool ended = false; !ended;) {
    request.set_offset(text.size());
    const auto reply = log(request);
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    ASSERT_EQ(reply->offset(), text.size());
    text += reply->data();
    ended = reply->ended();
  }
  uint64_t next = 1, files = 1;
  for (const auto line : split(text, '\n')) {
    if (line.empty()) continue;
    const auto parsed = shim::parse_rank_log_line(line);
    ASSERT_TRUE(parsed.has_value()) << line;
    if (parsed->own) {
      files++;
      EXPECT_EQ(shim::bytes_before(line), static_cast<uint64_t>(line.data() - text.data()));
    } else {
      ASSERT_EQ(parsed->text, fmt::to_string(next++));
    }
  }
  EXPECT_EQ(next, 100'001u);
  EXPECT_GT(files, 1u);
}

TEST_F(AgentsTest, ATermedAgentLeavesItsRanks) {
  start_scheduler();
  start_agent("n0");
  const uint64_t id = submit(script(kWaits));
  const pid_t pid = pid_of("pid");
  agents_.at("n0")->signal(SIGTERM);
  EXPECT_EQ(agents_.at("n0")->finish(), 0) << agents_.at("n0")->err;
  agents_.erase("n0");
  EXPECT_FALSE(is_gone(pid));
  start_agent("n0");
  put_out("go");
  EXPECT_EQ(outcome(finished(id)), TaskOutcome::succeeded);
}

TEST_F(AgentsTest, WithoutRootItRunsItsOwnUsersTasks) {
  start_scheduler();
  const std::string key = dir_ / "nobody.key";
  test::write_file(key, test::read_file(key_file()));
  ASSERT_EQ(::chmod(key.c_str(), 0600), 0);
  ASSERT_EQ(::chown(key.c_str(), kNobodyUid, kNobodyUid), 0);
  agents_["n0"] = std::make_unique<test::Child>(
      test::Launch{.argv = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                            FF_BINARY, "schedule", "agent", "--scheduler", scheduler(), "--name",
                            "n0", "--dir", out_ + "/n0", "--listen", "127.0.0.1:0", "--key", key}});
  ASSERT_TRUE(agents_["n0"]->wait_for_out("listening")) << agents_["n0"]->err;
  EXPECT_EQ(outcome(finished(submit(script("id -u >$OUT/uid; ls $FF_TASK_DIR >$OUT/dir")))),
            TaskOutcome::succeeded);
  EXPECT_EQ(out("uid"), "65534\n");
  EXPECT_EQ(out("dir"), "key\n");
  const wire::Task other = finished(submit(script("exit 0"), 1));
  EXPECT_NE(other.outcome_text().find("is not root"), std::string::npos) << other.outcome_text();
}

TEST_F(AgentsTest, OfRootItNeedsAKey) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root";
  const auto ran = test::run_ff({"schedule", "agent", "--scheduler", "127.0.0.1:1", "--dir",
                                 agent_dir("keyless"), "--listen", "127.0.0.1:0"});
  EXPECT_EQ(ran.exit, 5);
  EXPECT_NE(ran.err.find("needs a key"), std::string::npos) << ran.err;
  EXPECT_FALSE(std::filesystem::exists(agent_dir("keyless")));
}

TEST_F(AgentsTest, AFolderHasOneAgent) {
  start_scheduler();
  start_agent("n0");
  const auto ran =
      test::run_ff({"schedule", "agent", "--dir", agent_dir("n0"), "--task-dir", dir_ / "tasks",
                    "--scheduler", scheduler(), "--key", key_file(), "--listen", "127.0.0.1:0"});
  EXPECT_EQ(ran.exit, 5) << ran.err;
  EXPECT_NE(ran.err.find("another agent"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace ff::cmd
