// What programs are told of writes that fail after they were answered, on a mount of real daemons
// whose only disk is full; and appends that fcntl(2) has asked for.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "e2e/local_cluster.h"
#include "e2e/mounts.h"

namespace ff::test {
namespace {

constexpr size_t kMiBytes = 1 << 20;

// One node, whose disks are memory of so many MiB.
class SmallCluster {
 public:
  explicit SmallCluster(int mib, int second_mib = 0) {
    disk_ = add_disk("disk", mib);
    std::vector<std::string> storage = {"--node", "1", "--disk", disk_};
    if (second_mib > 0) {
      second_ = add_disk("second", second_mib);
      storage.insert(storage.end(), {"--disk", second_});
    }
    start("serve-meta", {"--dir", dir_ / "meta"}, meta_);
    address_ = meta_->out.substr(meta_->out.rfind(' ', meta_->out.find('\n')) + 1);
    address_.resize(address_.find('\n'));
    admin({"init"});
    storage.insert(storage.end(), {"--meta", address_});
    start("serve-storage", storage, node_);
    EXPECT_TRUE(eventually([&] {
      return admin({"plan", "--replicas", "1", "--targets-per-disk", "2", "--apply"}).exit == 0;
    }));
  }
  ~SmallCluster() {
    node_->signal(SIGKILL);
    meta_->signal(SIGKILL);
    node_.reset();
    (void)::umount2(disk_.c_str(), MNT_DETACH);
    if (!second_.empty()) (void)::umount2(second_.c_str(), MNT_DETACH);
  }
  const std::string& address() const { return address_; }
  void grow(int mib) {
    EXPECT_EQ(::mount("none", disk_.c_str(), "tmpfs", MS_REMOUNT, size(mib).c_str()), 0);
  }
  ProcessResult admin(std::vector<std::string> words) {
    words.insert(words.begin(), "admin");
    return run_ff(std::move(words), {{"FF_META", address_}});
  }

 private:
  static std::string size(int mib) { return "size=" + std::to_string(mib) + "m"; }
  static void start(const std::string& what, std::vector<std::string> words,
                    std::unique_ptr<Child>& into) {
    words.insert(words.begin(), {FF_BINARY, what, "--listen", "127.0.0.1:0"});
    into = std::make_unique<Child>(Launch{.argv = words});
    EXPECT_TRUE(into->wait_for_out("listening")) << into->err;
  }
  std::string add_disk(const std::string& name, int mib) {
    const std::string disk = dir_ / name;
    EXPECT_EQ(::mkdir(disk.c_str(), 0755), 0);
    EXPECT_EQ(::mount("none", disk.c_str(), "tmpfs", 0, size(mib).c_str()), 0);
    return disk;
  }

  TempDir dir_;
  std::string disk_;
  std::string second_;
  std::string address_;
  std::unique_ptr<Child> meta_;
  std::unique_ptr<Child> node_;
};

// What a call ended with.
int errno_of(int64_t result) { return result < 0 ? errno : 0; }

class MountWritersTest : public MountTest {
 protected:
  // Until nothing fits any more; should nothing be mounted there, not for ever.
  static void fill(const std::string& path) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT, 0644);
    const std::string text = bytes(1, kMiBytes);
    int error = 0;
    for (int64_t at = 0; error == 0 && at < int64_t{4} << 30; at += kMiBytes) {
      error = errno_of(::pwrite(file, text.data(), text.size(), at));
      if (error == 0) error = errno_of(::fsync(file));
    }
    EXPECT_EQ(error, ENOSPC);
    ::close(file);
  }
  static int open(const std::string& path, int flags = 0) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | flags, 0644);
    EXPECT_GE(file, 0) << path << ": " << errno;
    return file;
  }
};

TEST_F(MountWritersTest, NobodyEatsTheErrorOfAnotherOpenFile) {
  SmallCluster cluster(200);
  const Mount mount(cluster.address(), at("mnt"));
  const std::string text = bytes(2, kMiBytes);
  const auto size = static_cast<ssize_t>(text.size());
  // Through what other calls the only report went once.
  const std::vector<std::pair<std::string, std::function<void(int)>>> calls = {
      {"system", [](int) { EXPECT_EQ(std::system("true"), 0); }},
      {"dup", [](int file) { ::close(::dup(file)); }},
      {"read",
       [&](int file) {
         std::string back(text.size(), '\0');
         EXPECT_EQ(::pread(file, back.data(), back.size(), 0), size);
         EXPECT_TRUE(back == text);
       }},
      {"lseek", [](int file) { (void)::lseek(file, 0, SEEK_DATA); }},
      {"futimens", [](int file) { (void)::futimens(file, nullptr); }},
      {"ftruncate", [&](int file) { (void)::ftruncate(file, size); }},
      {"fallocate", [](int file) { (void)::fallocate(file, 0, 0, 100); }},
  };
  std::vector<int> files;
  for (const auto& [name, call] : calls) files.push_back(open(mount / name));
  const int reader = ::open((mount / "system").c_str(), O_RDONLY);
  fill(mount / "filler");
  for (size_t i = 0; i < calls.size(); i++) {
    ASSERT_EQ(::write(files[i], text.data(), text.size()), size) << calls[i].first;
    calls[i].second(files[i]);
    EXPECT_EQ(errno_of(::fsync(files[i])), ENOSPC) << calls[i].first;
    EXPECT_EQ(errno_of(::close(::dup(files[i]))), ENOSPC) << calls[i].first;
  }
  EXPECT_EQ(errno_of(::fsync(reader)), ENOSPC);
  cluster.grow(1500);
  for (size_t i = 0; i < calls.size(); i++) {
    // The error of an attempt that failed by itself meanwhile may still be told.
    EXPECT_TRUE(eventually([&] { return ::fsync(files[i]) == 0; })) << calls[i].first;
    EXPECT_EQ(errno_of(::close(files[i])), 0) << calls[i].first;
  }
  ::close(reader);
  const Mount other(cluster.address(), at("other"));
  for (const auto& [name, call] : calls) EXPECT_TRUE(get(other / name) == text) << name;
}

