// Rings on a real mount of a real cluster: programs in C and Python that know the interface alone,
// many at once, killed in the middle, and one that forges rings by hand. Whatever it does, the
// mount goes on, and what others read and write is right.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <optional>
#include <set>

#include "e2e/local_cluster.h"
#include "platform/base/rng.h"
#include "storage/usrbio/hf3fs_usrbio.h"
#include "storage/usrbio/iov_link_name.h"
#include "storage/usrbio/ring.h"
#include "storage/usrbio/shm.h"

namespace ff::cmd {
namespace {

constexpr uint64_t kIovBytes = 4 << 20;
constexpr uint32_t kEntries = 32;
constexpr uid_t kRingsNobody = 65534;

bool has_fuse() {
  const int fd = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

class RingsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_fuse()) GTEST_SKIP() << "there is no /dev/fuse here that can be opened";
    auto& cluster = test::shared_cluster();
    ::chmod(dir_.path().c_str(), 0755);
    mount_.emplace(
        test::Launch{.argv = {FF_BINARY, "mount", "/", dir_.path(), "--meta", cluster.address()}});
    if (!mount_->wait_for_out("is mounted")) {
      const bool may = mount_->err.find("not permitted") == std::string::npos;
      mount_.reset();
      if (!may) GTEST_SKIP() << "nothing can be mounted here";
      FAIL() << "it cannot be mounted";
    }
  }
  void TearDown() override {
    if (!mount_) return;
    mount_->signal(SIGTERM);
    EXPECT_EQ(mount_->finish(), 0) << mount_->err;
  }

  std::string path(const std::string& name) const { return dir_ / name; }
  std::string iovs() const { return path("3fs-virt/iovs/"); }
  test::Launch program(const std::string& what, int seed) const {
    const std::string file = path("of" + std::to_string(seed));
    return {.argv = {FF_USRBIO_PROGRAM, what, dir_.path(), file, std::to_string(seed)}};
  }
  void expect_work(int seed) {
    const auto ran = test::run(program("work", seed));
    EXPECT_EQ(ran.exit, 0);
    EXPECT_EQ(ran.out, "all is well\n");
  }
  // Those that stand for memory and rings.
  size_t links() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(iovs())) {
      if (!entry.path().filename().string().starts_with("submit-ios")) count++;
    }
    return count;
  }
  template <class Condition>
  static void until(const std::string& what, Condition condition) {
    SystemClock clock;
    const int64_t end_ns = clock.steady_ns() + 60 * kSecond;
    while (!condition()) {
      ASSERT_LT(clock.steady_ns(), end_ns) << "timed out waiting until " << what;
      clock.sleep_ns(20 * kMillisecond);
    }
  }

  test::TempDir dir_;
  std::optional<test::Child> mount_;
};

