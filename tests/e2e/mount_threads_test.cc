// Mounts with several threads: programs read files that others write and cut at the same time,
// and never get what an acknowledged change has replaced, also while the serving process is killed.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "e2e/local_cluster.h"
#include "e2e/mounts.h"

namespace ff::test {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kPages = 8;
using Page = std::array<uint64_t, kPageBytes / sizeof(uint64_t)>;

// A file of pages, each full of the version that its last write had.
class VersionedFile {
 public:
  VersionedFile(std::string name, uint64_t seed) : name_(std::move(name)), rng_(seed) {
    file_ = ::open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    direct_ = ::open(name_.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
    EXPECT_TRUE(file_ >= 0 && direct_ >= 0) << name_ << ": " << std::strerror(errno);
    for (size_t page = 0; page < kPages; page++) write(file_, page);
  }
  ~VersionedFile() {
    EXPECT_EQ(::close(file_), 0);
    EXPECT_EQ(::close(direct_), 0);
  }

  // One change, by the only writer.
  void change() {
    if (written_end_ == 0) expect_empty();  // what readers have asked before may come late
    const uint64_t kind = rng_.below(12);
    if (kind > 0) return write(kind < 6 ? file_ : direct_, rng_.below(kPages));
    // From the start of a truncation on, a page may be gone; from its end on, older ones are.
    for (auto& one : written_) one = 0;
    const bool cut = ::ftruncate(direct_, 0) == 0;
    EXPECT_TRUE(cut) << std::strerror(errno);
    written_end_ = 0;
    expect_empty();
    oldest_ = version_ + 1;
  }
  // Any page, by any reader: through the mount, or from pages that the kernel has.
  void read(SeededRng& rng) const {
    alignas(kPageBytes) Page data = {};
    const size_t page = rng.below(kPages);
    const uint64_t oldest = oldest_;
    const uint64_t written = written_[page];
    const int file = rng.below(2) == 0 ? file_ : direct_;
    const ssize_t got = ::pread(file, data.data(), kPageBytes, offset(page));
    ASSERT_GE(got, 0) << std::strerror(errno);
    for (const uint64_t one : data) {
      if (one == 0) {  // perhaps since a truncation that began meanwhile
        ASSERT_TRUE(written == 0 || written_[page] != written) << "page " << page << " is gone";
      } else {
        ASSERT_GE(one, std::max(written, oldest)) << "page " << page << " is old";
      }
    }
  }

 private:
  static off_t offset(size_t page) { return static_cast<off_t>(page * kPageBytes); }
  void expect_empty() const {
    alignas(kPageBytes) Page data;
    EXPECT_EQ(::pread(direct_, data.data(), kPageBytes, 0), 0) << "behind a truncation";
  }
  void write(int file, size_t page) {
    alignas(kPageBytes) Page data;
    data.fill(++version_);
    const ssize_t put = ::pwrite(file, data.data(), kPageBytes, offset(page));
    EXPECT_EQ(put, static_cast<ssize_t>(kPageBytes)) << std::strerror(errno);
    written_[page] = version_;
    written_end_ = std::max(written_end_, page + 1);
  }

  const std::string name_;
  SeededRng rng_;
  int file_ = -1;    // its writes go to write-behind
  int direct_ = -1;  // bypasses the pages of the kernel
  uint64_t version_ = 0;
  size_t written_end_ = 0;                                  // pages
  std::array<std::atomic<uint64_t>, kPages> written_ = {};  // acknowledged; 0: may be gone
  std::atomic<uint64_t> oldest_ = 0;                        // any that is there is as new
};

class MountThreadsTest : public MountTest {
 protected:
  // Eight programs read two files, which two others change.
  static void read_and_change(const Mount& mount, int changes, std::atomic<int>& changed) {
    std::vector<std::unique_ptr<VersionedFile>> files;
    std::vector<std::thread> programs;
    std::atomic<int> writing = 2;
    for (uint64_t i = 0; i < 2; i++) {
      files.push_back(std::make_unique<VersionedFile>(mount / ("f" + std::to_string(i)), i + 1));
    }
    for (uint64_t i = 0; i < 8; i++) {
      programs.emplace_back([&, i] {
        SeededRng rng(100 + i);
        while (writing > 0 && !HasFailure()) files[i % 2]->read(rng);
      });
    }
    for (const auto& file : files) {
      programs.emplace_back([&] {
        for (int i = 0; i < changes && !HasFailure(); i++) {
          file->change();
          changed++;
        }
        writing--;
      });
    }
    for (std::thread& one : programs) one.join();
  }
  // How often the threads that answer only reads have slept, and so worked.
  static uint64_t sleeps(pid_t pid) {
    uint64_t all = 0;
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      std::ifstream status(task.path() / "status");
      bool worker = false;
      for (std::string line; std::getline(status, line);) {
        worker |= line.starts_with("Name:\tff-mount-");
        const std::string word = "voluntary_ctxt_switches:";
        if (worker && line.starts_with(word)) all += std::stoull(line.substr(word.size()));
      }
    }
    return all;
  }
};

TEST_F(MountThreadsTest, ReadersNeverGetWhatAnAcknowledgedChangeHasReplaced) {
  Mount mount(shared_cluster().address(), at("mnt"), {"--threads", "4", "--no-io-uring"});
  EXPECT_TRUE(mount.logs("several threads"));
  EXPECT_TRUE(mount.logged("threads=4"));
  std::atomic<int> changed = 0;
  read_and_change(mount, 250, changed);
  EXPECT_GT(sleeps(serving_process(mount.pid())), 100u) << "one thread has done all";
  EXPECT_EQ(mount.end(SIGTERM), 0);
}

TEST_F(MountThreadsTest, ProgramsReadOnWhenTheProcessIsKilled) {
  Mount mount(shared_cluster().address(), at("mnt"), {"--threads", "4", "--no-io-uring"});
  EXPECT_TRUE(mount.logs("several threads"));
  std::atomic<int> changed = 0;
  constexpr int kChanges = 200;
  std::thread programs([&] { read_and_change(mount, kChanges, changed); });
  for (int kills = 1; kills <= 3; kills++) {
    EXPECT_TRUE(eventually([&] { return changed > kills * 100 || HasFailure(); }));
    const pid_t pid = serving_process(mount.pid());
    ASSERT_GT(pid, 0);
    EXPECT_EQ(::kill(pid, SIGKILL), 0);
    EXPECT_TRUE(eventually([&] {
      const pid_t now = serving_process(mount.pid());
      return (now > 0 && now != pid) || HasFailure();
    }));
  }
  programs.join();
  EXPECT_EQ(mount.end(SIGTERM), 0);
}

}  // namespace
}  // namespace ff::test
