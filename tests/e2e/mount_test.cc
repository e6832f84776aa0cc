// `ff mount` with real daemons: programs see a file system like any other, two mounts see what the
// other has closed, and daemons that are killed cost programs nothing but time.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "e2e/local_cluster.h"
#include "e2e/mounts.h"

namespace ff::test {
namespace {

namespace fs = std::filesystem;

TEST_F(MountTest, TheCornersOfPosix) {
  const Mount mount(shared_cluster().address(), at("mnt"));
  Child corners(
      Launch{.argv = {"python3", std::string(FF_SOURCE_DIR) + "/tests/storage/mount/corners.py",
                      mount.dir()}});
  EXPECT_EQ(corners.finish(), 0) << corners.out << corners.err;
}

TEST_F(MountTest, ProgramsDoAnythingWhileDaemonsAreKilled) {
  Child stress(
      Launch{.argv = {"python3", std::string(FF_SOURCE_DIR) + "/tests/storage/mount/stress.py",
                      FF_BINARY, at("stress"), "--seconds", "10", "--processes", "4",
                      "--kill-every", "3", "--seed", "7"}});
  EXPECT_EQ(stress.finish(), 0) << stress.out << stress.err;
}

TEST_F(MountTest, AnOpenSeesWhatAnotherMountHasClosed) {
  const Mount one(shared_cluster().address(), at("one"));
  const Mount two(shared_cluster().address(), at("two"));
  fs::create_directory(one / "closed");
  for (int i = 0; i < 50; i++) {
    // Of equal length, so that nothing but the content tells them apart.
    put(one / "closed/a", fmt::format("round {:04}", i));
    EXPECT_EQ(get(two / "closed/a"), fmt::format("round {:04}", i));
    put(two / "closed/a", fmt::format("reply {:04}", i));
    EXPECT_EQ(get(one / "closed/a"), fmt::format("reply {:04}", i));
    // Under a name that both know.
    put(one / "closed/b", fmt::format("new {}", i));
    fs::rename(one / "closed/b", one / "closed/c");
    EXPECT_EQ(get(two / "closed/c"), fmt::format("new {}", i));
  }
  fs::remove_all(one / "closed");
  // Without opening it: attributes are believed for a second.
  EXPECT_TRUE(eventually([&] { return !fs::exists(two / "closed/a"); }));
}

TEST_F(MountTest, WhoReadsAlreadySeesNewLengthsSoon) {
  const Mount one(shared_cluster().address(), at("one"));
  const Mount two(shared_cluster().address(), at("two"));
  put(one / "tail", "first\n");
  std::ifstream reader(two / "tail");
  std::string line;
  ASSERT_TRUE(std::getline(reader, line));
  std::ofstream writer(one / "tail", std::ios::app);
  writer << "second" << std::endl;
  EXPECT_TRUE(eventually([&] {
    reader.clear();
    return static_cast<bool>(std::getline(reader, line)) && line == "second";
  }));
  fs::remove(one / "tail");
}

// Each process appends lines of its own through one of two mounts.
void append_lines(const std::string& path, int writer, int count) {
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0644);
  for (int i = 0; i < count; i++) {
    const std::string line = fmt::format("{}:{:06}:{}\n", writer, i, std::string(50, 'x'));
    if (::write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::_exit(1);
  }
  ::_exit(::close(file) == 0 ? 0 : 1);
}

TEST_F(MountTest, AppendsFromTwoMountsKeepApart) {
  constexpr int kWriters = 4;
  constexpr int kLines = 100;
  const Mount one(shared_cluster().address(), at("one"));
  const Mount two(shared_cluster().address(), at("two"));
  std::vector<pid_t> writers;
  for (int i = 0; i < kWriters; i++) {
    const pid_t child = ::fork();
    if (child == 0) append_lines((i % 2 == 0 ? one : two) / "log", i, kLines);
    writers.push_back(child);
  }
  for (const pid_t child : writers) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::vector<int> next(kWriters, 0);
  std::ifstream log(one / "log");
  int lines = 0;
  for (std::string line; std::getline(log, line); lines++) {
    ASSERT_EQ(line.size(), 59u) << line;
    const int writer = line[0] - '0';
    ASSERT_TRUE(writer >= 0 && writer < kWriters) << line;
    EXPECT_EQ(std::stoi(line.substr(2, 6)), next[static_cast<size_t>(writer)]++) << line;
  }
  EXPECT_EQ(lines, kWriters * kLines);
  fs::remove(one / "log");
}

TEST_F(MountTest, ADirectoryOfTheClusterAndReadOnly) {
  const Mount all(shared_cluster().address(), at("all"));
  fs::create_directories(all / "a/b");
  put(all / "a/b/file", "text");
  {
    const Mount part(shared_cluster().address(), at("part"), {"--read-only"}, "/a");
    EXPECT_EQ(get(part / "b/file"), "text");
    EXPECT_EQ(fs::weakly_canonical(part / "b/.."), fs::path(part.dir()));
    EXPECT_LT(::open((part / "b/file").c_str(), O_WRONLY), 0);
    EXPECT_EQ(errno, EROFS);
    EXPECT_NE(::mkdir((part / "c").c_str(), 0755), 0);
    EXPECT_EQ(errno, EROFS);
  }
  fs::remove_all(all / "a");
}

TEST_F(MountTest, AKilledMountLeavesWhatItHadAcknowledged) {
  LocalCluster& cluster = shared_cluster();
  const std::string text = bytes(1, 3'000'000);
  Mount first(cluster.address(), at("mnt"));
  put(first / "closed", text);
  const int synced = ::open((first / "synced").c_str(), O_WRONLY | O_CREAT, 0644);
  ASSERT_EQ(::write(synced, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ASSERT_EQ(::fsync(synced), 0);
  first.end(SIGKILL);
  struct stat info = {};
  EXPECT_NE(::stat((first / "closed").c_str(), &info), 0);
  // The others: of io_uring.
  EXPECT_TRUE(errno == ENOTCONN || errno == ECANCELED || errno == ECONNABORTED) << errno;
  EXPECT_NE(::write(synced, "x", 1), 1);
  ::close(synced);
  // On what the other has left there.
  const Mount second(cluster.address(), at("mnt"));
  EXPECT_EQ(get(second / "closed"), text);
  EXPECT_EQ(get(second / "synced"), text);
  fs::remove(second / "closed");
  fs::remove(second / "synced");
}

TEST_F(MountTest, AStoppedMountWritesWhatProgramsHaveGivenIt) {
  Mount first(shared_cluster().address(), at("mnt"));
  const std::string text = bytes(2, 500'000);
  const int file = ::open((first / "open").c_str(), O_WRONLY | O_CREAT, 0644);
  ASSERT_EQ(::write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(first.end(SIGTERM), 0);
  ::close(file);
  const Mount second(shared_cluster().address(), at("mnt"));
  EXPECT_EQ(get(second / "open"), text);
  fs::remove(second / "open");
}

// Writes files and reads them back, again and again, until it is told to stop; the first trouble.
class Load {
 public:
  explicit Load(std::string dir) : dir_(std::move(dir)), thread_([this] { run(); }) {}
  ~Load() { stop(); }
  std::string stop() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
    return trouble_;
  }
  int rounds() const { return rounds_; }

 private:
  void run() {
    for (uint64_t seed = 1; !ended_ && trouble_.empty(); seed++) {
      const std::string path = dir_ + "/load" + std::to_string(seed % 4);
      round(path, bytes(seed, 200'000 + (seed * 37'003) % 3'000'000));
      rounds_++;
    }
  }
  void round(const std::string& path, const std::string& text) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0) return fail("open");
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t wrote = ::write(file, text.data() + done, text.size() - done);
      if (wrote <= 0) return fail("write");
      done += static_cast<size_t>(wrote);
    }
    if (::fsync(file) != 0) return fail("fsync");
    if (::close(file) != 0) return fail("close");
    std::ifstream in(path, std::ios::binary);
    const std::string back(std::istreambuf_iterator<char>(in), {});
    if (back != text) trouble_ = fmt::format("{} of {} bytes are back", back.size(), text.size());
  }
  void fail(const char* what) { trouble_ = fmt::format("{}: errno {}", what, errno); }

