// What the holder of one key can do: what its role allows, below its directory, for its users,
// until the key is revoked, expires or is of an old generation.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "attack/attack_world.h"

namespace ff::test {
namespace {

class KeysAttack : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root reads the files of other users";
  }
  void expect_refused(const ProcessResult& ran, const std::string& words) {
    EXPECT_EQ(ran.exit, 5) << ran.out << ran.err;
    EXPECT_NE(ran.err.find(words), std::string::npos) << ran.err;
  }
  AttackWorld world_{GetParam()};
};

// Finding 7: a stolen key of one party was the whole cluster.
TEST_P(KeysAttack, AStolenKeyIsGoodForItsRoleAlone) {
  const std::string mount = world_.file("mount.key"), agent = world_.file("agent.key");
  world_.create_key("mount/host7", mount);
  world_.create_key("agent/n1", agent);
  const std::string ann = world_.add_user("ann", 1001);
  for (const Words& words :
       {Words{"admin", "status"}, Words{"admin", "key", "list"},
        Words{"admin", "key", "create", "admin/eve"},
        Words{"admin", "user", "add", "eve", "--uid", "7"},
        Words{"admin", "key", "revoke", "storage/s1"}, Words{"admin", "key", "rotate"}}) {
    expect_refused(world_.with_key(mount, words), "is not for the role 'mount'");
    expect_refused(world_.with_key(world_.storage_key(1), words), "is not for the role 'storage'");
    expect_refused(world_.with_key(agent, words), "has no key for meta");
    expect_refused(world_.with_token(ann, words), "is not for the role 'user'");
  }
  expect_refused(world_.with_key(world_.storage_key(1), {"fs", "ls", "/"}),
                 "is not for the role 'storage'");
  EXPECT_GE(world_.audited("denied").size(), 3u);
}

TEST_P(KeysAttack, AStorageNodeCannotPlayAManagerOrAnotherNode) {
  const auto manager = run({.argv = {FF_BINARY, "serve-meta", "--listen", "127.0.0.1:0", "--dir",
                                     world_.file("m2"), "--key", world_.storage_key(1)},
                            .env = world_.keyed()});
  EXPECT_EQ(manager.exit, 2);
  EXPECT_NE(manager.err.find("needs the keys of a meta"), std::string::npos) << manager.err;
  // The number of node 2 with the key of node 1.
  world_.storage(2).signal(SIGKILL);
  world_.storage(2).finish();
  Child thief(
      {.argv = {FF_BINARY, "serve-storage", "--node", "2", "--listen", "127.0.0.1:0", "--meta",
                world_.address(), "--key", world_.storage_key(1), "--disk", world_.file("disk2")},
       .env = world_.keyed()});
  EXPECT_TRUE(thief.wait_for_err("node 2 belongs to storage/s2")) << thief.err;
}

TEST_P(KeysAttack, AMountReachesItsDirectoryForItsUsersAndChangesNothing) {
  world_.good({"fs", "mkdir", "/pub", "/secret"});
  world_.good({"fs", "chmod", "777", "/pub", "/secret"});
  write_file(world_.file("x"), "words");
  for (const std::string to : {"ff:///pub/x", "ff:///secret/x"}) {
    world_.good({"fs", "cp", world_.file("x"), to});
  }
  world_.good({"fs", "ln", "-s", "/secret", "/pub/away"});
  world_.good({"fs", "ln", "-s", "../secret", "/pub/up"});
  const std::string key = world_.file("pub.key");
  world_.create_key("mount/pub", key, {"--path", "/pub", "--read-only", "--uids", "1001-1002"});
  EXPECT_EQ(world_.with_key(key, {"fs", "cat", "/pub/x"}).out, "words");
  EXPECT_NE(world_.with_key(key, {"fs", "ls", "/pub"}).out.find("x"), std::string::npos);
  for (const std::string path : {"/", "/secret", "/secret/x", "/pub/away/x", "/pub/up/x",
                                 "/pub/../secret/x", "/public", "/pub/../../secret/x"}) {
    const auto ran = world_.with_key(key, {"fs", "cat", path});
    EXPECT_NE(ran.exit, 0) << path;
    EXPECT_EQ(ran.out.find("words"), std::string::npos) << path;
  }
  for (const Words& words :
       {Words{"rm", "/pub/x"}, Words{"mkdir", "/pub/d"}, Words{"chmod", "777", "/pub/x"},
        Words{"mv", "/pub/x", "/pub/y"}, Words{"cp", world_.file("x"), "ff:///pub/x"},
        Words{"cp", world_.file("x"), "ff:///pub/z"}}) {
    Words all = words;
    all.insert(all.begin(), "fs");
    EXPECT_NE(world_.with_key(key, all).exit, 0) << words[0];
  }
  EXPECT_EQ(world_.good({"fs", "cat", "/pub/x"}).out, "words");
  // Root of that machine is nobody: it is none of the key's users.
  world_.good({"fs", "chmod", "600", "/pub/x"});
  EXPECT_NE(world_.with_key(key, {"fs", "cat", "/pub/x"}).exit, 0);
}

