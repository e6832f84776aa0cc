// ff schedule as users and operators type it, with a real scheduler and no nodes: tasks wait, and
// everything that can be done to a task that waits is done.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cmd/options/net_client.h"
#include "cmd/schedule/format.h"
#include "cmd/schedule/log_reader.h"
#include "cmd/schedule/submit.h"
#include "e2e/child.h"
#include "ops/scheduler/scheduler_state.h"
#include "ops/scheduler/service.h"
#include "platform/auth/test_entities.h"
#include "platform/base/clock.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

using Words = std::vector<std::string>;
using nlohmann::json;

constexpr uint32_t kAnn = 61234, kBob = 61235;  // nobody has these names

// A scheduler with a key, an operator who has it, and two users with tokens.
class Schedule : public testing::Test {
 protected:
  void SetUp() override {
    io::SystemDisk disk;
    ASSERT_TRUE(auth::make_key_file(disk, key()).ok());
    const auth::Key cluster = auth::read_key_file(disk, key()).value();
    for (const auto& [name, uid] : {std::pair("ann", kAnn), std::pair("bob", kBob)}) {
      test::write_file(dir_ / name, auth::token_text(cluster, {uid, 1}));
      std::filesystem::permissions(dir_ / name, std::filesystem::perms::owner_read);
    }
    test::write_file(revoked(), "");
    start("127.0.0.1:0");
  }

  std::string revoked() const { return dir_ / "revoked"; }
  std::string key() const { return dir_ / "key"; }
  void start(const std::string& listen) {
    test::Launch launch;
    launch.argv = {FF_BINARY,      "schedule", "serve", "--listen",         listen,   "--dir",
                   dir_ / "state", "--key",    key(),   "--revoked-tokens", revoked()};
    launch.argv.insert(launch.argv.end(), more_.begin(), more_.end());
    scheduler_ = std::make_unique<test::Child>(launch);
    ASSERT_TRUE(scheduler_->wait_for_out("listening on ")) << scheduler_->err;
    ASSERT_TRUE(scheduler_->wait_for_out("\n"));
    const size_t at = scheduler_->out.find("127.0.0.1:");
    address_ = scheduler_->out.substr(at, scheduler_->out.find('\n', at) - at);
  }
  void kill_scheduler() {
    scheduler_->signal(SIGKILL);
    EXPECT_EQ(scheduler_->finish(), 128 + SIGKILL);
  }

  test::Launch as(const std::string& token, Words words) {
    words.insert(words.begin(), {FF_BINARY, "schedule"});
    test::Launch launch;
    launch.argv = std::move(words);
    launch.env = {{"FF_SCHEDULER", address_}};
    launch.env[token.empty() ? "FF_KEY" : "FF_TOKEN_FILE"] = token.empty() ? key() : dir_ / token;
    return launch;
  }
  test::ProcessResult ann(Words words) { return test::run(as("ann", std::move(words))); }
  test::ProcessResult bob(Words words) { return test::run(as("bob", std::move(words))); }
  test::ProcessResult operate(Words words) { return test::run(as("", std::move(words))); }
  static json data_of(const test::ProcessResult& ran) {
    const json parsed = json::parse(ran.out, nullptr, false);
    EXPECT_TRUE(parsed.is_object()) << ran.out << ran.err;
    return parsed.is_object() ? parsed["data"] : json();
  }
  std::string submit(Words words) {
    words.insert(words.begin(), "submit");
    const auto ran = ann(words);
    EXPECT_EQ(ran.exit, 0) << ran.err;
    EXPECT_EQ(ran.out.back(), '\n');
    return ran.out.substr(0, ran.out.size() - 1);
  }
  json show(const std::string& task) { return data_of(ann({"show", task, "--json"})); }
  // The scheduler has looked at it.
  std::string explained(const std::string& task) {
    std::string said;
    EXPECT_TRUE(test::eventually([&] {
      said = ann({"explain", task}).out;
      return said.find("has just been queued;") == said.npos;
    }));
    return said;
  }

  const test::TempDir dir_;
  Words more_;  // options of the scheduler
  std::unique_ptr<test::Child> scheduler_;
  std::string address_;
};

TEST_F(Schedule, WhoseTaskItIs) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root submits for others without asking";
  const auto owner = [&](const test::ProcessResult& submitted) {
    const std::string id = submitted.out.substr(0, submitted.out.find('\n'));
    return data_of(operate({"show", id, "--json"}));
  };
  EXPECT_EQ(owner(operate({"submit", "--user", "nobody", "true"}))["user"], "nobody");
  EXPECT_EQ(owner(operate({"submit", "--user", "4711", "true"}))["uid"], 4711);
  const auto root = operate({"submit", "true"});
  EXPECT_EQ(root.exit, 5);
  EXPECT_NE(root.err.find("--user"), std::string::npos) << root.err;
  EXPECT_EQ(operate({"submit", "--user", "root", "true"}).exit, 5);
  const auto unknown = operate({"submit", "--user", "no-such-user", "true"});
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_NE(unknown.err.find("no-such-user"), std::string::npos) << unknown.err;
  const auto token = ann({"submit", "--user", "nobody", "true"});
  EXPECT_EQ(token.exit, 2);
  EXPECT_NE(token.err.find("token"), std::string::npos) << token.err;
}