  const std::string dir_;
  std::atomic<bool> ended_ = false;
  std::atomic<int> rounds_ = 0;
  std::string trouble_;
  std::thread thread_;
};

TEST_F(MountTest, DaemonsThatAreKilledCostNothingButTime) {
  LocalCluster cluster;
  const Mount mount(cluster.address(), at("mnt"));
  Load load(mount.dir());
  const auto goes_on = [&load] {
    const int before = load.rounds();
    return eventually([&] { return load.rounds() > before + 2; });
  };
  EXPECT_TRUE(goes_on());
  cluster.kill(1);
  EXPECT_TRUE(goes_on()) << "without a node";
  cluster.start(1);
  cluster.until_whole();
  cluster.kill_meta();
  cluster.start_meta();
  EXPECT_TRUE(goes_on()) << "with a new manager";
  EXPECT_EQ(load.stop(), "");
}

TEST_F(MountTest, APebibyteOfNothing) {
  const Mount mount(shared_cluster().address(), at("mnt"));
  const Mount other(shared_cluster().address(), at("other"));
  constexpr off_t kLength = off_t{1} << 50;
  constexpr off_t kFar = (off_t{1} << 49) + 5'000'000;
  const int file = ::open((mount / "sparse").c_str(), O_RDWR | O_CREAT, 0644);
  const int beside = ::open((other / "sparse").c_str(), O_WRONLY | O_APPEND);
  ASSERT_GE(file, 0);
  ASSERT_GE(beside, 0);
  constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  EXPECT_EQ(::ftruncate(file, kLength), 0);
  EXPECT_EQ(::fallocate(file, kPunch, 0, kLength), 0);
  EXPECT_EQ(::lseek(file, 0, SEEK_DATA), -1);
  EXPECT_EQ(errno, ENXIO);
  EXPECT_EQ(::lseek(file, 7, SEEK_HOLE), 7);
  EXPECT_EQ(::pwrite(file, "far", 3, kFar), 3);
  EXPECT_EQ(::write(beside, "end", 3), 3);
  const off_t data = ::lseek(file, 0, SEEK_DATA);
  EXPECT_LE(data, kFar);
  EXPECT_GT(data, kFar - (off_t{1} << 20));
  EXPECT_EQ(::lseek(file, kLength, SEEK_DATA), kLength);
  EXPECT_EQ(::fallocate(file, kPunch, 0, kLength), 0);
  EXPECT_EQ(::lseek(file, 0, SEEK_DATA), kLength);
  char text[4] = {};
  EXPECT_EQ(::pread(file, text, 3, kLength), 3);
  EXPECT_STREQ(text, "end");
  EXPECT_EQ(::pread(file, text, 3, kFar), 3);
  EXPECT_EQ(std::string(text, 3), std::string(3, '\0'));
  ::close(file);
  ::close(beside);
  fs::remove(mount / "sparse");
}

// A program that waits for a daemon can be interrupted, and is told that it was.
TEST_F(MountTest, WhoWaitsForADaemonCanBeInterrupted) {
  LocalCluster cluster;
  // Over io_uring, Linux 6.18 loses a signal that comes before the mount has the request.
  const Mount mount(cluster.address(), at("mnt"), {"--no-io-uring"});
  cluster.kill_meta();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const std::string path = mount / "file";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    struct sigaction action = {};
    action.sa_handler = [](int) {};  // and no SA_RESTART
    ::sigaction(SIGUSR1, &action, nullptr);
    if (::write(ends[1], "x", 1) != 1) ::_exit(1);
    struct stat info;
    ::_exit(::stat(path.c_str(), &info) != 0 ? errno : 0);
  }
  ::close(ends[1]);
  char said = 0;
  ASSERT_EQ(::read(ends[0], &said, 1), 1);
  ::close(ends[0]);
  int status = 0;
  EXPECT_TRUE(eventually([&] {
    ::kill(child, SIGUSR1);
    return ::waitpid(child, &status, WNOHANG) == child;
  }));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), EINTR);
}

}  // namespace
}  // namespace ff::test