// A ring that is written by hand, with memory and a file beside it.
class Forged {
 public:
  explicit Forged(const std::string& mount) : iovs_(mount + "/3fs-virt/iovs/") {
    file_ = ::open((mount + "/forged").c_str(), O_RDWR | O_CREAT, 0644);
    EXPECT_GE(file_, 0);
    EXPECT_EQ(::pwrite(file_, "data", 4, 0), 4);
    EXPECT_EQ(::fsync(file_), 0);
    EXPECT_EQ(usrbio::create_shm(kIovBytes, -1, memory_), 0);
    EXPECT_EQ(usrbio::create_shm(usrbio::ring_bytes(kEntries), -1, shm_), 0);
    ring_ = usrbio::Ring(shm_.base, kEntries);
    ring_.head().magic = usrbio::kRingMagic;
    ring_.head().version = usrbio::kRingVersion;
    ring_.head().entries = kEntries;
    id_ = usrbio::random_id();
  }
  ~Forged() {
    usrbio::unmap(memory_);
    usrbio::unmap(shm_);
    ::unlink(memory_.path.c_str());
    ::unlink(shm_.path.c_str());
    for (const std::string& link : links_) ::unlink(link.c_str());
    ::close(file_);
  }
  void link(const std::string& target, const std::string& name) {
    links_.push_back(iovs_ + name);
    EXPECT_EQ(::symlink(target.c_str(), links_.back().c_str()), 0) << name << ::strerror(errno);
  }
  void open(bool read = true) {
    link(memory_.path, usrbio::text_of({.id = id_}));
    link(shm_.path, usrbio::text_of({.id = usrbio::random_id(), .ring = true, .read = read}));
  }
  usrbio::SubmissionEntry sound() const {
    usrbio::SubmissionEntry request = {};
    std::memcpy(request.memory, id_.data(), id_.size());
    struct stat info = {};
    ::fstat(file_, &info);
    request.file = info.st_ino;
    request.length = 4;
    return request;
  }
  void add(usrbio::SubmissionEntry request, uint32_t slot) {
    request.slot = slot;
    ring_.submission(added_++) = request;
  }
  // A datagram to wherever the link leads, as the library sends it.
  void submit() {
    ring_.head().submitted.store(added_);
    hf3fs_ior bell = {};
    const std::string mount = iovs_.substr(0, iovs_.find("/3fs-virt"));
    if (ring_.head().daemon_sleeping.exchange(0) == 0) return;
    // Another ring's request wakes the daemon, too.
    EXPECT_EQ(hf3fs_iorcreate(&bell, mount.c_str(), 1, true, 0, -1), 0);
    hf3fs_iordestroy(&bell);
  }
  usrbio::Ring& ring() { return ring_; }
  const usrbio::Shm& memory() const { return memory_; }
  const usrbio::Shm& shm() const { return shm_; }
  const usrbio::IovId& id() const { return id_; }

 private:
  std::string iovs_;
  int file_ = -1;
  usrbio::Shm memory_;
  usrbio::Shm shm_;
  usrbio::Ring ring_;
  usrbio::IovId id_ = {};
  uint32_t added_ = 0;
  std::vector<std::string> links_;
};

TEST_F(RingsTest, APythonProgramWithLayoutsOfItsOwn) {
  const auto ran =
      test::run({.argv = {"/usr/bin/python3", FF_SOURCE_DIR "/tests/storage/usrbio/layouts.py",
                          FF_USRBIO_LIBRARY, dir_.path()}});
  EXPECT_EQ(ran.out, "all is well\n") << ran.err;
  until("its links are gone", [this] { return links() == 0; });
}

TEST_F(RingsTest, ThePythonPackage) {
  const auto ran =
      test::run({.argv = {"/usr/bin/python3", FF_SOURCE_DIR "/tests/storage/usrbio/python_rings.py",
                          FF_PYTHON_DIR, dir_.path()}});
  EXPECT_EQ(ran.out, "all is well\n") << ran.err;
  until("its links are gone", [this] { return links() == 0; });
}

TEST_F(RingsTest, ManyProcessesWithManyRings) {
  std::vector<std::unique_ptr<test::Child>> programs;
  for (int seed = 1; seed <= 6; seed++) {
    programs.push_back(std::make_unique<test::Child>(program("work", seed)));
  }
  for (const auto& one : programs) {
    EXPECT_EQ(one->finish(), 0);
    EXPECT_EQ(one->out, "all is well\n");
  }
  until("their links are gone", [this] { return links() == 0; });
}

TEST_F(RingsTest, KilledInTheMiddle) {
  for (int round = 0; round < 3; round++) {
    test::Child hangs(program("hang", 10));
    ASSERT_TRUE(hangs.wait_for_out("working")) << hangs.out;
    EXPECT_EQ(links(), 4u);
    std::string memory;  // what rings lie in has no name any more
    for (const auto& entry : std::filesystem::directory_iterator(iovs())) {
      const auto name = usrbio::parse_iov_link_name(entry.path().filename().string());
      if (name && !name->ring) memory = std::filesystem::read_symlink(entry.path());
    }
    EXPECT_TRUE(std::filesystem::exists(memory)) << memory;
    expect_work(11);
    hangs.signal(SIGKILL);
    hangs.finish();
    until("its links are gone", [this] { return links() == 0; });
    EXPECT_FALSE(std::filesystem::exists(memory)) << memory;
    expect_work(12);
  }
}