// A disk that is full is named, and new files go where there is room.
TEST_F(MountWritersTest, AFullDiskIsToldAndLeftOut) {
  SmallCluster cluster(700, 3000);
  EXPECT_TRUE(eventually([&] { return cluster.admin({"status"}).exit == 0; }));
  const Mount mount(cluster.address(), at("mnt"));
  fill(mount / "filler");
  ProcessResult status;
  EXPECT_TRUE(eventually([&] {
    status = cluster.admin({"status"});
    return status.exit == 3;
  })) << status.out;
  EXPECT_NE(status.out.find("/disk) is "), status.out.npos) << status.out;
  EXPECT_NE(status.out.find("full"), status.out.npos) << status.out;
  EXPECT_EQ(status.out.find("/second) is "), status.out.npos) << status.out;
  EXPECT_NE(cluster.admin({"disks"}).out.find("full ("), status.out.npos);
  const std::string text = bytes(4, 8 * kMiBytes);
  int number = 0;
  EXPECT_TRUE(eventually([&] {
    const int file = open(mount / fmt::format("new{}", number++));
    const bool written =
        ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
        ::fsync(file) == 0;
    ::close(file);
    return written;
  }));
}

TEST_F(MountWritersTest, WhoAsksForItAtOnceIsToldAtOnce) {
  SmallCluster cluster(200);
  const Mount mount(cluster.address(), at("mnt"));
  const int dsync = open(mount / "dsync", O_DSYNC);
  const int plain = open(mount / "plain");
  const int mapped = open(mount / "mapped");
  std::string text = bytes(3, kMiBytes);
  ASSERT_EQ(::ftruncate(mapped, kMiBytes), 0);
  void* const memory = ::mmap(nullptr, kMiBytes, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const pages = static_cast<char*>(memory);
  fill(mount / "filler");
  EXPECT_EQ(errno_of(::write(dsync, text.data(), text.size())), ENOSPC);
  const iovec one{text.data(), text.size()};
  EXPECT_EQ(errno_of(::pwritev2(plain, &one, 1, 0, RWF_DSYNC)), ENOSPC);
  std::ranges::copy(text, pages);
  EXPECT_EQ(errno_of(::msync(memory, kMiBytes, MS_SYNC)), ENOSPC);
  cluster.grow(1500);
  EXPECT_EQ(errno_of(::pwritev2(plain, &one, 1, 0, RWF_DSYNC)), 0);
  EXPECT_TRUE(eventually([&] { return ::msync(memory, kMiBytes, MS_SYNC) == 0; }));
  ::munmap(memory, kMiBytes);
  for (const int file : {dsync, plain, mapped}) ::close(file);
  const Mount other(cluster.address(), at("other"));
  EXPECT_TRUE(get(other / "mapped") == text);
  EXPECT_TRUE(get(other / "plain") == text);
}

// Records of processes that say only later that they append.
void append_records(const std::string& path, int writer, int count) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT, 0644);
  if (::fcntl(file, F_SETFL, O_APPEND) != 0) ::_exit(2);
  for (int i = 0; i < count; i++) {
    const std::string record = fmt::format("{}:{:06}:{}\n", writer, i, std::string(50, 'x'));
    if (::write(file, record.data(), record.size()) != static_cast<ssize_t>(record.size())) {
      ::_exit(1);
    }
  }
  ::_exit(::close(file) == 0 ? 0 : 1);
}

// Processes on these mounts, in turn, and what they have left.
std::string log_of(const std::vector<const Mount*>& mounts, const std::string& name, int count) {
  std::vector<pid_t> writers;
  for (int i = 0; i < 4; i++) {
    const pid_t child = ::fork();
    const Mount& mount = *mounts[static_cast<size_t>(i) % mounts.size()];
    if (child == 0) append_records(mount / name, i, count);
    writers.push_back(child);
  }
  for (const pid_t child : writers) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::string log = get(*mounts.front() / name);
  EXPECT_EQ(log.size(), size_t{60} * 4 * static_cast<size_t>(count));
  std::remove((*mounts.front() / name).c_str());
  return log;
}

TEST_F(MountWritersTest, FlagsThatAreSetLaterAppend) {
  constexpr int kRecords = 100;
  const Mount one(shared_cluster().address(), at("one"));
  const Mount two(shared_cluster().address(), at("two"));
  const std::string log = log_of({&one}, "log", kRecords);
  for (int i = 0; i < 4 * kRecords; i++) {
    const std::string record =
        fmt::format("{}:{:06}:{}\n", i / kRecords, i % kRecords, std::string(50, 'x'));
    EXPECT_NE(log.find(record), log.npos) << record;
  }
  // The kernel cuts a record where a page ends, so that another mount's may come between; but none
  // lies over another.
  const std::string both = log_of({&one, &two}, "both", kRecords);
  EXPECT_EQ(std::ranges::count(both, 'x'), 4 * kRecords * 50);
  EXPECT_EQ(std::ranges::count(both, '\n'), 4 * kRecords);
}

}  // namespace
}  // namespace ff::test
