// Mounts whose serving processes are killed again and again, or replaced, while a program works in
// each: the programs see no error, and nothing that they were told is lost, also for other mounts,
// with delegations and without.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "e2e/local_cluster.h"
#include "e2e/mounts.h"
#include "platform/base/clock.h"
#include "platform/base/fd.h"
#include "storage/mount/fuse_device.h"
#include "storage/mount/keeper_channel.h"
#include "storage/usrbio/iov_link_name.h"
#include "storage/usrbio/ring.h"
#include "storage/usrbio/shm.h"

namespace ff::test {
namespace {

constexpr int64_t kKillingNs = 6 * kSecond;
constexpr size_t kTimesMin = 4;

// A program that changes a directory and knows what must be in it.
class Program {
 public:
  Program(std::string dir, uint64_t seed) : dir_(std::move(dir)), rng_(seed) {}
  ~Program() { close_all(); }

  void step() {
    switch (rng_.below(11)) {
      case 0: return create();
      case 1:
      case 2: return write();
      case 3:
      case 4: return append();
      case 5: return rename();
      case 6: return remove();
      case 7: return sync();
      case 8:
      case 9: return store();
      default: return truncate();
    }
  }
  // What it wrote is on all mounts then.
  void close_all() {
    for (const auto& [name, file] : open_) {
      EXPECT_EQ(::close(file), 0) << name << ": " << std::strerror(errno);
    }
    open_.clear();
  }
  // `dir`: the same directory, maybe on another mount.
  void check(const std::string& dir) const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir)) {
      names.insert(entry.path().filename());
    }
    std::map<std::string, std::string> all = files_;
    all.insert(stored_.begin(), stored_.end());
    for (const auto& [name, text] : all) {
      EXPECT_TRUE(names.erase(name) == 1) << name << " is missing";
      const std::string found = get(dir + "/" + name);
      EXPECT_EQ(found.size(), text.size()) << name;
      if (found == text) continue;
      const auto [at, other] = std::ranges::mismatch(found, text);
      ADD_FAILURE() << name << " differs at byte " << at - found.begin();
    }
    for (const std::string& name : names) ADD_FAILURE() << name << " must not exist";
  }
  size_t steps() const { return steps_; }

 private:
  void expect(bool done, const char* what, const std::string& name) {
    steps_++;
    EXPECT_TRUE(done) << what << " " << name << ": " << std::strerror(errno);
  }
  std::string path(const std::string& name) const { return dir_ + "/" + name; }
  std::string any() {
    auto at = files_.begin();
    std::advance(at, rng_.below(files_.size()));
    return at->first;
  }
  void create() {
    const std::string name = "f" + std::to_string(last_++);
    const int file = ::open(path(name).c_str(), O_RDWR | O_CREAT | O_EXCL, 0644);
    expect(file >= 0, "create", name);
    if (file < 0) return;
    expect(::flock(file, LOCK_EX | LOCK_NB) == 0, "lock", name);
    files_[name] = "";
    open_[name] = file;
  }
  // Small files that are closed at once; removes one now and then.
  void store() {
    if (rng_.below(4) == 0 && !stored_.empty()) {
      const std::string name = stored_.rbegin()->first;
      expect(::unlink(path(name).c_str()) == 0, "unlink", name);
      stored_.erase(name);
      return;
    }
    const std::string name = "s" + std::to_string(last_++);
    const std::string data = bytes(rng_.next(), 1 + rng_.below(9000));
    const int file = ::open(path(name).c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
    expect(file >= 0, "create", name);
    const ssize_t got = ::write(file, data.data(), data.size());
    expect(got == static_cast<ssize_t>(data.size()), "write", name);
    expect(::close(file) == 0, "close", name);
    stored_[name] = data;
  }
  void write() {
    if (files_.empty()) return;
    const std::string name = any();
    std::string& text = files_[name];
    const uint64_t offset = rng_.below(text.size() + 1);
    const std::string data =
        bytes(rng_.next(), 1 + rng_.below(rng_.below(8) == 0 ? 1 << 21 : 5000));
    const int file = open_[name];
    const ssize_t got = ::pwrite(file, data.data(), data.size(), static_cast<off_t>(offset));
    expect(got == static_cast<ssize_t>(data.size()), "write", name);
    if (text.size() < offset + data.size()) text.resize(offset + data.size());
    text.replace(offset, data.size(), data);
  }
  void append() {
    if (files_.empty()) return;
    const std::string name = any();
    const int file = ::open(path(name).c_str(), O_WRONLY | O_APPEND);
    expect(file >= 0, "open", name);
    const std::string data = bytes(rng_.next(), 1 + rng_.below(300));
    const ssize_t got = ::write(file, data.data(), data.size());
    expect(got == static_cast<ssize_t>(data.size()), "append", name);
    expect(::close(file) == 0, "close", name);
    files_[name] += data;
  }
  void rename() {
    if (files_.empty()) return;
    const std::string from = any();
    const bool replaces = rng_.below(2) == 0;
    const std::string to = replaces ? any() : "r" + std::to_string(last_++);
    if (from == to) return;
    expect(::rename(path(from).c_str(), path(to).c_str()) == 0, "rename", from);
    if (replaces) close(to);
    files_[to] = std::move(files_[from]);
    open_[to] = open_[from];
    files_.erase(from);
    open_.erase(from);
  }
  void close(const std::string& name) {
    // It has no name any more, and its bytes are still there.
    const std::string& text = files_[name];
    std::string found(text.size(), '?');
    const ssize_t got = ::pread(open_[name], found.data(), found.size(), 0);
    expect(got == static_cast<ssize_t>(text.size()) && found == text, "read", name);
    expect(::close(open_[name]) == 0, "close", name);
  }
  void remove() {
    if (files_.size() < 8) return;
    const std::string name = any();
    expect(::unlink(path(name).c_str()) == 0, "unlink", name);
    close(name);
    files_.erase(name);
    open_.erase(name);
  }
  void sync() {
    if (files_.empty()) return;
    const std::string name = any();
    expect(::fsync(open_[name]) == 0, "fsync", name);
  }
  void truncate() {
    if (files_.empty()) return;
    const std::string name = any();
    const uint64_t length = rng_.below(files_[name].size() + 100);
    expect(::ftruncate(open_[name], static_cast<off_t>(length)) == 0, "truncate", name);
    files_[name].resize(length);
  }

  const std::string dir_;
  SeededRng rng_;
  std::map<std::string, std::string> files_;
  std::map<std::string, int> open_;
  std::map<std::string, std::string> stored_;  // not open
  uint64_t last_ = 0;
  std::atomic<size_t> steps_ = 0;
};