// The library's files are nobody's then; others are not the mount's to remove.
TEST_F(RingsTest, AFileOfItsOwnStaysWhenAProgramGoes) {
  const std::string id = usrbio::text_of(usrbio::random_id());
  const std::string file = "/dev/shm/ff-test-" + id;
  test::write_file(file, std::string(4096, 'x'));
  const std::string link = iovs() + id;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(::symlink(file.c_str(), link.c_str()) == 0 ? 0 : errno);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  until("its link is gone", [this] { return links() == 0; });
  EXPECT_TRUE(std::filesystem::exists(file));
  ::unlink(file.c_str());
}

TEST_F(RingsTest, AForgedRingGetsErrors) {
  Forged forged(dir_.path());
  forged.open();
  std::vector<std::pair<usrbio::SubmissionEntry, int64_t>> cases;
  const auto add = [&](int64_t result, auto change) {
    usrbio::SubmissionEntry request = forged.sound();
    change(request);
    cases.emplace_back(request, result);
  };
  add(4, [](auto&) {});
  add(-EINVAL, [](auto& one) { one.memory[3] ^= 1; });
  add(-EINVAL, [](auto& one) { one.at = kIovBytes - 3; });
  add(-EINVAL, [](auto& one) { one.at = UINT64_MAX - 1; });
  add(-EINVAL, [](auto& one) { one.length = UINT64_MAX; });
  add(-EINVAL, [](auto& one) { one.length = kIovBytes + 1; });
  add(-EINVAL, [](auto& one) { one.offset = UINT64_MAX - 2; });
  add(-EINVAL, [](auto& one) { one.offset = INT64_MAX; });
  add(-EBADF, [](auto& one) { one.file++; });
  add(-EBADF, [](auto& one) { one.file = 1; });
  add(-EBADF, [](auto& one) { one.file = UINT64_MAX; });
  for (uint32_t i = 0; i < cases.size(); i++) forged.add(cases[i].first, i);
  forged.submit();
  auto& completed = forged.ring().head().completed;
  until("all are answered", [&] { return completed.load() == cases.size(); });
  for (uint32_t i = 0; i < cases.size(); i++) {
    const auto& outcome = forged.ring().completion(i);
    ASSERT_LT(outcome.slot, cases.size());
    EXPECT_EQ(outcome.result, cases[outcome.slot].second) << outcome.slot;
  }
  EXPECT_EQ(std::memcmp(forged.memory().base, "data", 4), 0);
}

TEST_F(RingsTest, NumbersThatMakeNoSenseEndARing) {
  Forged forged(dir_.path());
  forged.open();
  forged.ring().head().submitted.store(0x80000000);
  expect_work(20);  // which wakes the daemon
  forged.ring().head().submitted.store(1);
  expect_work(21);
  EXPECT_EQ(forged.ring().head().completed.load(), 0u);
}

TEST_F(RingsTest, MemoryThatIsCutOffHarmsNobody) {
  test::Child beside(program("hang", 30));
  ASSERT_TRUE(beside.wait_for_out("working"));
  for (const bool read : {true, false}) {
    for (const bool cut_ring : {false, true}) {
      Forged forged(dir_.path());
      forged.open(read);
      for (uint32_t i = 0; i < kEntries; i++) {
        usrbio::SubmissionEntry request = forged.sound();
        request.at = i * 65536;
        request.length = 65536;
        forged.add(request, i);
      }
      forged.submit();
      const auto& cut = cut_ring ? forged.shm() : forged.memory();
      ASSERT_EQ(::truncate(cut.path.c_str(), 0), 0);
      if (!cut_ring) {
        auto& completed = forged.ring().head().completed;
        until("all are answered", [&] { return completed.load() == kEntries; });
      }
      expect_work(31);
    }
  }
  beside.signal(SIGKILL);
  beside.finish();
  EXPECT_EQ(beside.out, "working\n");
  until("its links are gone", [this] { return links() == 0; });
}

