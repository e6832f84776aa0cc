// A cluster of real daemons on hosts of their own: a manager, three storage nodes, and programs
// that write, read and sync all the time while nodes are killed, halted and cut off. Nothing that
// was acknowledged may be lost, what programs see is linearizable, and in the end everything
// serves again (storage.md, "Chains": Promise).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/daemons.h"
#include "lab/scenario/chain_load.h"

namespace ff::cmd {
namespace {

using scenario::chain_parts::ChainLoad;
using scenario::chain_parts::History;

class StorageTest : public DaemonsTest {
 protected:
  void TearDown() override {
    close_programs();
    DaemonsTest::TearDown();
  }

  // Until they have done so much more.
  void work_goes_on(const std::string& when) {
    const uint64_t updates = history_.updates() + 20, reads = history_.reads() + 20;
    until("work goes on: " + when,
          [&] { return history_.updates() >= updates && history_.reads() >= reads; });
  }
  void start_programs() {
    for (int i = 0; i < 3; i++) {
      loads_.push_back(std::make_unique<ChainLoad>(
          *context_, std::vector{net::parse_address(meta()).value()}, history_,
          [](const std::string& what) { ADD_FAILURE() << what; }));
    }
    work_goes_on("at the start");
  }
  void close_programs() {
    for (auto& load : loads_) run_task(loop_, load->close());
    loads_.clear();
  }
  // What befell the cluster is over: everything serves again, and work went on.
  void recovers(const std::string& from) {
    SCOPED_TRACE(from);
    until("all chains serve after " + from, [&] { return all_serve(); });
    work_goes_on("after " + from);
    ASSERT_FALSE(HasFailure()) << from;
  }

  History history_{[](const std::string& what) { ADD_FAILURE() << what; }, [] {}};
  std::vector<std::unique_ptr<ChainLoad>> loads_;
};

TEST_F(StorageTest, NothingAcknowledgedIsLostWhateverBefallsIt) {
  start_programs();

  kill(1);
  work_goes_on("while node 1 is dead");
  start(1);
  recovers("kill -9 of a node");

  kill(2, SIGTERM);
  EXPECT_EQ(daemons_[2]->err.find("before the manager has confirmed"), std::string::npos)
      << daemons_[2]->err;
  work_goes_on("while node 2 is down");
  start(2);
  recovers("a hand-over at SIGTERM");

  // It wakes up with all its memory and sockets, long after others have taken over.
  daemons_[3]->signal(SIGSTOP);
  until("the halted node is found out", [&] { return !all_serve(); });
  work_goes_on("while node 3 is halted");
  daemons_[3]->signal(SIGCONT);
  recovers("SIGSTOP");

  kill(kMeta);
  run_for(kSecond);
  start_meta();
  recovers("kill -9 of the manager");

  hosts_.cut(1, kMeta);
  hosts_.cut(kMeta, 1);
  until("the node without manager is found out", [&] { return !all_serve(); });
  work_goes_on("while node 1 is cut from its manager");
  hosts_.heal(1, kMeta);
  hosts_.heal(kMeta, 1);
  recovers("a cut from the manager");

  hosts_.cut(2, 3);
  until("the target behind the cut is out", [&] {
    return admin({"status", "--json"}).out.find("could not reach it") != std::string::npos;
  });
  EXPECT_EQ(admin({"status"}).exit, 3);
  work_goes_on("while nothing passes from node 2 to node 3");
  hosts_.heal(2, 3);
  recovers("a one-way cut between nodes");

  for (size_t node = 1; node <= kNodes; node++) kill(node);
  for (size_t node = 1; node <= kNodes; node++) start(node);
  recovers("kill -9 of all nodes");

  for (const auto& load : loads_) load->stop_writing();
  run_for(2 * kSecond);
  EXPECT_EQ(history_.losses(), 0u);
}

TEST_F(StorageTest, DamagedBlocksAreRepaired) {
  history_.expect_repairs();
  start_programs();
  for (size_t node = 1; node <= kNodes; node++) {
    const std::string path = disk(node) + "/64KiB.data";
    const auto data = disk_.open(path, {.access = io::AccessMode::read_write});
    ASSERT_TRUE(data) << data.error().message;
    // Somewhere in every block.
    std::string noise(64, 'x');
    for (uint64_t at = 100; at < (*data)->info()->size; at += 64 * kKiB) {
      ASSERT_TRUE((*data)->write_at(as_bytes(noise), at));
    }
    ASSERT_TRUE((*data)->sync());
    work_goes_on("with damage on node " + std::to_string(node));
    until("all chains serve", [&] { return all_serve(); });
  }
  // What was not written over before anybody read it.
  close_programs();
  bool repaired = false;
  for (size_t node = 1; node <= kNodes; node++) {
    kill(node, SIGTERM);
    repaired |= daemons_[node]->err.find("repaired a damaged chunk") != std::string::npos;
  }
  EXPECT_TRUE(repaired);
}

// One chain over all three nodes; node 3's replica is new, and gets nothing while `slow_`.
class LossTest : public DaemonsTest {
 protected:
  Words placement() const override { return {"--replicas", "3", "--targets-per-disk", "1"}; }
  Words command(size_t node) const override {
    Words words = DaemonsTest::command(node);
    if (slow_) words.insert(words.end(), {"--resync-limit", "1"});
    return words;
  }
  test::ProcessResult fs(Words words) {
    words.insert(words.begin(), "fs");
    return test::run_ff(std::move(words), {{"FF_META", meta()}, {"FF_KEY", key()}});
  }
  uint64_t target_on(size_t node) {
    const json parsed = json::parse(admin({"targets", "--json"}).out, nullptr, false);
    for (const json& target : parsed["data"]["targets"]) {
      if (target["node"] == node) return target["target"];
    }
    return 0;
  }
  std::string state_of(size_t node) {
    const json parsed = json::parse(admin({"targets", "--json"}).out, nullptr, false);
    for (const json& target : parsed["data"]["targets"]) {
      if (target["node"] == node) return target["state"];
    }
    return "";
  }
  bool lost() { return status()["chains"]["lost"] == 1; }
  test::ProcessResult accept(Words more = {}) {
    Words words = {"accept-loss", "1", "--yes"};
    words.insert(words.end(), more.begin(), more.end());
    return admin(words);
  }