class MountKeeperTest : public MountTest {
 protected:
  // Until the time is over, a program works in a directory of its own on each mount, and `disturb`
  // is called with one of the mounts at random. Then all mounts must have what the programs know.
  template <class Disturb>
  void work(const std::vector<Mount*>& mounts, Disturb disturb) {
    const uint64_t seed = system_seed();
    std::cout << "seed " << seed << "\n";
    SystemClock clock;
    const int64_t until_ns = clock.steady_ns() + kKillingNs;
    std::vector<std::unique_ptr<Program>> programs;
    for (size_t i = 0; i < mounts.size(); i++) {
      const std::string dir = *mounts[i] / directory(i);
      ASSERT_EQ(::mkdir(dir.c_str(), 0755), 0);
      programs.push_back(std::make_unique<Program>(dir, seed + i));
    }
    std::atomic<bool> over = false;
    std::vector<std::thread> working;
    for (const auto& program : programs) {
      working.emplace_back([&over, &program] {
        while (!over && !HasFailure()) program->step();
      });
    }
    SeededRng rng(seed + mounts.size());
    size_t times = 0;
    while ((clock.steady_ns() < until_ns || times < kTimesMin) && !HasFailure()) {
      const size_t which = rng.below(mounts.size());
      const Program& program = *programs[which];
      // So long that the keeper does not give up.
      const size_t wanted = program.steps() + 50 + rng.below(50);
      EXPECT_TRUE(eventually([&] { return program.steps() >= wanted || HasFailure(); }));
      disturb(*mounts[which]);
      times++;
    }
    over = true;
    for (std::thread& one : working) one.join();
    for (size_t i = 0; i < mounts.size(); i++) {
      std::cout << times << " times, " << programs[i]->steps() << " steps\n";
      programs[i]->close_all();
      for (const Mount* const mount : mounts) programs[i]->check(*mount / directory(i));
    }
  }
  static std::string directory(size_t number) { return "work" + std::to_string(number); }
  static void kill_serving_process(const Mount& mount) {
    pid_t pid = 0;
    EXPECT_TRUE(eventually([&] {
      pid = serving_process(mount.pid());
      return pid > 0 || !mount.lives();
    }));
    ASSERT_GT(pid, 0);
    ::kill(pid, SIGKILL);
  }
};

TEST_F(MountKeeperTest, ProgramsGoOnWhenTheServingProcessesAreKilled) {
  LocalCluster cluster;
  {
    Mount one(cluster.address(), at("one"), {"--no-io-uring"});
    Mount two(cluster.address(), at("two"), {"--no-io-uring", "--delegations"});
    work({&one, &two}, kill_serving_process);
    EXPECT_EQ(one.end(SIGTERM), 0);
    EXPECT_EQ(two.end(SIGTERM), 0);
  }
  EXPECT_EQ(run_ff({"admin", "fsck", "--meta", cluster.address()}).exit, 0);
}