TEST_F(Schedule, ATaskOnItsWay) {
  const std::string id = submit({"-n", "2", "-g", "h200", "--name", "first", "sleep", "60"});
  EXPECT_EQ(id, "1");
  EXPECT_NE(explained(id).find("Task 1 cannot start: it asks for 2 nodes of partition h200, "
                               "but the cluster has only 0; add 2 nodes"),
            std::string::npos)
      << explained(id);
  const auto listed = ann({"list"});
  EXPECT_NE(listed.out.find("\tqueued\t30\th200\t2\t"), std::string::npos) << listed.out;
  EXPECT_NE(listed.out.find("\tfirst\tnever"), std::string::npos) << listed.out;
  const json shown = show(id);
  EXPECT_EQ(shown["state"], "queued");
  EXPECT_EQ(shown["uid"], kAnn);
  EXPECT_EQ(shown["spec"]["argv"], json({"sleep", "60"}));
  EXPECT_EQ(shown["spec"]["hang_s"], 1800);
  EXPECT_EQ(shown["waiting"]["why"], "never");
  EXPECT_EQ(shown["waiting"]["missing"], 2);
  EXPECT_NE(ann({"show", id}).out.find("command\tsleep 60\n"), std::string::npos);

  EXPECT_EQ(ann({"suspend", id}).exit, 0);
  EXPECT_EQ(show(id)["state"], "suspended");
  EXPECT_NE(ann({"explain", id}).out.find("ff schedule resume 1"), std::string::npos);
  const auto twice = ann({"suspend", id});
  EXPECT_EQ(twice.exit, 5);
  EXPECT_NE(twice.err.find("task 1 is suspended"), std::string::npos) << twice.err;
  EXPECT_EQ(ann({"resume", id}).exit, 0);
  EXPECT_EQ(show(id)["state"], "queued");
  EXPECT_EQ(ann({"stop", id}).exit, 0);
  EXPECT_EQ(show(id)["state"], "stopped");
  EXPECT_EQ(ann({"list"}).out, "");
  EXPECT_NE(ann({"list", "-a"}).out.find("stopped before it ran"), std::string::npos);
  EXPECT_EQ(ann({"stop", id}).exit, 5);
  const auto logs = ann({"logs", id});
  EXPECT_EQ(logs.exit, 1);
  EXPECT_NE(logs.err.find("task 1 has no log: it never got nodes"), std::string::npos) << logs.err;

  const auto history = data_of(operate({"history", "--json"}));
  EXPECT_EQ(history["total"]["tasks"], 1);
  EXPECT_EQ(history["total"]["stopped"], 1);
  EXPECT_EQ(history["total"]["node_hours_used"], 0);
  EXPECT_EQ(data_of(operate({"history", "--user", "nobody", "--json"}))["total"]["tasks"], 0);
}

// `ff schedule submit - <train.sh`, as sbatch.
TEST_F(Schedule, AScriptOnStandardInput) {
  const std::string script = "#!/bin/bash -e\ncd data\npython3 train.py \"$1\"\n";
  const auto submitted = [&](Words words) {
    auto launch = as("ann", std::move(words));
    launch.stdin_open = true;
    test::Child child(launch);
    child.write_stdin(script);
    EXPECT_EQ(child.finish(), 0) << child.err;
    return show(child.out.substr(0, child.out.find('\n')))["spec"];
  };
  const json spec = submitted({"submit", "-n", "2", "-", "a b"});
  EXPECT_EQ(spec["argv"], json({"/bin/bash", "-e", "-c", script, "stdin", "a b"}));
  EXPECT_EQ(spec["nodes"], 2);
  EXPECT_EQ(spec["name"], "stdin");
  EXPECT_EQ(submitted({"submit", "--name", "mine", "-"})["name"], "mine");
  const auto empty = ann({"submit", "-"});
  EXPECT_EQ(empty.exit, 2);
  EXPECT_TRUE(test::has(empty.err, "the script on standard input is empty")) << empty.err;
}

