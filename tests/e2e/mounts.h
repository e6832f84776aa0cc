// A fixture with a cluster of real daemons and its mounts.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "e2e/child.h"
#include "platform/base/rng.h"

namespace ff::test {

// A mount of the cluster, unmounted at the end.
class Mount {
 public:
  Mount(const std::string& meta, std::string dir, std::vector<std::string> more = {},
        std::string source = "/")
      : dir_(std::move(dir)) {
    (void)::mkdir(dir_.c_str(), 0755);  // may exist after a killed mount
    std::vector<std::string> words = {FF_BINARY, "mount", std::move(source), dir_, "--meta", meta};
    words.insert(words.end(), more.begin(), more.end());
    daemon_ = std::make_unique<Child>(Launch{.argv = words});
    mounted_ = daemon_->wait_for_out("is mounted on");
    EXPECT_TRUE(mounted_) << daemon_->err;
  }
  ~Mount() {
    if (daemon_) end(SIGTERM);
    (void)::umount2(dir_.c_str(), MNT_DETACH);  // after a killed daemon
  }
  std::string operator/(const std::string& name) const { return dir_ + "/" + name; }
  const std::string& dir() const { return dir_; }
  pid_t pid() const { return daemon_->pid(); }  // of its keeper
  bool lives() const {
    siginfo_t info = {};
    const auto id = static_cast<id_t>(pid());
    return ::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  }
  // Waits until the log contains `text`.
  bool logs(const std::string& text) const { return daemon_->wait_for_err(text); }
  // Whether what has been read of the log contains it.
  bool logged(const std::string& text) const { return has(daemon_->err, text); }
  int end(int number) {
    daemon_->signal(number);
    const int exit = daemon_->finish();
    daemon_.reset();
    return exit;
  }

 private:
  const std::string dir_;
  std::unique_ptr<Child> daemon_;
  bool mounted_ = false;
};

// The process that serves the mount of this keeper; 0: there is none now.
inline pid_t serving_process(pid_t keeper) {
  const std::string of = std::to_string(keeper);
  std::ifstream children("/proc/" + of + "/task/" + of + "/children");
  pid_t pid = 0;
  children >> pid;
  return pid;
}

class MountTest : public testing::Test {
 protected:
  void SetUp() override {
    const int fuse = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fuse < 0 || ::geteuid() != 0) GTEST_SKIP() << "FUSE cannot be used here";
    ::close(fuse);
  }
  std::string at(const std::string& name) const { return dir_ / name; }
  TempDir dir_;
};

inline void put(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  EXPECT_TRUE(out.good()) << path;
}

inline std::string get(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string bytes(uint64_t seed, size_t size) {
  SeededRng rng(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(rng.below(256));
  return text;
}

}  // namespace ff::test