  bool slow_ = true;
};

TEST_F(LossTest, TheReplicaThatHasEverythingIsPromotedAndTheOthersAreKept) {
  std::string content;
  for (int i = 0; content.size() < 4 * kMiB; i++) content += "line " + std::to_string(i) + "\n";
  test::write_file(dir_ / "content", content);
  const auto holds = [&] { return fs({"cat", "ff://" + meta() + "/f"}).out == content; };
  ASSERT_EQ(fs({"cp", dir_ / "content", "ff://" + meta() + "/f"}).exit, 0);
  kill(3, SIGTERM);
  until("node 3 is out", [&] { return state_of(3) == "offline"; });
  ASSERT_EQ(
      admin({"replace-target", std::to_string(target_on(3)), "--node", "3", "--disk", "1"}).exit,
      0);
  start(3);
  until("a new one is being filled", [&] { return state_of(3) == "syncing"; });
  kill(2, SIGTERM);
  until("node 2 is out", [&] { return state_of(2) == "offline"; });
  kill(1);
  until("the chain is lost", [&] { return lost(); });

  // One that has everything is known, and is not alive.
  const std::string first = std::to_string(target_on(1)), second = std::to_string(target_on(2)),
                    third = std::to_string(target_on(3));
  const auto dead = accept();
  EXPECT_EQ(dead.exit, 5);
  EXPECT_NE(dead.err.find("target " + second + " on node 2"), std::string::npos) << dead.err;
  EXPECT_EQ(accept({"--promote", third}).exit, 5);
  start(2);
  until("node 2 waits", [&] { return state_of(2) == "waiting"; });
  EXPECT_EQ(accept({"--promote", third}).exit, 5);
  const auto accepted = accept();
  EXPECT_EQ(accepted.exit, 0) << accepted.err;
  EXPECT_NE(accepted.out.find("target " + second + " serves"), std::string::npos) << accepted.out;
  until("it serves", [&] { return state_of(2) == "serving"; });
  EXPECT_TRUE(holds());

  // What the dead one had is kept when it comes back, beside a new one in its place.
  slow_ = false;
  for (const size_t node : {2, 3}) {
    kill(node);
    start(node);
  }
  start(1);
  until("all chains serve", [&] { return all_serve(); });
  // What was being filled may have got a chunk.
  const json before = status();
  json aside;
  for (const json& kept : before["set_aside"]) {
    if (std::to_string(kept["target"].get<uint64_t>()) == first) aside = kept;
  }
  ASSERT_TRUE(aside.is_object()) << before["set_aside"].dump();
  EXPECT_TRUE(aside["complete"]);
  EXPECT_GE(aside["bytes"], content.size());
  EXPECT_NE(admin({"status"}).out.find("aside    chain 1: target " + first + " on node 1"),
            std::string::npos);

  // And can be chosen after all: now the others are kept.
  const auto back = accept({"--promote", first});
  EXPECT_EQ(back.exit, 0) << back.err;
  until("it serves again", [&] { return state_of(1) == "serving" && all_serve(); });
  EXPECT_EQ(std::to_string(target_on(1)), first);
  EXPECT_TRUE(holds());
  const json after = status();
  for (const json& kept : after["set_aside"]) {
    EXPECT_EQ(admin({"drop-target", std::to_string(kept["target"].get<uint64_t>())}).exit, 0);
  }
  until("nothing is kept", [&] { return status()["set_aside"].empty(); });
  EXPECT_EQ(admin({"status"}).exit, 0);
  EXPECT_TRUE(holds());
}

// What the index names and the disk no longer has is copied before the target serves: then it is
// enough alone.
TEST_F(StorageTest, BlockFilesLostAtARestartAreFilledAgain) {
  start_programs();
  kill(1);
  until("the dead node is found out", [&] { return !all_serve(); });
  ASSERT_TRUE(std::filesystem::remove(disk(1) + "/64KiB.data"));
  start(1);
  recovers("the loss of a block file");
  until("status says so", [&] { return admin({"status"}).exit == 0; });
  kill(2);
  kill(3);
  work_goes_on("with what was copied alone");
}

// Node 1 keeps its disk on a small file system.
class SmallDiskTest : public StorageTest {
 protected:
  void SetUp() override {
    StorageTest::SetUp();
    kill(1);
    const std::string small = disk(1) + "-small";
    std::filesystem::create_directory(small);
    ASSERT_EQ(std::system(("mount -t tmpfs -o size=128m ff " + small).c_str()), 0);
    ASSERT_EQ(std::system(("cp -a " + disk(1) + "/. " + small + "/").c_str()), 0);
    std::filesystem::rename(disk(1), disk(1) + "-old");
    std::filesystem::create_directory(disk(1));
    ASSERT_EQ(std::system(("mount --move " + small + " " + disk(1)).c_str()), 0);
  }
  void TearDown() override {
    close_programs();
    if (daemons_[1] != nullptr) kill(1, SIGTERM);
    EXPECT_EQ(std::system(("umount " + disk(1)).c_str()), 0);
    StorageTest::TearDown();
  }
  // All of it, or most.
  void fill(const std::string& mib = "") {
    const std::string count = mib.empty() ? "" : " count=" + mib;
    (void)std::system(
        ("dd if=/dev/zero of=" + filler() + " bs=1M status=none 2>/dev/null" + count).c_str());
  }
  std::string filler() { return disk(1) + "/filler"; }
};

// What else fills the disk goes again: nothing but new data was refused meanwhile.
TEST_F(SmallDiskTest, AFullDiskRefusesWhatItHasNoRoomFor) {
  start(1);
  until("node 1 is back", [&] { return status()["nodes"][0]["restarts"] == 1 && all_serve(); });
  start_programs();
  fill();
  const uint64_t reads = history_.reads() + 50;
  until("reads go on", [&] { return history_.reads() >= reads; });
  EXPECT_TRUE(all_serve());
  std::filesystem::remove(filler());
  recovers("a full disk");
}

TEST_F(SmallDiskTest, ATargetWithoutRoomForItsCopyComesBackOnceThereIs) {
  start_programs();
  fill("110");  // what is left is enough to start with
  start(1);
  until("node 1 says that its disk is full",
        [&] { return status().dump().find("the disk is full") != std::string::npos; });
  work_goes_on("without it");
  std::filesystem::remove(filler());
  recovers("a full disk");
}

// Nodes with two disks each; the second one of the last is a file system of its own, which only
// that node sees, and which can fail.
class FailingDiskTest : public StorageTest {
 protected:
  static constexpr size_t kNode = kNodes;

