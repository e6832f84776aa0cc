// serve-meta and admin as an operator types them: a cluster from nothing, nodes that die and come
// back, a lost chain given up, managers that take over from each other, and what can be mistyped.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/child.h"
#include "platform/auth/test_entities.h"
#include "platform/io/system_disk.h"
#include "platform/kv/etcd_cluster.h"
#include "platform/kv/postgres_server.h"

namespace ff::cmd {
namespace {

using Words = std::vector<std::string>;
using nlohmann::json;

test::Launch serve_meta(Words words) {
  test::Launch launch;
  launch.argv = {FF_BINARY, "serve-meta"};
  launch.argv.insert(launch.argv.end(), words.begin(), words.end());
  const bool listens = std::ranges::find(words, "--listen") != words.end();
  if (!listens) launch.argv.insert(launch.argv.end(), {"--listen", "127.0.0.1:0"});
  return launch;
}

// A daemon that has said where it listens.
class Manager {
 public:
  explicit Manager(const Words& words) : child_(serve_meta(words)) {
    EXPECT_TRUE(child_.wait_for_out("listening on ")) << child_.err;
    EXPECT_TRUE(child_.wait_for_out("\n"));
    const size_t at = child_.out.find("127.0.0.1:");
    address = child_.out.substr(at, child_.out.find('\n', at) - at);
  }
  test::Child& child() { return child_; }
  std::string address;