TEST_F(Schedule, AllOptionsArrive) {
  const std::string id = submit(
      {"--nproc",  "8",    "--zone",   "b",  "--label",   "disk=nvme", "--mark",    "x=y",
       "-p",       "auto", "--time",   "2h", "--min-run", "5m",        "--restart", "on-failure:3",
       "--signal", "USR1", "--memory", "4G", "--hang",    "0s",        "-e",        "A=b c",
       "--chdir",  "/tmp", "./x",      "-n", "7",         "--json",    "-h"});
  const json spec = show(id)["spec"];
  EXPECT_EQ(spec["argv"], json({"./x", "-n", "7", "--json", "-h"}));
  EXPECT_EQ(spec["nodes"], 1);
  EXPECT_EQ(spec["processes"], 8);
  EXPECT_EQ(spec["zone"], "b");
  EXPECT_EQ(spec["marks"], json({"disk=nvme", "x=y"}));
  EXPECT_EQ(spec["priority"], "auto");
  EXPECT_EQ(spec["limit_s"], 7200);
  EXPECT_EQ(spec["min_run_s"], 300);
  EXPECT_EQ(spec["restarts"], 3);
  EXPECT_EQ(spec["signal"], SIGUSR1);
  EXPECT_EQ(spec["memory"], uint64_t{4} << 30);
  EXPECT_TRUE(spec["hang_s"].is_null());
  EXPECT_EQ(spec["cwd"], "/tmp");
  EXPECT_NE(explained(id).find("in zone b with labels disk=nvme and x=y"), std::string::npos);
}

// The task runs as another user than this process: it inherits nothing.
TEST_F(Schedule, AnotherUsersTaskInheritsNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root submits for others without asking";
  const auto variables = [&](test::Launch launch) {
    launch.env["SECRET_OF_ROOT"] = "x";
    launch.env["FF_STORE"] = "/ckpt";
    const auto ran = test::run(launch);
    EXPECT_EQ(ran.exit, 0) << ran.err;
    return data_of(
        operate({"show", ran.out.substr(0, ran.out.find('\n')), "--json"}))["spec"]["env"];
  };
  const json none = json::array();
  EXPECT_EQ(variables(as("", {"submit", "--user", "nobody", "true"})), none);
  EXPECT_EQ(variables(as("", {"submit", "--user", "nobody", "--no-inherit", "true"})), none);
  EXPECT_EQ(variables(as("", {"submit", "--user", "4711", "-e", "A=1", "-e", "HOME=/h", "true"})),
            json::array({"A=1", "HOME=/h"}));
  // Root with the token of a user.
  EXPECT_EQ(variables(as("ann", {"submit", "-e", "A=1", "true"})), json::array({"A=1"}));
}