  void SetUp() override {
    const std::string make = "truncate -s 512M " + image() + " && mkfs.ext4 -q " + image();
    if (std::system(make.c_str()) != 0) GTEST_SKIP() << "no ext4 here";
    std::filesystem::create_directory(failing());
    const std::string tried =
        "unshare -m mount -o loop " + image() + " " + failing() + " 2>/dev/null";
    if (std::system(tried.c_str()) != 0) GTEST_SKIP() << "file systems cannot be mounted here";
    wait_until_free();
    StorageTest::SetUp();
  }
  std::string image() const { return dir_ / "image"; }
  std::string failing() const { return disk(kNode) + "b"; }
  Words disks(size_t node) const override { return {disk(node), disk(node) + "b"}; }
  Words command(size_t node) const override {
    Words words = StorageTest::command(node);
    if (node != kNode || !mounts_) return words;
    // `ip netns exec` has given it mounts of its own, which go with it.
    words.insert(
        words.begin(),
        {"sh", "-c", "mount -o loop " + image() + " " + failing() + " && exec \"$@\"", "sh"});
    return words;
  }
  // As if it had been pulled out, once all that was written is there.
  void fail_disk() {
    const std::string path =
        "/proc/" + std::to_string(daemons_[kNode]->pid()) + "/root" + failing();
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_GE(fd, 0) << path;
    uint32_t how = 0;                                           // EXT4_GOING_FLAGS_DEFAULT
    EXPECT_EQ(::ioctl(fd, _IOR('X', 125, uint32_t), &how), 0);  // EXT4_IOC_SHUTDOWN
    ::close(fd);
  }
  void wait_until_free() {
    until("the image is no longer in use", [&] {
      return test::run({.argv = {"losetup", "-j", image()}}).out.empty();
    });
  }
  // Of the failing disk; empty: none.
  std::string trouble() {
    const auto ran = admin({"disks", "--json"});
    const json listed = json::parse(ran.out)["data"]["disks"];
    for (const json& one : listed) {
      if (one["path"] == failing() && one["trouble"].is_string()) return one["trouble"];
    }
    return {};
  }
  bool some_serve() {
    const json chains = status()["chains"];
    return chains["whole"] > 0 && chains["whole"] < chains["all"];
  }