// Reads of all kinds into memory that goes while they are done: from the disk straight into it, and
// by way of a storage node's own memory. Each gets its bytes or EFAULT, and soon.
TEST_F(RingsTest, MemoryThatGoesUnderReadsIsTheirsAlone) {
  const uint64_t seed = system_seed();
  std::cout << "seed " << seed << "\n";
  SeededRng rng(seed);
  constexpr uint64_t kBlock = 65536;
  std::string data(kEntries * kBlock, 'd');
  test::Child beside(program("hang", 40));
  ASSERT_TRUE(beside.wait_for_out("working"));
  for (int round = 0; round < 8; round++) {
    Forged forged(dir_.path());
    test::write_file(path("forged"), data);
    const int fd = ::open(path("forged").c_str(), O_RDWR);
    ASSERT_EQ(::fsync(fd), 0);
    forged.open();
    for (uint32_t i = 0; i < kEntries; i++) {
      usrbio::SubmissionEntry request = forged.sound();
      request.at = i * kBlock + (i % 4 == 3 ? 1 : 0);
      request.offset = i * kBlock;
      request.length = kBlock - 4096;
      forged.add(request, i);
    }
    const off_t left = round % 2 == 0 ? 0 : static_cast<off_t>(rng.below(kIovBytes));
    const bool comes_back = round % 4 >= 2;
    const auto cut = [&](off_t to) { return ::truncate(forged.memory().path.c_str(), to); };
    if (round < 4) {
      ASSERT_EQ(cut(left), 0);
    }
    forged.submit();
    ASSERT_EQ(cut(left), 0);
    if (comes_back) {
      ASSERT_EQ(cut(kIovBytes), 0);
    }
    auto& completed = forged.ring().head().completed;
    until("all are answered", [&] { return completed.load() == kEntries; });
    size_t lost = 0;
    for (uint32_t i = 0; i < kEntries; i++) {
      const int64_t result = forged.ring().completion(i).result;
      EXPECT_TRUE(result == kBlock - 4096 || result == -EFAULT) << result;
      lost += result == -EFAULT ? 1 : 0;
    }
    if (left == 0 && round < 4 && !comes_back) {
      EXPECT_EQ(lost, kEntries);
    }
    ::close(fd);
    expect_work(41);
  }
  beside.signal(SIGKILL);
  beside.finish();
  EXPECT_EQ(beside.out, "working\n");
}

TEST_F(RingsTest, OthersAreKeptApart) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  Forged forged(dir_.path());
  forged.open();
  const pid_t other = ::fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    const auto link_to = [&](const std::string& target) {
      const std::string name = iovs() + usrbio::text_of(usrbio::random_id());
      return ::symlink(target.c_str(), name.c_str()) == 0 ? 0 : errno;
    };
    int failed = ::setgid(kRingsNobody) == 0 && ::setuid(kRingsNobody) == 0 ? 0 : 1;
    // Neither the file nor the link of another user, which he does not even see.
    if (links() != 0) failed |= 64;
    if (link_to(forged.memory().path) != EACCES) failed |= 2;
    const std::string link = iovs() + usrbio::text_of({.id = forged.id()});
    if (::unlink(link.c_str()) == 0) failed |= 4;
    // A ring of his own, with memory and a file that he has not.
    usrbio::Shm shm;
    if (usrbio::create_shm(usrbio::ring_bytes(4), -1, shm) != 0) failed |= 8;
    const usrbio::Ring ring(shm.base, 4);
    ring.head().magic = usrbio::kRingMagic;
    ring.head().version = usrbio::kRingVersion;
    ring.head().entries = 4;
    usrbio::Shm own;
    if (usrbio::create_shm(4096, -1, own) != 0) failed |= 8;
    const usrbio::IovId own_id = usrbio::random_id();
    const std::string own_name = iovs() + usrbio::text_of({.id = own_id});
    if (::symlink(own.path.c_str(), own_name.c_str()) != 0) failed |= 16;
    ring.submission(0) = forged.sound();
    ring.submission(1) = forged.sound();
    std::memcpy(ring.submission(1).memory, own_id.data(), own_id.size());
    ring.head().submitted.store(2);
    const std::string name =
        iovs() + usrbio::text_of({.id = usrbio::random_id(), .ring = true, .read = true});
    if (::symlink(shm.path.c_str(), name.c_str()) != 0) failed |= 16;
    SystemClock clock;
    const int64_t end_ns = clock.steady_ns() + 30 * kSecond;
    while (ring.head().completed.load() < 2 && clock.steady_ns() < end_ns) {
      clock.sleep_ns(10 * kMillisecond);
    }
    if (ring.completion(0).result != -EINVAL || ring.completion(1).result != -EBADF) failed |= 32;
    ::unlink(shm.path.c_str());
    ::unlink(own.path.c_str());
    ::_exit(failed);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  until("links of a process that has gone are gone", [this] { return links() == 2; });
}