TEST_F(Schedule, SecretsStayHere) {
  // This process's user, or user 61234 in a process of its own.
  Words become;
  std::string token = "mine";
  io::SystemDisk disk;
  const auth::Key cluster = auth::read_key_file(disk, key()).value();
  test::write_file(dir_ / token, auth::token_text(cluster, {::geteuid(), 1}));
  std::filesystem::permissions(dir_ / token, std::filesystem::perms::owner_read);
  if (::geteuid() == 0) {
    token = "ann";
    become = {"setpriv", "--reuid", "61234", "--regid", "61234", "--clear-groups"};
    std::filesystem::permissions(dir_.path(), std::filesystem::perms(0711));
    ASSERT_EQ(::chown((dir_ / token).c_str(), kAnn, kAnn), 0);
    Words version = become;
    version.insert(version.end(), {FF_BINARY, "--version"});
    if (test::run({.argv = version}).exit != 0) GTEST_SKIP() << "user 61234 cannot run the binary";
  }
  auto launch = as(token, {"submit", "-e", "MINE=1", "true"});
  launch.argv.insert(launch.argv.begin(), become.begin(), become.end());
  launch.env["FF_KEY_PHRASE"] = "x";
  launch.env["FF_STORE"] = "/ckpt";
  launch.env["OTHER"] = "2";
  launch.env["TERM"] = "dumb";
  launch.env["SSH_AUTH_SOCK"] = "/tmp/agent";
  launch.env["XDG_RUNTIME_DIR"] = "/run/user/61234";
  ASSERT_EQ(test::run(launch).exit, 0);
  const auto names_of = [&](const std::string& task) {
    const json env = data_of(operate({"show", task, "--json"}))["spec"]["env"];
    std::set<std::string> names;
    for (const std::string pair : env) names.insert(pair.substr(0, pair.find('=')));
    return names;
  };
  const auto names = names_of("1");
  for (const char* const there : {"PATH", "HOME", "MINE", "FF_STORE", "OTHER"}) {
    EXPECT_TRUE(names.contains(there)) << there;
  }
  for (const char* const absent :
       {"FF_TOKEN_FILE", "FF_SCHEDULER", "FF_KEY_PHRASE", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR"}) {
    EXPECT_FALSE(names.contains(absent)) << absent;
  }
  launch.argv.insert(launch.argv.end() - 1, "--no-inherit");
  ASSERT_EQ(test::run(launch).exit, 0);
  EXPECT_EQ(names_of("2"), (std::set<std::string>{"HOME", "MINE", "PATH", "TERM"}));
}

TEST_F(Schedule, WordsStayAsTheyAre) {
  const Words words = {"a b",    "\"'$HOME`", "line\nbreak", "\x1b[31mred", "</script>",
                       "back\\", "",          "*",           "\r",          "–\t"};
  Words line = {"--name", "\x1b]0;x\x07</script>", "--"};
  line.insert(line.end(), words.begin(), words.end());
  const std::string id = submit(line);
  const json shown = show(id);
  EXPECT_EQ(shown["spec"]["argv"], json(words));
  EXPECT_EQ(shown["spec"]["name"], line[1]);
  for (const Words& form : {Words{"list"}, Words{"show", id}}) {
    const auto ran = ann(form);
    EXPECT_EQ(ran.out.find('\x1b'), std::string::npos) << ran.out;
    EXPECT_EQ(ran.out.find('\r'), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("\\x1b]0;x\\x07</script>"), std::string::npos) << ran.out;
  }
  EXPECT_NE(ann({"show", id}).out.find("line\\x0abreak"), std::string::npos);
  const auto bytes = submit({"--", "x", "\xff\xfe"});
  EXPECT_EQ(show(bytes)["spec"]["argv_hex"], json({"78", "fffe"}));
}

TEST_F(Schedule, MistakesAreNamed) {
  submit({"true"});
  struct Case {
    Words words;
    int exit;
    std::string said;
  };
  const Case cases[] = {
      {{"submit"}, 2, "CMD"},
      {{"submit", "--nodse", "2", "x"}, 2, "--nodes"},
      {{"submit", "-n", "0", "x"}, 2, "0 nodes"},
      {{"submit", "-p", "60", "x"}, 2, "60"},
      {{"submit", "--restart", "always", "x"}, 2, "on-failure:N"},
      {{"submit", "--signal", "NONE", "x"}, 2, "USR1"},
      {{"submit", "--signal", "KILL", "x"}, 2, "cannot handle this signal"},
      {{"submit", "--label", "nvme", "x"}, 2, "NAME=VALUE"},
      {{"submit", "--mark", "nvme", "x"}, 2, "NAME=VALUE"},  // its old name
      {{"submit", "-e", "=x", "x"}, 2, "NAME=VALUE"},
      {{"show", "99"}, 1, "there is no task 99"},
      {{"explain", "99"}, 1, "there is no task 99"},
      {{"logs", "99"}, 1, "there is no task 99"},
      {{"stop", "99"}, 1, "ff schedule stop: there is no task 99"},
      {{"stop", "98", "99"}, 1, "2 errors"},
      {{"resume", "1"}, 5, "task 1 is queued"},
      {{"logs", "1", "--rank", "1"}, 2, "has 1 ranks"},
      {{"logs", "1", "--attempt", "0"}, 2, "--attempt 0"},
      {{"drain", "n1", "--reason", "x"}, 5, "is not for the role 'user'"},
      {{"quota"}, 5, "is not for the role 'user'"},
      {{"lsit"}, 2, "list"},
  };
  for (const Case& one : cases) {
    const auto ran = ann(one.words);
    EXPECT_EQ(ran.exit, one.exit) << one.words[0] << ": " << ran.err;
    EXPECT_NE(ran.err.find(one.said), std::string::npos) << one.words[0] << ": " << ran.err;
  }
  const auto drained = operate({"drain", "n1", "--reason", "x"});
  EXPECT_EQ(drained.exit, 1);
  EXPECT_NE(drained.err.find("there is no node n1"), std::string::npos) << drained.err;
  EXPECT_EQ(operate({"drain", "n1"}).exit, 2);
  EXPECT_EQ(data_of(operate({"nodes", "--json"}))["nodes"], json::array());
  // Whoever has the key names the owner; root has no tasks.
  const auto root = operate({"submit", "true"});
  EXPECT_EQ(root.exit, ::geteuid() == 0 ? 5 : 0) << root.err;
}

TEST_F(Schedule, OthersTasksAreSeenAndLeftAlone) {
  const std::string id = submit({"-e", "MINE=1", "true"});
  EXPECT_EQ(data_of(bob({"list", "--json"}))["tasks"].size(), 1u);
  EXPECT_FALSE(data_of(ann({"list", "--json"}))["tasks"][0]["spec"].contains("env"));
  EXPECT_EQ(data_of(bob({"list", "--json", "--user", std::to_string(kBob)}))["tasks"].size(), 0u);
  for (const char* const what : {"stop", "suspend"}) {
    const auto ran = bob({what, id});
    EXPECT_EQ(ran.exit, 5) << what;
    EXPECT_NE(ran.err.find("task 1 is another user's"), std::string::npos) << ran.err;
  }
  EXPECT_EQ(show(id)["state"], "queued");
  // The environment is its owner's business.
  EXPECT_EQ(show(id)["spec"]["env"], json::array({"MINE=1"}));
  EXPECT_TRUE(data_of(bob({"show", id, "--json"}))["spec"]["env"].empty());
  EXPECT_EQ(operate({"stop", id}).exit, 0);
}

TEST_F(Schedule, ARevokedTokenIsRefused) {
  const std::string id = submit({"true"});
  test::write_file(revoked(), "# ann has left\n" + std::to_string(kAnn) + "\n");
  EXPECT_TRUE(test::eventually([&] { return ann({"list"}).exit == 5; }));
  for (const Words& words : {Words{"submit", "true"}, Words{"list"}, Words{"show", id},
                             Words{"stop", id}, Words{"nodes"}, Words{"logs", id}}) {
    const auto ran = ann(words);
    EXPECT_EQ(ran.exit, 5) << words[0] << ": " << ran.err;
    EXPECT_NE(ran.err.find("token 1 of user 61234 is revoked"), std::string::npos) << ran.err;
  }
  EXPECT_EQ(bob({"show", id}).exit, 0);
  EXPECT_EQ(operate({"show", id}).exit, 0);
  // Nobody can tell any more who is revoked.
  test::write_file(revoked(), "ann\n");
  EXPECT_TRUE(test::eventually([&] { return bob({"list"}).exit == 1; }));
  const auto refused = bob({"list"});
  EXPECT_NE(refused.err.find(revoked() + ":1: 'ann' is neither"), std::string::npos) << refused.err;
  EXPECT_EQ(operate({"stop", id}).exit, 0);
  test::write_file(revoked(), "");
  EXPECT_TRUE(test::eventually([&] { return ann({"list"}).exit == 0; }));
}

TEST_F(Schedule, AUserHasAShare) {
  kill_scheduler();
  more_ = {"--max-tasks", "20", "--max-user-tasks", "2"};
  start(address_);
  submit({"true"});
  const std::string second = submit({"true"});
  const auto refused = ann({"submit", "true"});
  EXPECT_NE(refused.exit, 0);
  EXPECT_NE(refused.err.find("(uid 61234) has 2 unfinished tasks; the limit per user is 2"),
            std::string::npos)
      << refused.err;
  EXPECT_NE(refused.err.find("--max-user-tasks"), std::string::npos) << refused.err;
  EXPECT_EQ(bob({"submit", "true"}).exit, 0);
  EXPECT_EQ(ann({"stop", second}).exit, 0);
  EXPECT_EQ(ann({"submit", "true"}).exit, 0);
}

TEST_F(Schedule, Quotas) {
  EXPECT_NE(operate({"quota"}).err.find("no quotas"), std::string::npos);
  EXPECT_EQ(operate({"quota", "set", "--user", "*", "--priority", "50", "--nodes", "0"}).exit, 0);
  EXPECT_EQ(operate({"quota", "set", "--user", "a\x1b b", "--partition", "h", "--nodes", "7"}).exit,
            0);
  EXPECT_EQ(operate({"quota", "--no-header"}).out, "*\tdefault\t50\t0\na\\x1b b\th\t30\t7\n");
  const json listed = data_of(operate({"quota", "list", "--json"}))["quotas"];
  EXPECT_EQ(listed[1]["user"], "a\x1b b");
  EXPECT_EQ(operate({"quota", "drop", "--user", "*", "--priority", "50"}).exit, 0);
  EXPECT_EQ(data_of(operate({"quota", "--json"}))["quotas"].size(), 1u);
  EXPECT_EQ(operate({"quota", "set", "--user", "ann", "--priority", "60", "--nodes", "1"}).exit, 2);
  EXPECT_EQ(operate({"quota", "set", "--user", "ann"}).exit, 2);
}

TEST_F(Schedule, AKilledSchedulerKeepsEverything) {
  for (int i = 0; i < 20; i++) submit({"--name", "task" + std::to_string(i), "true"});
  ASSERT_EQ(ann({"suspend", "7"}).exit, 0);
  ASSERT_EQ(ann({"stop", "8"}).exit, 0);
  ASSERT_EQ(operate({"quota", "set", "--user", "*", "--nodes", "3"}).exit, 0);
  json before = data_of(ann({"list", "-a", "--json"}))["tasks"];
  ASSERT_EQ(before.size(), 20u);
  EXPECT_EQ(before[0]["task"], 20);  // the newest first
  kill_scheduler();
  // Whoever asks meanwhile waits for it, a moment.
  start(address_);
  json after = data_of(ann({"list", "-a", "--json"}))["tasks"];
  for (json* const tasks : {&before, &after}) {
    for (json& task : *tasks) task.erase("waiting");  // of decisions, which are made anew
  }
  EXPECT_EQ(before, after);
  EXPECT_EQ(data_of(operate({"quota", "--json"}))["quotas"].size(), 1u);
  EXPECT_EQ(submit({"true"}), "21");
  EXPECT_EQ(data_of(ann({"list", "--json", "--count", "2"}))["tasks"].size(), 2u);
}

TEST_F(Schedule, TheSameRequestTwiceIsOneTask) {
  ASSERT_EQ(ann({"list"}).exit, 0);  // it has started
  SystemClock clock;
  const StopToken stop(clock);
  io::SystemDisk disk;
  net::TransportOptions options;
  options.mode = net::NetMode::tcp;
  options.keyring = auth::root_keyring(auth::read_key_file(disk, key()).value(), auth::Role::admin);
  NetClient net(stop, options, "test");
  rpc::Client client(net.context, net::parse_address(address_).value(),
                     auth::Service{auth::Role::scheduler, {}});
  scheduler::wire::SubmitRequest request;
  request.mutable_spec()->add_argv("true");
  request.mutable_spec()->set_cwd("/");
  request.mutable_spec()->set_nodes(1);
  request.mutable_spec()->set_processes(1);
  request.mutable_spec()->set_group("default");
  request.mutable_owner()->set_uid(kAnn);
  request.mutable_owner()->set_name("ann");
  std::vector<uint64_t> ids;
  for (const char* const once : {"0123456789abcdef", "0123456789abcdef", "0123456789abcdeF"}) {
    request.set_once(once);
    auto reply = run_task(net.loop, rpc::call_method(client, scheduler::kSubmit, request,
                                                     net.loop.now_ns() + 10 * kSecond));
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    ids.push_back(reply->task());
  }
  EXPECT_EQ(ids, (std::vector<uint64_t>{1, 1, 2}));
  run_task(net.loop, client.close());
}

TEST_F(Schedule, RunStopsWatchingAndTheTaskGoesOn) {
  test::Child child(as("ann", {"run", "sh", "-c", "exit 3"}));
  EXPECT_TRUE(child.wait_for_err("cannot start")) << child.err;
  child.signal(SIGINT);
  EXPECT_EQ(child.finish(), 130);
  EXPECT_NE(child.err.find("task 1 continues; to stop it: ff schedule stop 1"), std::string::npos)
      << child.err;
  EXPECT_EQ(show("1")["state"], "queued");
  // A task that is stopped has no exit code.
  test::Child stopped(as("ann", {"run", "true"}));
  EXPECT_TRUE(stopped.wait_for_err("task 2"));
  EXPECT_EQ(ann({"stop", "2"}).exit, 0);
  EXPECT_EQ(stopped.finish(), 125);
  EXPECT_NE(stopped.err.find("task 2 has been stopped: stopped before it ran"), std::string::npos)
      << stopped.err;
}

TEST(ScheduleServe, MistakesAreNamed) {
  const test::TempDir dir;
  const Words absent = {"schedule", "list", "--scheduler", "127.0.0.1:1"};
  const auto none = test::run_ff(absent);
  EXPECT_EQ(none.exit, 1);
  EXPECT_NE(none.err.find("no scheduler answers at 127.0.0.1:1"), std::string::npos) << none.err;
  EXPECT_NE(none.err.find("Is 'ff schedule serve' running there?"), std::string::npos) << none.err;
  EXPECT_EQ(test::run_ff({"schedule", "run", "--scheduler", "127.0.0.1:1", "true"}).exit, 125);
  EXPECT_EQ(test::run_ff({"schedule", "list", "--scheduler", "nowhere"}).exit, 2);
  const std::string file = dir / "file";
  test::write_file(file, "x");
  EXPECT_EQ(test::run_ff({"schedule", "serve", "--dir", file}).exit, 1);
  EXPECT_EQ(test::run_ff({"schedule", "serve", "--dir", dir / "a", "--kv", "etcd://a"}).exit, 2);
  EXPECT_EQ(test::run_ff({"schedule", "serve", "--dir", dir / "a", "--listen", "0.0.0.0:0"}).exit,
            5);
  for (const Words& wrong : {Words{"--max-tasks", "0"}, Words{"--max-user-tasks", "2000000"}}) {
    Words words = {"schedule", "serve", "--dir", dir / "a", "--listen", "127.0.0.1:0"};
    words.insert(words.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(test::run_ff(words).exit, 2) << wrong[0];
  }
  const auto no_list = test::run_ff({"schedule", "serve", "--dir", dir / "a", "--listen",
                                     "127.0.0.1:0", "--revoked-tokens", dir / "absent"});
  EXPECT_EQ(no_list.exit, 1);
  EXPECT_NE(no_list.err.find("absent"), std::string::npos) << no_list.err;
  test::Launch launch;
  launch.argv = {FF_BINARY,     "schedule", "serve",      "--listen",
                 "127.0.0.1:0", "--http",   "127.0.0.1:0"};
  launch.env = {{"FF_STATE", dir / "state"}};
  test::Child one(launch);
  ASSERT_TRUE(one.wait_for_out("pages on port")) << one.err;
  EXPECT_TRUE(std::filesystem::exists(dir / "state/schedule/schedule.db"));
  const auto second = test::run(launch);
  EXPECT_EQ(second.exit, 5);
  EXPECT_NE(second.err.find("another schedule serve already uses it"), std::string::npos)
      << second.err;
  one.signal(SIGTERM);
  EXPECT_EQ(one.finish(), 0) << one.err;
}

scheduler::wire::ListedTask waiting_for(scheduler::WaitReason why) {
  scheduler::wire::ListedTask listed;
  auto& task = *listed.mutable_task();
  task.set_id(17);
  task.mutable_owner()->set_name("ann");
  task.mutable_spec()->set_nodes(8);
  task.mutable_spec()->set_group("h200");
  task.mutable_spec()->set_priority(30);
  listed.mutable_waiting()->set_why(static_cast<uint32_t>(why));
  listed.mutable_waiting()->set_other(12);
  listed.mutable_waiting()->set_missing(3);
  listed.mutable_waiting()->set_expected(300 * kSecond);
  return listed;
}

TEST(ScheduleWords, EveryReasonAndPhaseHasASentence) {
  std::set<std::string> sentences;
  const auto add = [&](const scheduler::wire::ListedTask& listed) {
    const std::string sentence = explanation(listed, 0);
    EXPECT_TRUE(sentence.starts_with("Task 17 ")) << sentence;
    EXPECT_TRUE(sentence.ends_with(".")) << sentence;
    EXPECT_EQ(sentence.find("does not know"), sentence.npos) << sentence;
    EXPECT_TRUE(sentences.insert(sentence).second) << sentence;
    return sentence;
  };
  for (uint32_t why = 0; why <= static_cast<uint32_t>(scheduler::WaitReason::priority); why++) {
    const auto listed = waiting_for(static_cast<scheduler::WaitReason>(why));
    const std::string sentence = add(listed);
    EXPECT_FALSE(reason_text(listed, 0).empty());
    switch (static_cast<scheduler::WaitReason>(why)) {
      case scheduler::WaitReason::begin_time:
      case scheduler::WaitReason::releasing:
      case scheduler::WaitReason::resources:
        EXPECT_NE(sentence.find("in 5m"), sentence.npos) << sentence;
        break;
      case scheduler::WaitReason::zone_span:
      case scheduler::WaitReason::priority:
        EXPECT_NE(sentence.find("task 12"), sentence.npos);
        break;
      default: EXPECT_NE(sentence.find("3 nodes"), sentence.npos) << sentence;
    }
  }
  auto listed = waiting_for(scheduler::WaitReason::resources);
  listed.clear_waiting();
  auto& task = *listed.mutable_task();
  auto& tried = *task.add_attempts();
  tried.add_nodes("n1");
  for (uint32_t phase = 0; phase <= static_cast<uint32_t>(scheduler::TaskPhase::finished);
       phase++) {
    task.set_phase(phase);
    add(listed);
  }
  task.set_phase(static_cast<uint32_t>(scheduler::TaskPhase::stopping));
  tried.set_stop_text("as it is");
  for (uint32_t why = 1; why <= static_cast<uint32_t>(scheduler::kLastStopReason); why++) {
    tried.set_stop(why);
    tried.set_stop_text("for reason " + std::to_string(why));
    add(listed);
  }
  tried.set_acked(1);
  add(listed);
  tried.set_terminated(1);
  add(listed);
  tried.set_killed(1);
  add(listed);
  task.set_phase(static_cast<uint32_t>(scheduler::TaskPhase::finished));
  for (uint32_t outcome = 1; outcome <= static_cast<uint32_t>(scheduler::TaskOutcome::stopped);
       outcome++) {
    task.set_outcome(outcome);
    add(listed);
  }
  // Of a newer scheduler.
  task.set_phase(77);
  EXPECT_NE(explanation(listed, 0).find("newer"), std::string::npos);
  EXPECT_EQ(task_state(task), "unknown");
}

TEST(ScheduleWords, AWaitSaysWhatMustHappen) {
  auto listed = waiting_for(scheduler::WaitReason::quota);
  listed.mutable_waiting()->set_quota(9);
  EXPECT_NE(explanation(listed, 0).find("other tasks of this user must free 3 nodes first"),
            std::string::npos);
  listed.mutable_waiting()->set_quota(1);
  EXPECT_NE(explanation(listed, 0).find("cannot start: it asks for 8 nodes, but the quota of ann "
                                        "in partition h200 at priority 30 is 1 node;"),
            std::string::npos)
      << explanation(listed, 0);
  auto first = waiting_for(scheduler::WaitReason::resources);
  first.mutable_waiting()->set_missing(0);
  EXPECT_NE(explanation(first, 0).find("no zone has 8 nodes free"), std::string::npos);
  first.mutable_task()->mutable_spec()->set_nodes(1);
  first.mutable_waiting()->set_missing(1);
  first.mutable_waiting()->set_expected(0);
  EXPECT_EQ(explanation(first, 0),
            "Task 17 is first in the queue of partition h200: its node is in use, with no time "
            "limit, so there is no estimate.");
}

TEST(ScheduleWords, OptionsAreRead) {
  EXPECT_EQ(parse_signal("USR1").value(), static_cast<uint32_t>(SIGUSR1));
  EXPECT_EQ(parse_signal("SIGTERM").value(), static_cast<uint32_t>(SIGTERM));
  EXPECT_EQ(parse_signal("12").value(), 12u);
  for (const char* const bad : {"", "0", "65", "usr1", "KILL", "19", "SIG", "-1"}) {
    EXPECT_FALSE(parse_signal(bad).ok()) << bad;
  }
  EXPECT_EQ(parse_restart("on-failure:3").value(), 3u);
  for (const char* const bad : {"", "3", "on-failure", "on-failure:", "on-failure:x", "always"}) {
    EXPECT_FALSE(parse_restart(bad).ok()) << bad;
  }
  EXPECT_FALSE(is_passed_on("FF_TASK_DIR", false));
  EXPECT_FALSE(is_passed_on("FF_ANY_SECRET", false));
  EXPECT_TRUE(is_passed_on("FF_NET", false));
  EXPECT_TRUE(is_passed_on("MY_TOKEN", false));
  for (const char* const here : {"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "SUDO_USER",
                                 "NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY"}) {
    EXPECT_FALSE(is_passed_on(here, false)) << here;
  }
  EXPECT_FALSE(is_passed_on("MY_TOKEN", true));
}

TEST(ScheduleWords, AScriptNamesItsShell) {
  const auto begin = [](const std::string& script) {
    auto command = script_command(script).value();
    EXPECT_EQ(command.at(command.size() - 2), script);
    command.resize(command.size() - 3);
    return command;
  };
  EXPECT_EQ(begin("hostname"), Words{"/bin/sh"});
  EXPECT_EQ(begin("#! /usr/bin/env bash\r\nx"), (Words{"/usr/bin/env", "bash"}));
  for (const std::string bad :
       {"", " \n", "#!/usr/bin/python3\nprint(1)\n", "#!/usr/bin/env python3\n", "#!\nx"}) {
    EXPECT_EQ(script_command(bad).error().code, Errc::usage) << bad;
  }
  EXPECT_TRUE(script_command(std::string(128 * kKiB - 1, 'x')).ok());
  EXPECT_FALSE(script_command(std::string(128 * kKiB, 'x')).ok());
}

TEST(ScheduleWords, OnlyTheOwnUserInherits) {
  ASSERT_EQ(::setenv("FF_TEST_INHERITED", "1", 1), 0);
  SubmitOptions options;
  options.env = {"A=1", "A=2", "B="};
  const std::map<std::string, std::string> given = {{"A", "2"}, {"B", ""}};
  EXPECT_EQ(task_environment(options, false).value(), given);
  const auto own = task_environment(options, true).value();
  EXPECT_EQ(own.at("FF_TEST_INHERITED"), "1");
  EXPECT_EQ(own.at("A"), "2");
  options.no_inherit = true;
  EXPECT_EQ(task_environment(options, false).value(), given);
  EXPECT_FALSE(task_environment(options, true)->contains("FF_TEST_INHERITED"));
  options.env = {"=1"};
  EXPECT_EQ(task_environment(options, false).error().code, Errc::usage);
  ::unsetenv("FF_TEST_INHERITED");
}

TEST(ScheduleWords, LogsOnATerminalHaveNoCodes) {
  TerminalText text;
  EXPECT_EQ(text.escape("a\tb\n\x1b[2J\r"), "a\tb\n\\x1b[2J\\x0d");
  EXPECT_EQ(text.escape("\xe2\x80"), "");
  EXPECT_EQ(text.escape("\x93 \xc3"), "\xe2\x80\x93 ");
  EXPECT_EQ(text.escape("\xa9\n"), "\xc3\xa9\n");
  EXPECT_EQ(text.escape("\xff\n"), "\\xff\n");
}

}  // namespace
}  // namespace ff::cmd