  bool mounts_ = true;
};

TEST_F(FailingDiskTest, TakesOnlyItsTargetsDown) {
  start_programs();
  fail_disk();
  until("the failed disk is reported", [&] { return !trouble().empty() && some_serve(); });
  work_goes_on("with a failed disk");
  EXPECT_TRUE(some_serve());

  // Its folder cannot be read: the node goes on with its other disk.
  kill(kNode);
  wait_until_free();
  mounts_ = false;
  start(kNode);
  until("the missing disk is reported", [&] { return !trouble().empty() && some_serve(); });
  work_goes_on("without the disk");

  kill(kNode);
  mounts_ = true;
  start(kNode);
  recovers("a failed disk");
  EXPECT_EQ(trouble(), "");
}

TEST_F(StorageTest, TheChainsAreMeasuredAndLeftAsTheyWere) {
  const auto bench = [&](Words more) {
    Words words = {"bench", "chain", "--size", "64MiB", "--rounds", "1", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return test::run_ff(std::move(words), {{"FF_META", meta()}, {"FF_KEY", key()}});
  };
  const auto ran = bench({"--raw", dir_.path().string()});
  ASSERT_EQ(ran.exit, 0) << ran.out << ran.err;
  const json data = json::parse(ran.out)["data"];
  EXPECT_EQ(data["replicas"], 3);
  ASSERT_EQ(data["rows"].size(), 4u);
  for (const json& row : data["rows"]) {
    EXPECT_GT(row["chain_bytes_per_second"], 0) << row.dump();
    EXPECT_GT(row["ratio"], 0) << row.dump();
  }
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("ff-bench")) << entry.path();
  }
  EXPECT_EQ(bench({"--table", "9"}).exit, 1);
  EXPECT_EQ(bench({"--size", "1MiB"}).exit, 2);
  EXPECT_EQ(bench({"--raw", dir_ / "nowhere"}).exit, 1);
}

}  // namespace
}  // namespace ff::cmd