TEST_F(MountKeeperTest, AnotherProgramReplacesTheServingProcess) {
  LocalCluster cluster;
  Mount mount(cluster.address(), at("mnt"), {"--no-io-uring"});
  work({&mount}, [&](Mount&) {
    const pid_t before = serving_process(mount.pid());
    const ProcessResult replaced = run_ff({"mount", "--replace", mount.dir()});
    EXPECT_EQ(replaced.exit, 0) << replaced.err;
    EXPECT_NE(serving_process(mount.pid()), before);
  });
  EXPECT_EQ(mount.end(SIGTERM), 0);
  const ProcessResult none = run_ff({"mount", "--replace", mount.dir()});
  EXPECT_NE(none.exit, 0);
  EXPECT_TRUE(has(none.err, "no ff file system is mounted there")) << none.err;
}

// As `ff mount --replace` connects to the keeper.
Fd connect_to_keeper(const Mount& mount) {
  const std::string name = "ff-mount-keeper-" + mount::mounted_device(mount.dir());
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::ranges::copy(name, address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  return socket;
}

// On a busy machine, a program may connect and stand still for a while.
TEST_F(MountKeeperTest, AProgramThatAsksLateGetsAnAnswerAndKeepsNobodyWaiting) {
  Mount mount(shared_cluster().address(), at("mnt"), {"--no-io-uring"});
  const Fd late = connect_to_keeper(mount);
  const ProcessResult replaced = run_ff({"mount", "--replace", mount.dir()});
  EXPECT_EQ(replaced.exit, 0) << replaced.err;
  const auto sent = mount::send_message(late.get(), mount::KeeperMessageType::replace);
  ASSERT_TRUE(sent.ok()) << sent.error().message;
  const auto answer = mount::receive_message(late.get(), true);
  ASSERT_TRUE(answer.ok() && *answer);
  EXPECT_EQ((*answer)->type, mount::KeeperMessageType::error);  // it has not said which program
}

// The keeper hears both before it answers one.
TEST_F(MountKeeperTest, OfTwoReplacementsAtOnceOneGetsTheReasonWhyNot) {
  Mount mount(shared_cluster().address(), at("mnt"), {"--no-io-uring"});
  const Fd program(::open(FF_BINARY, O_PATH | O_CLOEXEC));
  ::kill(mount.pid(), SIGSTOP);
  const Fd first = connect_to_keeper(mount), second = connect_to_keeper(mount);
  for (const int one : {first.get(), second.get()}) {
    const auto sent =
        mount::send_message(one, mount::KeeperMessageType::replace, {}, program.get());
    EXPECT_TRUE(sent.ok()) << sent.error().message;
  }
  ::kill(mount.pid(), SIGCONT);
  const auto served = mount::receive_message(first.get(), true);
  ASSERT_TRUE(served.ok() && *served);
  EXPECT_EQ((*served)->type, mount::KeeperMessageType::ready);
  const auto refused = mount::receive_message(second.get(), true);
  ASSERT_TRUE(refused.ok() && *refused);
  EXPECT_EQ((*refused)->type, mount::KeeperMessageType::error);
  EXPECT_TRUE(has((*refused)->text, "is being started or stopped")) << (*refused)->text;
}

TEST_F(MountKeeperTest, AReplacementWaitsUntilTheMountIsServedAgain) {
  Mount mount(shared_cluster().address(), at("mnt"), {"--no-io-uring"});
  for (int i = 0; i < 3; i++) {
    kill_serving_process(mount);
    const ProcessResult replaced = run_ff({"mount", "--replace", mount.dir()});
    EXPECT_EQ(replaced.exit, 0) << replaced.err;
  }
}

// The rings and memory of a program without names.
class RingProgram {
 public:
  RingProgram(const Mount& mount, int seed)
      : child_({.argv = {FF_USRBIO_PROGRAM, "load", mount.dir(),
                         mount / ("rings" + std::to_string(seed)), std::to_string(seed)}}) {}
  Child& child() { return child_; }
  // Waits until it has done some more rounds.
  void expect_progress() {
    const size_t last = child_.out.rfind("round ");
    const int round = last == std::string::npos ? 0 : std::atoi(child_.out.c_str() + last + 6);
    EXPECT_TRUE(child_.wait_for_out("round " + std::to_string(round + 5) + "\n")) << child_.out;
  }

 private:
  Child child_;
};

size_t descriptors(pid_t pid) {
  const std::string dir = "/proc/" + std::to_string(pid) + "/fd";
  return static_cast<size_t>(std::ranges::distance(std::filesystem::directory_iterator(dir)));
}

TEST_F(MountKeeperTest, RingsGoOnWhenTheServingProcessIsKilledOrReplaced) {
  Mount mount(shared_cluster().address(), at("mnt"), {"--no-io-uring"});
  const size_t before = descriptors(mount.pid());
  std::vector<std::unique_ptr<RingProgram>> programs;
  for (int seed = 1; seed <= 2; seed++) {
    programs.push_back(std::make_unique<RingProgram>(mount, seed));
    programs.back()->expect_progress();
  }
  for (int i = 0; i < 6 && !HasFailure(); i++) {
    if (i % 3 == 2) {
      const ProcessResult replaced = run_ff({"mount", "--replace", mount.dir()});
      EXPECT_EQ(replaced.exit, 0) << replaced.err;
    } else {
      kill_serving_process(mount);
    }
    for (const auto& program : programs) program->expect_progress();
  }
  for (const auto& program : programs) {
    program->child().signal(SIGTERM);
    EXPECT_EQ(program->child().finish(), 0) << program->child().out;
    EXPECT_TRUE(has(program->child().out, "all is well")) << program->child().out;
  }
  EXPECT_TRUE(eventually([&] { return descriptors(mount.pid()) == before; }));
}

TEST_F(MountKeeperTest, WhatAProgramLeavesWhileNobodyServesTheMountIsGivenBack) {
  Mount mount(shared_cluster().address(), at("mnt"), {"--no-io-uring"});
  const size_t before = descriptors(mount.pid());
  RingProgram program(mount, 1);
  program.expect_progress();
  EXPECT_GT(descriptors(mount.pid()), before);
  const pid_t serving = serving_process(mount.pid());
  ::kill(mount.pid(), SIGSTOP);
  ::kill(serving, SIGKILL);
  program.child().signal(SIGKILL);  // it ends when its files are closed
  ::kill(mount.pid(), SIGCONT);
  EXPECT_EQ(program.child().finish(), 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return descriptors(mount.pid()) == before; }));
}