TEST_P(KeysAttack, ARevokedKeyIsRefusedAndANewOneIsNot) {
  const std::string key = world_.file("host7.key");
  world_.create_key("mount/host7", key);
  ASSERT_EQ(world_.with_key(key, {"fs", "ls", "/"}).exit, 0);
  ASSERT_EQ(world_.admin({"key", "revoke", "mount/host7"}).exit, 0);
  const auto refused = world_.with_key(key, {"fs", "ls", "/"});
  expect_refused(refused, "the key of mount/host7");
  EXPECT_NE(refused.err.find("is revoked"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find(key), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("ff admin key create mount/host7"), std::string::npos) << refused.err;
  const std::string next = world_.file("host7b.key");
  world_.create_key("mount/host7", next);
  EXPECT_EQ(world_.with_key(next, {"fs", "ls", "/"}).exit, 0);
  EXPECT_EQ(world_.audited("keys revoked").size(), 1u);
  // It also outlives a restart of the manager.
  world_.meta().signal(SIGKILL);
  world_.meta().finish();
  world_.start_meta();
  AttackWorld::until("the manager knows the list again", [&] {
    return world_.with_key(key, {"fs", "ls", "/", "--timeout", "10s"}).exit == 5;
  });
  EXPECT_EQ(world_.with_key(next, {"fs", "ls", "/"}).exit, 0);
}

// A revoked storage node leaves the chains, and they go on.
TEST_P(KeysAttack, ARevokedStorageNodeTakesPartInNothing) {
  write_file(world_.file("x"), "words");
  world_.good({"fs", "cp", world_.file("x"), "ff:///x"});
  ASSERT_EQ(world_.admin({"key", "revoke", "storage/s2"}).exit, 0);
  AttackWorld::until("the node is not heard any more", [&] {
    const auto status = world_.status();
    const auto chains = status["chains"];
    return chains.is_object() && chains["whole"] == 0;
  });
  EXPECT_EQ(world_.good({"fs", "cat", "/x"}).out, "words");
}

TEST_P(KeysAttack, AKeyWithALifetimeEnds) {
  const std::string key = world_.file("brief.key");
  world_.create_key("mount/brief", key, {"--lifetime", "2s"});
  AttackWorld::until("the key has expired", [&] {
    const auto ran = world_.with_key(key, {"fs", "ls", "/"});
    return ran.exit == 5 && ran.err.find("expired") != std::string::npos;
  });
}

// Two generations live at once: keys are replaced one by one, and nothing stops.
TEST_P(KeysAttack, KeysRotateWithoutDowntime) {
  const std::string key = world_.file("first.key");
  world_.create_key("mount/host7", key);
  write_file(world_.file("x"), std::string(3'000'000, 'x'));
  const auto works = [&](const std::string& with) {
    const auto ran = world_.with_key(with, {"fs", "cp", world_.file("x"), "ff:///tmp-x"});
    EXPECT_EQ(ran.exit, 0) << ran.err;
  };
  world_.good({"fs", "chmod", "777", "/"});
  works(key);
  ASSERT_EQ(world_.admin({"key", "rotate"}).exit, 0);
  works(key);
  const std::string second = world_.file("second.key");
  world_.create_key("mount/host7", second);
  works(second);
  for (int node = 1; node <= AttackWorld::kNodes; node++) {
    ASSERT_EQ(::unlink(world_.storage_key(node).c_str()), 0);
    world_.create_key(AttackWorld::storage_entity(node), world_.storage_key(node));
    world_.restart_storage(node);
    works(key);
    works(second);
  }
  ASSERT_EQ(world_.admin({"key", "rotate"}).exit, 0);
  works(second);
  const auto old = world_.with_key(key, {"fs", "ls", "/"});
  expect_refused(old, "is of generation 1");
}

INSTANTIATE_TEST_SUITE_P(Over, KeysAttack, testing::ValuesIn(nets()),
                         [](const auto& net) { return std::string(net.param); });

// Finding 6.
// The scheduler and its agents hear of revoked keys from the managers.
TEST(SchedulerAttack, ARevokedKeyMovesNoTask) {
  AttackWorld world("auto");
  Child scheduler(
      {.argv = {FF_BINARY, "schedule", "serve", "--listen", "127.0.0.1:0", "--dir",
                world.file("schedule"), "--key", world.root_key(), "--meta", world.address()},
       .env = world.keyed()});
  ASSERT_TRUE(scheduler.wait_for_out("\n")) << scheduler.err;
  std::string at = scheduler.out.substr(scheduler.out.rfind(' ', scheduler.out.find('\n')) + 1);
  at.resize(at.find('\n'));
  // The task runs as another user.
  ASSERT_EQ(::chmod(world.file("").c_str(), 0755), 0);
  world.create_key("agent/n1", world.file("n1.key"));
  world.create_key("admin/ann", world.file("ann.key"));
  Child agent({.argv = {FF_BINARY, "schedule", "agent", "--scheduler", at, "--name", "n1",
                        "--listen", "127.0.0.1:0", "--dir", world.file("agent"), "--task-dir",
                        world.file("tasks"), "--key", world.file("n1.key")},
               .env = world.keyed()});
  const auto ann = [&](const std::string& command, const Words& words) {
    Words all = {"schedule", command, "--scheduler", at, "--timeout", "20s"};
    all.insert(all.end(), words.begin(), words.end());
    return world.with_key(world.file("ann.key"), all);
  };
  AttackWorld::until("the agent is there",
                     [&] { return ann("nodes", {}).out.find("n1") != std::string::npos; });
  ASSERT_EQ(ann("submit", {"--name", "one", "--user", "nobody", "--", "echo", "done"}).exit, 0);
  AttackWorld::until("the log is read at the agent",
                     [&] { return ann("logs", {"1"}).out.find("done") != std::string::npos; });

  ASSERT_EQ(world.admin({"key", "revoke", "admin/ann"}).exit, 0);
  AttackWorld::until("the scheduler refuses her", [&] { return ann("nodes", {}).exit == 5; });
  const auto refused = ann("submit", {"--name", "two", "--user", "nobody", "--", "true"});
  EXPECT_EQ(refused.exit, 5);
  EXPECT_NE(refused.err.find("admin/ann"), std::string::npos) << refused.err;

  ASSERT_EQ(world.admin({"key", "revoke", "agent/n1"}).exit, 0);
  EXPECT_TRUE(agent.wait_for_err("revoked")) << "the scheduler refuses the agent";
  for (Child* one : {&agent, &scheduler}) {
    one->signal(SIGTERM);
    one->finish();
  }
}

TEST(InsecureAttack, DaemonsAndClientsWithoutAKeySaySo) {
  const TempDir dir;
  const std::map<std::string, std::string> env = {{"FF_INSECURE", "0"}};
  for (const Words& words :
       {Words{"serve-meta", "--dir", dir / "m", "--listen", "127.0.0.1:0"},
        Words{"serve-storage", "--disk", dir / "d", "--listen", "127.0.0.1:0"},
        Words{"schedule", "serve", "--dir", dir / "s", "--listen", "127.0.0.1:0"},
        Words{"schedule", "agent", "--dir", dir / "a", "--listen", "127.0.0.1:0"},
        Words{"fs", "ls", "/"}, Words{"admin", "status"}, Words{"schedule", "list"}}) {
    const auto ran = run_ff(words, env);
    EXPECT_EQ(ran.exit, 2) << words[0] << ran.err;
    EXPECT_NE(ran.err.find("no key is given"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("--insecure"), std::string::npos) << ran.err;
  }
  Child daemon({.argv = {FF_BINARY, "serve-meta", "--insecure", "--dir", dir / "m", "--listen",
                         "127.0.0.1:0"},
                .env = env});
  EXPECT_TRUE(daemon.wait_for_err("every process of this machine may do everything")) << daemon.err;
}

}  // namespace
}  // namespace ff::test