 private:
  test::Child child_;
};

test::Launch node_launch(int id, const std::string& managers) {
  test::Launch launch;
  launch.argv = {FF_HEARTBEAT_NODE, std::to_string(id), managers, "2"};
  launch.stdin_open = true;
  return launch;
}

test::ProcessResult admin(const std::string& managers, Words words) {
  words.insert(words.begin(), "admin");
  return test::run_ff(std::move(words), {{"FF_META", managers}});
}

json admin_json(const std::string& managers, Words words) {
  words.push_back("--json");
  const auto ran = admin(managers, std::move(words));
  const auto parsed = json::parse(ran.out, nullptr, false);
  EXPECT_TRUE(parsed.is_object()) << ran.out << ran.err;
  return parsed;
}

// Looks again until `condition` holds of the status, a minute at most; the last status.
template <class Condition>
json status_until(const std::string& managers, Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (;;) {
    const json status = admin_json(managers, {"status"});
    if (status["data"].contains("chains") && condition(status["data"])) return status;
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "it does not come to that: " << status.dump(1);
      return status;
    }
  }
}

bool all_whole(const json& data) {
  return data["chains"]["all"] > 0 && data["chains"]["whole"] == data["chains"]["all"];
}

// Waits until so many nodes have reported.
void wait_for_nodes(const std::string& managers, size_t count) {
  status_until(managers, [&](const json& data) {
    size_t alive = 0;
    for (const auto& node : data["nodes"]) alive += node["alive"] == true ? 1 : 0;
    return alive >= count;
  });
}

// A manager whose disk takes nothing more keeps no lease: whoever looks is told why, and it goes on
// once there is room.
TEST(Admin, AFullDiskOfTheManagerIsNamed) {
  const test::TempDir dir;
  const std::string disk = dir / "meta";
  ASSERT_EQ(::mkdir(disk.c_str(), 0755), 0);
  if (::mount("none", disk.c_str(), "tmpfs", 0, "size=16m") != 0) {
    GTEST_SKIP() << "file systems cannot be mounted here";
  }
  {
    Manager manager({"--dir", disk});
    ASSERT_EQ(admin(manager.address, {"init"}).exit, 0);
    const std::string filler = disk + "/filler";
    (void)std::system(("dd if=/dev/zero of=" + filler + " bs=4k status=none 2>&1").c_str());
    test::ProcessResult ran;
    EXPECT_TRUE(test::eventually([&] {
      ran = admin(manager.address, {"nodes", "--timeout", "2s"});
      return ran.exit != 0;
    }));
    EXPECT_NE(ran.err.find("No space left on device"), std::string::npos) << ran.err;
    EXPECT_TRUE(manager.child().wait_for_err("No space left on device"));
    EXPECT_EQ(::unlink(filler.c_str()), 0);
    EXPECT_TRUE(test::eventually([&] { return admin(manager.address, {"nodes"}).exit == 0; }));
  }
  EXPECT_EQ(::umount2(disk.c_str(), MNT_DETACH), 0);
}

TEST(Admin, MistakesAreNamed) {
  const test::TempDir dir;
  const Manager manager({"--dir", dir / "meta"});
  const std::string none = "127.0.0.1:1";
  struct Case {
    std::string meta;
    Words words;
    int exit;
    std::string said;
  };
  const std::string& at = manager.address;
  const Case cases[] = {
      {at, {"status"}, 1, "ff admin init"},
      {at, {"nodes"}, 1, "ff admin init"},
      {at, {"drain"}, 2, "--node"},
      {at, {"drain", "--node", "1", "--target", "2"}, 2, "--node"},
      {at, {"plan", "--replicas", "9"}, 2, "1 to 8"},
      {at, {"plan", "--table", "0"}, 2, "--table"},
      {at, {"accept-loss"}, 2, "CHAIN"},
      {at, {"replace-target", "3", "--node", "1"}, 2, "--disk"},
      {at, {"replace-disk", "3"}, 2, "--node"},
      {at, {"statsu"}, 2, "status"},
      {"nowhere", {"status"}, 2, "'nowhere'"},
      {"127.0.0.1:4,", {"status"}, 2, "--meta"},
      {none, {"status", "--timeout", "1s"}, 1, "127.0.0.1:1"},
      {none, {"init", "--timeout", "1s"}, 1, "127.0.0.1:1"},
  };
  for (const Case& one : cases) {
    const auto ran = admin(one.meta, one.words);
    EXPECT_EQ(ran.exit, one.exit) << one.words[0] << ": " << ran.err;
    EXPECT_NE(ran.err.find(one.said), std::string::npos) << one.words[0] << ": " << ran.err;
  }
  EXPECT_EQ(admin(at, {"init"}).exit, 0);
  const auto again = admin(at, {"init"});
  EXPECT_EQ(again.exit, 1);
  EXPECT_NE(again.err.find("already"), std::string::npos) << again.err;
  const auto unknown = admin(at, {"drain", "--node", "n7"});
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_NE(unknown.err.find("there is no node 'n7'"), std::string::npos) << unknown.err;
  EXPECT_EQ(admin(at, {"drain", "--target", "7"}).exit, 2);
  EXPECT_EQ(admin(at, {"replace-target", "3", "--node", "1", "--disk", "1"}).exit, 2);
  EXPECT_EQ(admin(at, {"accept-loss", "7"}).exit, 2);
  const auto early = admin(at, {"plan"});
  EXPECT_EQ(early.exit, 1);
  EXPECT_NE(early.err.find("no storage node has registered yet"), std::string::npos) << early.err;
  const auto waited = admin(at, {"plan", "--apply", "--timeout", "500ms"});
  EXPECT_EQ(waited.exit, 6) << waited.err;
  EXPECT_NE(waited.err.find("waiting for storage nodes: 0 registered"), std::string::npos)
      << waited.err;
  EXPECT_NE(waited.err.find("no storage node has registered yet"), std::string::npos) << waited.err;
  const auto empty = admin(at, {"status"});
  EXPECT_EQ(empty.exit, 3);
  EXPECT_NE(empty.err.find("there are no chains"), std::string::npos) << empty.err;
}

TEST(Admin, AWrongKeyIsRefusedAtOnce) {
  const test::TempDir dir;
  io::SystemDisk disk;
  for (const char* const name : {"good.key", "wrong.key"}) {
    ASSERT_TRUE(auth::make_key_file(disk, dir / name).ok());
  }
  const Manager manager({"--dir", dir / "meta", "--key", dir / "good.key"});
  const std::string& at = manager.address;
  EXPECT_EQ(admin(at, {"init", "--key", dir / "good.key"}).exit, 0);
  const auto wrong = admin(at, {"status", "--key", dir / "wrong.key"});
  EXPECT_EQ(wrong.exit, 5);
  EXPECT_NE(wrong.err.find("does not accept the key of admin/"), std::string::npos) << wrong.err;
  const auto none = admin(at, {"status"});
  EXPECT_EQ(none.exit, 5);
  EXPECT_NE(none.err.find("--key"), std::string::npos) << none.err;
}

void write_token(const std::string& path, const auth::Key& key, auth::TokenId user) {
  test::write_file(path, auth::token_text(key, user));
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
}

TEST(Admin, ATokenIsProvenAndDoesNotDo) {
  const test::TempDir dir;
  io::SystemDisk disk;
  const std::string key = dir / "key";
  ASSERT_TRUE(auth::make_key_file(disk, key).ok());
  write_token(dir / "token", auth::read_key_file(disk, key).value(), {1000, 7});
  write_token(dir / "foreign", auth::Key{}, {1000, 7});
  const Manager manager({"--dir", dir / "meta", "--key", key});
  const std::string& at = manager.address;
  EXPECT_EQ(admin(at, {"init", "--key", key}).exit, 0);
  const auto user = admin(at, {"status", "--token", dir / "token"});
  EXPECT_EQ(user.exit, 5);
  EXPECT_NE(user.err.find("cluster.status is not for the role 'user': admin at "),
            std::string::npos)
      << user.err;
  EXPECT_NE(user.err.find("came as user/u1000"), std::string::npos) << user.err;
  const auto by_environment =
      test::run_ff({"admin", "status", "--meta", at}, {{"FF_TOKEN_FILE", dir / "token"}});
  EXPECT_NE(by_environment.err.find("came as user/u1000"), std::string::npos) << by_environment.err;
  const auto foreign = admin(at, {"status", "--token", dir / "foreign"});
  EXPECT_EQ(foreign.exit, 5);
  EXPECT_NE(foreign.err.find("does not accept the key of user/u1000"), std::string::npos)
      << foreign.err;
}

TEST(Admin, MistakesWithTokensAreNamed) {
  const test::TempDir dir;
  const std::string key = dir / "key";
  const std::string token = auth::token_text(auth::Key{}, {1000, 7});
  write_token(dir / "token", auth::Key{}, {1000, 7});
  write_token(dir / "open", auth::Key{}, {1000, 7});
  std::filesystem::permissions(dir / "open", std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  test::write_file(key, std::string(64, '7') + "\n");
  std::filesystem::permissions(key, std::filesystem::perms::owner_read);
  struct Case {
    Words words;
    int exit;
    std::string said;
  };
  const Case cases[] = {
      {{"--token", dir / "token", "--key", key}, 2, "--key and --token exclude each other"},
      {{"--token", dir / "token", "--net", "verbs"}, 2, "RDMA needs the cluster key"},
      {{"--token", dir / "absent"}, 1, "absent"},
      {{"--token", dir / "open"}, 5, "others may read this key"},
      {{"--token", key}, 3, "not a token"},
      {{"--token", token}, 2, "not the token itself"},
  };
  for (const Case& one : cases) {
    Words words = {"status"};
    words.insert(words.end(), one.words.begin(), one.words.end());
    const auto ran = admin("127.0.0.1:1", words);
    EXPECT_EQ(ran.exit, one.exit) << ran.err;
    EXPECT_NE(ran.err.find(one.said), std::string::npos) << ran.err;
    EXPECT_EQ((ran.out + ran.err).find(token.substr(token.size() - 8)), std::string::npos);
  }
  const auto storage =
      test::run_ff({"serve-storage", "--disk", dir / "disk", "--token", dir / "token"}, {});
  EXPECT_EQ(storage.exit, 2);
  EXPECT_NE(storage.err.find("--token is for clients"), std::string::npos) << storage.err;
  EXPECT_FALSE(std::filesystem::exists(dir / "disk"));
}

TEST(ServeMeta, MistakesAreNamed) {
  const test::TempDir dir;
  struct Case {
    Words words;
    int exit;
    std::string said;
  };
  const std::string file = dir / "file";
  test::write_file(file, "x");
  const Case cases[] = {
      {{"--kv", "foundation"}, 2, "etcd://"},
      {{"--kv", "etcd://"}, 2, "host"},
      {{"--kv", "etcd://a", "--dir", dir / "x"}, 2, "--dir"},
      {{"--kv", "etcd://a", "--etcd-ca", file}, 2, "etcds://"},
      {{"--kv", "etcds://a", "--etcd-cert", file}, 2, "etcd-key"},
      {{"--kv", "etcds://a", "--etcd-ca", dir / "absent"}, 1, "absent"},
      {{"--dir", dir / "a", "--etcd-ca", file}, 2, "etcds://"},
      {{"--kv", "postgres://a"}, 2, "database"},
      {{"--kv", "postgres://u:secret@a/b"}, 2, "passfile"},
      {{"--kv", "postgres://a/b", "--dir", dir / "x"}, 2, "--dir"},
      {{"--kv", "postgres://a/b", "--etcd-ca", file}, 2, "sslrootcert"},
      {{"--dir", dir / "a", "--listen", "0.0.0.0:0"}, 5, "--key"},
      {{"--dir", dir / "a", "--listen", "nonsense"}, 2, "HOST:PORT"},
      {{"--dir", dir / "a", "--advertise", "nonsense"}, 2, "HOST:PORT"},
      {{"--dir", dir / "a", "--http", "nonsense"}, 2, "nonsense"},
      {{"--dir", dir / "a", "--key", dir / "absent"}, 1, "absent"},
      {{"--dir", dir / "a", "--token", dir / "absent"}, 2, "--token is for clients"},
      {{"--dir", file}, 1, "file"},
  };
  for (const Case& one : cases) {
    const auto ran = test::run(serve_meta(one.words));
    EXPECT_EQ(ran.exit, one.exit) << one.words[0] << " " << one.words[1] << ": " << ran.err;
    EXPECT_NE(ran.err.find(one.said), std::string::npos) << one.words[1] << ": " << ran.err;
    EXPECT_EQ(ran.out, "") << one.words[1];
  }
}

TEST(ServeMeta, OneDaemonHasAFolderAndKeepsItsClusterThere) {
  const test::TempDir dir;
  std::string cluster;
  {
    Manager first({"--dir", dir / "meta", "--http", "127.0.0.1:0"});
    const auto second = test::run(serve_meta({"--dir", dir / "meta"}));
    EXPECT_EQ(second.exit, 5) << second.err;
    EXPECT_NE(second.err.find("another serve-meta"), std::string::npos) << second.err;
    EXPECT_EQ(admin(first.address, {"init"}).exit, 0);
    cluster = admin_json(first.address, {"status"})["data"]["cluster"];
    EXPECT_FALSE(cluster.empty());
    first.child().signal(SIGTERM);
    EXPECT_EQ(first.child().finish(), 0) << first.child().err;
  }
  {
    Manager killed({"--dir", dir / "meta"});
    EXPECT_EQ(admin_json(killed.address, {"status"})["data"]["cluster"], cluster);
    killed.child().signal(SIGKILL);
    EXPECT_EQ(killed.child().finish(), 128 + SIGKILL);
  }
  const Manager again({"--dir", dir / "meta"});
  EXPECT_EQ(admin_json(again.address, {"status"})["data"]["cluster"], cluster);
}

TEST(ServeMeta, ACorruptFileIsRefusedUntilTheLossIsAccepted) {
  const test::TempDir dir;
  test::write_file(dir / "meta/meta.db", std::string(8192, 'x'));
  const auto refused = test::run(serve_meta({"--dir", dir / "meta"}));
  EXPECT_EQ(refused.exit, 3) << refused.err;
  EXPECT_NE(refused.err.find("--accept-data-loss"), std::string::npos) << refused.err;
  Manager accepted({"--dir", dir / "meta", "--accept-data-loss"});
  EXPECT_TRUE(accepted.child().wait_for_err("keeps the corrupt file as")) << accepted.child().err;
}

// Disk 2 of the node is full, while others are empty.
void expect_full_disk_told(const std::string& at, const test::Child& node) {
  node.write_stdin("disk 2 used 99\n");
  const json low = status_until(at, [](const json& data) { return data["chains"]["full"] == 2; });
  EXPECT_EQ(low["exit"], 3);
  EXPECT_EQ(low["data"]["fill"]["most_percent"], 99);
  const std::string filled = admin(at, {"status"}).out;
  EXPECT_NE(filled.find("disk 2 (/disk2) is full (99 %)"), std::string::npos) << filled;
  EXPECT_NE(filled.find("2 of 6 chains have a full disk"), std::string::npos) << filled;
  EXPECT_NE(filled.find("disks are filled unequally, from 0 % to 99 %"), std::string::npos)
      << filled;
  EXPECT_NE(admin(at, {"disks"}).out.find("full (99 %)"), std::string::npos);
  node.write_stdin("disk 2 used 0\n");
  status_until(at, [](const json& data) { return data["chains"]["full"] == 0; });
}

// The targets of the broken disk 2 of node 1 go to disk 1; then all go to disk 2, which works
// again.
void expect_disk_replaced(const std::string& at, const test::Child& node) {
  const auto where = admin(at, {"replace-disk", "2", "--node", "n1"});
  EXPECT_EQ(where.exit, 2);
  EXPECT_NE(where.err.find("no healthy disk without targets"), std::string::npos) << where.err;
  const auto replaced = admin(at, {"replace-disk", "2", "--node", "n1", "--with", "1"});
  EXPECT_EQ(replaced.exit, 0) << replaced.err;
  EXPECT_NE(replaced.out.find("2 new targets are on disk 1 instead of disk 2"), std::string::npos)
      << replaced.out;
  status_until(at, all_whole);
  EXPECT_EQ(admin(at, {"replace-disk", "2", "--node", "n1", "--with", "1"}).exit, 1);
  // And back, from a disk that works.
  node.write_stdin("disk 2 good\n");
  status_until(
      at, [](const json& data) { return all_whole(data) && data["nodes"][0]["trouble"].empty(); });
  EXPECT_EQ(admin(at, {"replace-disk", "1", "--node", "1"}).exit, 0);
  status_until(at, all_whole);
}

TEST(Admin, AClusterThroughItsTroubles) {
  const test::TempDir dir;
  Manager manager({"--dir", dir / "meta"});
  const std::string& at = manager.address;
  ASSERT_EQ(admin(at, {"init"}).exit, 0);
  test::Child one(node_launch(1, at)), two(node_launch(2, at));
  auto three = std::make_unique<test::Child>(node_launch(3, at));
  wait_for_nodes(at, 3);
  const auto planned = admin(at, {"plan", "--targets-per-disk", "2", "--replicas", "2"});
  EXPECT_EQ(planned.exit, 0) << planned.err;
  EXPECT_NE(planned.err.find("--apply"), std::string::npos) << planned.err;
  ASSERT_EQ(admin(at, {"plan", "--targets-per-disk", "2", "--replicas", "2", "--apply"}).exit, 0);
  const json whole = status_until(at, all_whole);
  EXPECT_EQ(whole["exit"], 0);
  EXPECT_EQ(whole["data"]["chains"]["all"], 6);

  expect_full_disk_told(at, two);
  // A disk with trouble: named, and its chains are degraded.
  one.write_stdin("disk 2 trouble Input/output error\n");
  status_until(at, [](const json& data) { return data["chains"]["degraded"] > 0; });
  const auto troubled = admin(at, {"status"});
  EXPECT_EQ(troubled.exit, 3);
  EXPECT_NE(troubled.out.find("Input/output error"), std::string::npos) << troubled.out;
  EXPECT_NE(admin(at, {"disks"}).out.find("Input/output error"), std::string::npos);
  // Nothing new is planned for it.
  const auto more = admin(at, {"plan", "--targets-per-disk", "3", "--json"});
  const json plan = json::parse(more.out)["data"];
  EXPECT_FALSE(plan["chains"].empty()) << more.out;
  for (const json& chain : plan["chains"]) {
    for (const json& place : chain) EXPECT_FALSE(place["node"] == 1 && place["disk"] == 2) << chain;
  }
  expect_disk_replaced(at, one);

  // A drained node, and back.
  const auto drain = admin(at, {"drain", "--node", "n2"});
  EXPECT_EQ(drain.exit, 0);
  EXPECT_NE(drain.err.find("No data moves. 4 chains have one replica fewer"), std::string::npos)
      << drain.err;
  status_until(at, [](const json& data) { return data["chains"]["degraded"] == 4; });
  EXPECT_NE(admin(at, {"status"}).out.find("drained by the operator"), std::string::npos);
  EXPECT_NE(admin(at, {"nodes"}).out.find("alive, drained"), std::string::npos);
  EXPECT_EQ(admin(at, {"drain", "--node", "2"}).exit, 1);  // is drained already
  EXPECT_EQ(admin(at, {"undrain", "--node", "2"}).exit, 0);
  status_until(at, all_whole);

  // A node killed and started again: its targets leave at once, and come back.
  three->signal(SIGKILL);
  three->finish();
  three = std::make_unique<test::Child>(node_launch(3, at));
  status_until(at, [](const json& data) { return data["routing_version"] > 20; });
  status_until(at, all_whole);
  EXPECT_NE(admin(at, {"targets"}).out.find("serving"), std::string::npos);
  EXPECT_NE(admin(at, {"chains"}).out.find("1.1"), std::string::npos);
}

// Both nodes of a chain die, one after the other; the second never comes back.
TEST(Admin, ALossIsAcceptedOnlyWhenThereIsOne) {
  const test::TempDir dir;
  Manager manager({"--dir", dir / "meta"});
  const std::string& at = manager.address;
  ASSERT_EQ(admin(at, {"init"}).exit, 0);
  auto one = std::make_unique<test::Child>(node_launch(1, at));
  test::Child planning(
      {.argv = {FF_BINARY, "admin", "plan", "--targets-per-disk", "1", "--apply", "--meta", at}});
  EXPECT_TRUE(planning.wait_for_err("waiting for storage nodes: 1 registered, 2 needed"))
      << planning.err;
  auto two = std::make_unique<test::Child>(node_launch(2, at));
  EXPECT_EQ(planning.finish(), 0) << planning.err;
  status_until(at, all_whole);
  const auto well = admin(at, {"accept-loss", "1", "--yes"});
  EXPECT_EQ(well.exit, 5) << well.err;
  EXPECT_NE(well.err.find("not lost"), std::string::npos) << well.err;

  one->signal(SIGKILL);
  one->finish();
  status_until(at, [](const json& data) { return data["chains"]["degraded"] == 2; });
  two->signal(SIGKILL);
  two->finish();
  const json lost = status_until(at, [](const json& data) { return data["chains"]["lost"] == 2; });
  EXPECT_EQ(lost["exit"], 3);
  ASSERT_EQ(lost["data"]["waiting"].size(), 1u) << lost.dump(1);
  EXPECT_EQ(lost["data"]["waiting"][0]["node"], 2);
  EXPECT_EQ(lost["data"]["waiting"][0]["chains"], json({1, 2}));
  const auto told = admin(at, {"status"});
  EXPECT_NE(told.out.find("has been silent for"), std::string::npos) << told.out;
  EXPECT_NE(told.out.find("waiting for node 2 (n2), which served last: chains 1 2"),
            std::string::npos)
      << told.out;
  const auto nobody = admin(at, {"accept-loss", "1", "--yes"});
  EXPECT_EQ(nobody.exit, 5);
  EXPECT_NE(nobody.err.find("no other live target"), std::string::npos) << nobody.err;

  one = std::make_unique<test::Child>(node_launch(1, at));
  wait_for_nodes(at, 1);
  const auto waits = [](const json& data) {
    size_t count = 0;
    for (const auto& target : data["not_serving"]) {
      count += std::string(target["why"]).find("waiting for target") != std::string::npos ? 1 : 0;
    }
    return count == 2;
  };
  status_until(at, waits);
  const auto unasked = admin(at, {"accept-loss", "1"});  // no terminal to ask on
  EXPECT_EQ(unasked.exit, 5);
  EXPECT_NE(unasked.err.find("--yes"), std::string::npos) << unasked.err;
  const auto accepted = admin(at, {"accept-loss", "1", "--yes"});
  EXPECT_EQ(accepted.exit, 0) << accepted.err;
  status_until(at, [](const json& data) { return data["chains"]["degraded"] == 1; });
  const auto recorded = admin(at, {"status"});
  EXPECT_NE(recorded.out.find("was replaced by"), std::string::npos) << recorded.out;
  // The other comes back after all: emptied and copied to, in one chain; in the other it serves.
  two = std::make_unique<test::Child>(node_launch(2, at));
  status_until(at, all_whole);
}

// Past all that checks it, in a store that nobody has open.
void damage_last_record(const std::string& path) {
  sqlite3* store = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &store), SQLITE_OK);
  const char* sql =
      "UPDATE kv SET value = zeroblob(length(value)) WHERE key = (SELECT max(key) FROM kv)";
  EXPECT_EQ(sqlite3_exec(store, sql, nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_EQ(sqlite3_changes(store), 1);
  sqlite3_close(store);
}

TEST(Admin, ABackupNamesTheDamagedRecordsThatItLacks) {
  const test::TempDir dir;
  const std::string store = dir / "store";
  std::string at;
  {
    Manager manager(Words{"--dir", store});
    at = manager.address;
    ASSERT_EQ(admin(at, {"init"}).exit, 0);
  }
  damage_last_record(store + "/meta.db");
  const auto lacking = admin(at, {"backup", dir / "lacking", "--dir", store});
  EXPECT_EQ(lacking.exit, 3);
  EXPECT_NE(lacking.err.find("lacks 1 damaged record of the store"), std::string::npos)
      << lacking.err;
  EXPECT_EQ(admin(at, {"restore", dir / "lacking", "--dir", dir / "new"}).exit, 0);
}

// An old copy of the database comes back, and the cluster has gone on since.
TEST(Admin, ARestoredBackupTakesOverWhatTheNodesHold) {
  const test::TempDir dir;
  const std::string backup = dir / "backup";
  auto manager = std::make_unique<Manager>(Words{"--dir", dir / "old"});
  const std::string at = manager->address;
  ASSERT_EQ(admin(at, {"init"}).exit, 0);
  test::Child one(node_launch(1, at));
  auto two = std::make_unique<test::Child>(node_launch(2, at));
  wait_for_nodes(at, 2);
  ASSERT_EQ(admin(at, {"plan", "--targets-per-disk", "1", "--apply"}).exit, 0);
  status_until(at, all_whole);
  const auto written = admin(at, {"backup", backup, "--dir", dir / "old"});
  ASSERT_EQ(written.exit, 0) << written.err;
  EXPECT_EQ(admin(at, {"backup", backup, "--dir", dir / "old"}).exit, 1);
  EXPECT_EQ(admin(at, {"backup", dir / "other", "--dir", dir / "nowhere"}).exit, 1);
  EXPECT_FALSE(std::filesystem::exists(dir / "nowhere"));
  const auto busy = admin(at, {"restore", backup, "--dir", dir / "old"});
  EXPECT_EQ(busy.exit, 5) << busy.err;
  ASSERT_EQ(admin(at, {"drain", "--node", "1"}).exit, 0);
  const json drained =
      status_until(at, [](const json& data) { return data["chains"]["degraded"] == 2; });
  const uint64_t version = drained["data"]["routing_version"];
  ASSERT_TRUE(one.wait_for_out(fmt::format("version {}\n", version)));
  ASSERT_TRUE(two->wait_for_out(fmt::format("version {}\n", version)));
  manager->child().signal(SIGKILL);
  manager->child().finish();

  std::string damaged = test::read_file(backup);
  damaged[damaged.size() / 2] ^= 1;
  test::write_file(dir / "damaged", damaged);
  EXPECT_EQ(admin(at, {"restore", dir / "damaged", "--dir", dir / "new"}).exit, 3);
  ASSERT_EQ(admin(at, {"restore", backup, "--dir", dir / "new"}).exit, 0);
  const auto again = admin(at, {"restore", backup, "--dir", dir / "new"});
  EXPECT_EQ(again.exit, 1);
  EXPECT_NE(again.err.find("not empty"), std::string::npos) << again.err;
  const auto root = admin(at, {"restore", backup, "--name", "/", "--dir", dir / "new"});
  EXPECT_EQ(root.exit, 0) << root.err;
  EXPECT_EQ(root.out, "no record of / is missing or damaged\n");
  const auto none = admin(at, {"restore", backup, "--name", "/none", "--dir", dir / "new"});
  EXPECT_EQ(none.exit, 1);
  EXPECT_NE(none.err.find("the backup has no 'none'"), std::string::npos) << none.err;

  two->signal(SIGKILL);
  two->finish();
  manager = std::make_unique<Manager>(Words{"--dir", dir / "new", "--listen", at});
  const json halted = status_until(at, [](const json& data) { return !data["halted"].is_null(); });
  EXPECT_EQ(halted["exit"], 3);
  const auto said = admin(at, {"status"});
  EXPECT_NE(said.err.find("ff admin adopt"), std::string::npos) << said.err;
  // Node 2 is away, and might know more.
  const auto absent = admin(at, {"adopt"});
  EXPECT_EQ(absent.exit, 5) << absent.err;
  test::ProcessResult adopted;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  do {  // the node's offer may still be under way
    adopted = admin(at, {"adopt", "--without-absent"});
  } while (adopted.exit != 0 && std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(adopted.exit, 0) << adopted.err;
  const json after = status_until(at, [&](const json& data) {
    return data["halted"].is_null() && data["routing_version"] >= version;
  });
  EXPECT_EQ(admin(at, {"adopt"}).exit, 5);  // nothing to adopt
  EXPECT_NE(admin(at, {"nodes"}).out.find("drained"), std::string::npos);
  EXPECT_EQ(admin(at, {"undrain", "--node", "1"}).exit, 0);
  two = std::make_unique<test::Child>(node_launch(2, at));
  status_until(at, all_whole);
}

// The state of a cluster moves to a database, where two managers share it, and back into a file.
TEST(ServeMeta, MovesToPostgresAndBack) {
  kv::PostgresServer server;
  const std::string store = kv::PostgresServer::url({server.port()}, server.create_database());
  const test::TempDir dir;
  json before;
  {
    Manager manager(Words{"--dir", dir / "old"});
    ASSERT_EQ(admin(manager.address, {"init"}).exit, 0);
    before = admin_json(manager.address, {"status"})["data"];
  }
  const auto copy = [&](Words words) {
    words.insert(words.begin(), "admin");
    const auto copied = test::run_ff(std::move(words));
    EXPECT_EQ(copied.exit, 0) << copied.err;
  };
  copy({"backup", dir / "one", "--dir", dir / "old"});
  copy({"restore", dir / "one", "--kv", store});
  {
    const Words words = {"--kv", store};
    std::vector<std::unique_ptr<Manager>> managers;
    for (int i = 0; i < 2; i++) managers.push_back(std::make_unique<Manager>(words));
    const std::string all = managers[0]->address + "," + managers[1]->address;
    const json first = admin_json(all, {"status"})["data"];
    EXPECT_EQ(first["cluster"], before["cluster"]);
    for (const auto& manager : managers) {
      if (manager->address != first["primary"]) continue;
      manager->child().signal(SIGKILL);
      manager->child().finish();
    }
    const json second = admin_json(all, {"status"})["data"];
    EXPECT_EQ(second["cluster"], before["cluster"]);
    EXPECT_NE(second["primary"], first["primary"]);
  }
  copy({"backup", dir / "two", "--kv", store});
  copy({"restore", dir / "two", "--dir", dir / "new"});
  Manager manager(Words{"--dir", dir / "new"});
  EXPECT_EQ(admin_json(manager.address, {"status"})["data"]["cluster"], before["cluster"]);
}

TEST(ServeMeta, AnotherTakesOverOnEtcd) {
  kv::EtcdCluster etcd(1);
  const test::TempDir dir;
  const std::string key = dir / "key";
  test::write_file(key, std::string(64, '7') + "\n");
  std::filesystem::permissions(key, std::filesystem::perms::owner_read);
  const std::string store = "etcd://" + etcd.endpoint(0).substr(7);
  std::vector<std::unique_ptr<Manager>> managers;
  std::string all;
  for (int i = 0; i < 3; i++) {
    managers.push_back(std::make_unique<Manager>(Words{"--kv", store, "--key", key}));
    all += (i == 0 ? "" : ",") + managers.back()->address;
  }
  const auto keyed = [&](Words words) {
    words.insert(words.end(), {"--key", key});
    return words;
  };
  const auto stranger = admin(all, {"status", "--timeout", "2s"});
  EXPECT_NE(stranger.exit, 0);
  ASSERT_EQ(admin(all, keyed({"init"})).exit, 0);
  const json before = admin_json(all, keyed({"status"}))["data"];
  for (const auto& manager : managers) {
    if (manager->address != before["primary"]) continue;
    manager->child().signal(SIGKILL);
    manager->child().finish();
  }
  const json after = admin_json(all, keyed({"status"}))["data"];
  EXPECT_EQ(after["cluster"], before["cluster"]);
  EXPECT_NE(after["primary"], before["primary"]);
  EXPECT_GT(after["epoch"], before["epoch"]);
}

}  // namespace
}  // namespace ff::cmd