TEST_F(MountKeeperTest, ManyRingsLeaveTheKeeperTheDescriptorsThatItNeeds) {
  Mount mount(shared_cluster().address(), at("mnt"), {"--no-io-uring", "--threads", "1"});
  constexpr rlimit kFew = {600, 600};
  ASSERT_EQ(::prlimit(mount.pid(), RLIMIT_NOFILE, &kFew, nullptr), 0);
  usrbio::Shm ring;
  ASSERT_EQ(usrbio::create_shm(usrbio::ring_bytes(1), -1, ring), 0);
  auto& head = *static_cast<usrbio::RingHeader*>(ring.base);
  head.magic = usrbio::kRingMagic;
  head.version = usrbio::kRingVersion;
  head.entries = 1;
  for (rlim_t i = 0; i < kFew.rlim_cur + 100; i++) {
    const std::string link =
        usrbio::text_of({.id = usrbio::random_id(), .ring = true, .read = true});
    ASSERT_EQ(::symlink(ring.path.c_str(), (mount / "3fs-virt/iovs/" + link).c_str()), 0);
  }
  ::unlink(ring.path.c_str());
  usrbio::unmap(ring);
  EXPECT_TRUE(mount.logs("more rings and memory of programs than"));
  kill_serving_process(mount);
  put(mount / "few", "text");
  EXPECT_EQ(get(mount / "few"), "text");
  const ProcessResult replaced = run_ff({"mount", "--replace", mount.dir()});
  EXPECT_EQ(replaced.exit, 0) << replaced.err;
  EXPECT_EQ(get(mount / "few"), "text");
}

TEST_F(MountKeeperTest, AListingContinuesAndAProgramThatFailsAtOnceIsNotStartedForever) {
  LocalCluster cluster;
  Mount mount(cluster.address(), at("mnt"), {"--no-io-uring"});
  std::set<std::string> wanted;
  for (int i = 0; i < 300; i++) {
    const std::string name = "a rather long name of a file number " + std::to_string(i);
    put(mount / name, "");
    wanted.insert(name);
  }
  DIR* const dir = ::opendir(mount.dir().c_str());
  ASSERT_NE(dir, nullptr);
  for (int read = 0; const dirent* const entry = ::readdir(dir); read++) {
    if (read == 100) {
      const pid_t pid = serving_process(mount.pid());
      ::kill(pid, SIGKILL);
    }
    wanted.erase(entry->d_name);
    const std::string name = entry->d_name;
    if (name.starts_with("a ")) {
      EXPECT_EQ(::unlink((mount / name).c_str()), 0) << name;
    }
  }
  ::closedir(dir);
  EXPECT_EQ(wanted.size(), 0U);
  pid_t last = 0;
  EXPECT_TRUE(eventually([&] {
    const pid_t pid = serving_process(mount.pid());
    if (pid > 0 && pid != last) ::kill(pid, SIGKILL);
    last = pid;
    return !mount.lives();
  }));
  struct stat info = {};
  EXPECT_TRUE(::stat((mount / "x").c_str(), &info) != 0);
}

}  // namespace
}  // namespace ff::test