TEST_F(RingsTest, LinksThatAreOrders) {
  namespace fs = std::filesystem;
  const auto order = [&](const std::string& what, const std::string& name) {
    return ::symlink(what.c_str(), path(name).c_str()) == 0 ? 0 : errno;
  };
  fs::create_directories(path("tree/a/b"));
  test::write_file(path("tree/a/b/f"), "text");
  EXPECT_EQ(order("/etc", "3fs-virt/rm-rf/x"), EINVAL);
  EXPECT_EQ(order(path("tree/../tree"), "3fs-virt/rm-rf/x"), EINVAL);
  EXPECT_EQ(order(path("nothing"), "3fs-virt/rm-rf/x"), ENOENT);
  EXPECT_EQ(order("mv:" + path("tree/a/b/f"), "moved"), 0);
  EXPECT_EQ(test::read_file(path("moved")), "text");
  EXPECT_EQ(order(path("tree/a"), "3fs-virt/rm-rf/x"), 0);
  until("it is removed", [&] { return fs::is_empty(path("tree")); });
  EXPECT_EQ(::rename(path("tree").c_str(), path("3fs-virt/rm-rf/tree").c_str()), 0);
  until("it is removed", [&] { return !fs::exists(path("tree")); });
  EXPECT_EQ(fs::read_symlink(path("3fs-virt/get-conf/usr.readonly")), "false");
  EXPECT_EQ(order("perhaps", "3fs-virt/set-conf/usr.readonly"), EINVAL);
  EXPECT_EQ(order("true", "3fs-virt/set-conf/usr.readonly"), 0);
  EXPECT_EQ(fs::read_symlink(path("3fs-virt/get-conf/usr.readonly")), "true");
  const auto refused = [](int done) { return done != -1 ? 0 : errno; };
  EXPECT_EQ(refused(::mkdir(path("new").c_str(), 0755)), EROFS);
  EXPECT_EQ(refused(::open(path("moved").c_str(), O_RDWR | O_CLOEXEC)), EROFS);
  EXPECT_EQ(refused(::truncate(path("moved").c_str(), 0)), EROFS);
  EXPECT_EQ(refused(::unlink(path("moved").c_str())), EROFS);
  EXPECT_EQ(test::read_file(path("moved")), "text");
  EXPECT_EQ(order("false", "3fs-virt/set-conf/usr.readonly"), 0);
  EXPECT_EQ(::mkdir(path("new").c_str(), 0755), 0);
  EXPECT_EQ(::mkdir(path("3fs-virt/new").c_str(), 0755), -1);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir_.path()))
    names.insert(entry.path().filename());
  EXPECT_FALSE(names.contains("3fs-virt"));
}

}  // namespace
}  // namespace ff::cmd
