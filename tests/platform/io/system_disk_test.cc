// Behaviour that only a real machine can show: io_uring or hard links forbidden (by seccomp, in a
// child process), locked-memory limits, a full file system, other users, FIFOs.
#include "platform/io/system_disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <functional>

#include "platform/io/buffers.h"
#include "platform/io/temp_dir.h"
#include "platform/io/test_bytes.h"

namespace ff::io {
namespace {

// Runs `body` in a child process, whose limits and filters end with it. `body` returns the failure,
// or "".
std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  FF_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  FF_CHECK(child >= 0);
  if (child == 0) {
    const std::string problem = body();
    const ssize_t ignored = write(ends[1], problem.data(), problem.size());
    (void)ignored;
    _exit(problem.empty() ? 0 : 1);
  }
  close(ends[1]);
  std::string problem;
  char text[512];
  for (ssize_t got; (got = read(ends[0], text, sizeof text)) > 0;) {
    problem.append(text, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status)) problem += " (the child died of a signal)";
  return problem;
}

// Makes the system call `call` fail with `err` in this process and its threads (seccomp).
bool forbid(const std::vector<long>& calls, int err) {
  std::vector<sock_filter> filter;
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const long call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(err)));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Writes, syncs and reads back through the queue that the disk chooses; returns the failure, or "".
std::string check_queue(SystemDisk& disk, const std::string& path, bool registered) {
  auto file = disk.open(path, {.access = AccessMode::read_write, .create = true, .direct = true});
  if (!file) return file.error().message;
  auto buffers = Buffers::make(32, 64 * kKiB);
  if (!buffers) return buffers.error().message;
  const auto queue = disk.make_queue({.depth = 16});
  const ByteSpan spans[] = {buffers->all()};
  if (registered) queue->register_buffers(spans);
  const auto bytes = random_bytes(kMiB, 1);
  std::string problem;
  const auto finish = [&](Result<size_t> result) {
    if (!result) problem += result.error().message;
    if (result && *result != 64 * kKiB) problem += "short transfer";
  };
  for (size_t i = 0; i < 16; ++i) {
    const ByteSpan slot = buffers->slot(i);
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(i * slot.size()), slot.size(), slot.begin());
    queue->write(**file, slot, i * slot.size(), finish);
  }
  while (queue->in_flight() > 0) queue->run();
  queue->sync(**file, [&](Result<size_t> result) {
    if (!result) problem += result.error().message;
  });
  while (queue->in_flight() > 0) queue->run();
  for (size_t i = 0; i < 16; ++i) {
    queue->read(**file, buffers->slot(16 + i), i * 64 * kKiB, finish);
  }
  while (queue->in_flight() > 0) queue->run();
  const ByteSpan back = buffers->all().subspan(kMiB);
  if (!std::equal(back.begin(), back.end(), bytes.begin())) problem += "wrong data";
  return problem;
}

bool kernel_offers_io_uring() {
  // With a bad argument the call returns EFAULT if it exists and is allowed.
  return syscall(SYS_io_uring_setup, 1, nullptr) == -1 && errno == EFAULT;
}

TEST(SystemDiskTest, UsesIoUringWhereAllowed) {
  const SystemDisk disk;
  EXPECT_EQ(disk.queue_kind(), kernel_offers_io_uring() ? "io_uring" : "threads");
}

TEST(SystemDiskTest, FallsBackToThreadsWhereIoUringIsForbidden) {
  for (const int err : {EPERM, ENOSYS, EACCES, EINVAL, ENOMEM}) {
    SCOPED_TRACE(err);
    const TempDir dir;
    EXPECT_EQ(in_child([&]() -> std::string {
                if (!forbid({SYS_io_uring_setup}, err)) return "no seccomp here";
                SystemDisk disk;
                if (disk.queue_kind() != "threads") return "not threads";
                return check_queue(disk, dir / "file", true);
              }),
              "");
  }
}

TEST(SystemDiskTest, GoesOnWhenBuffersCannotBeRegistered) {
  if (!kernel_offers_io_uring()) GTEST_SKIP() << "no io_uring on this machine";
  const TempDir dir;
  EXPECT_EQ(in_child([&]() -> std::string {
              SystemDisk disk;
              if (!forbid({SYS_io_uring_register}, ENOMEM)) return "no seccomp here";
              if (disk.queue_kind() != "io_uring") return "not io_uring";
              return check_queue(disk, dir / "file", true);
            }),
            "");
}

TEST(SystemDiskTest, WithoutHardLinksLinkIsAnExclusiveRename) {
  for (const int err : {EPERM, EOPNOTSUPP}) {
    SCOPED_TRACE(err);
    const TempDir dir;
    EXPECT_EQ(in_child([&]() -> std::string {
                SystemDisk disk;
                (void)put(disk, dir / "a", "a");
                (void)put(disk, dir / "b", "b");
                (void)disk.make_dir(dir / "dir", 0755);
                if (!forbid({SYS_link, SYS_linkat}, err)) return "no seccomp here";
                if (code_of(disk.link(dir / "a", dir / "b")) != Errc::exists)
                  return "not exclusive";
                if (get(disk, dir / "a") + get(disk, dir / "b") != "ab") return "changed";
                if (!disk.link(dir / "a", dir / "c").ok()) return "not linked";
                if (get(disk, dir / "c") != "a") return "wrong content";
                if (get(disk, dir / "a") != "(not_found)") return "still there";
                if (disk.link(dir / "dir", dir / "dir2").ok()) return "moved a directory";
                return "";
              }),
              "");
  }
}

TEST(SystemDiskTest, FullFileSystem) {
  const TempDir dir;
  if (mount("ff_test", dir.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs needs root: " << std::strerror(errno);
  }
  SystemDisk disk;
  {
    const auto bytes = random_bytes(2 * kMiB, 1);
    auto file = disk.open(dir / "file", {.access = AccessMode::read_write, .create = true});
    EXPECT_EQ(code_of((*file)->reserve(0, 2 * kMiB)), Errc::disk_full);
    EXPECT_EQ(code_of((*file)->write_at(bytes, 0)), Errc::disk_full);
    EXPECT_TRUE(ok((*file)->truncate(0)));
    const auto queue = disk.make_queue({.depth = 4});
    Errc code = Errc::usage;
    queue->write(**file, bytes, 0, [&](auto result) { code = code_of(result); });
    while (queue->in_flight() > 0) queue->run();
    EXPECT_EQ(code, Errc::disk_full);
    EXPECT_EQ(disk.space(dir.path())->total, kMiB);
    EXPECT_EQ(disk.space(dir.path())->free, 0u);
    EXPECT_TRUE(ok(disk.remove(dir / "file")));
  }
  EXPECT_GT(disk.space(dir.path())->free, 0u);
  EXPECT_EQ(umount(dir.path().c_str()), 0);
}

TEST(SystemDiskTest, ForeignFilesAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "changing the user needs root";
  const TempDir dir;
  SystemDisk disk;
  ASSERT_TRUE(ok(put(disk, dir / "secret", "x")));
  ASSERT_TRUE(ok(disk.set_mode(dir / "secret", 0600)));
  ASSERT_TRUE(ok(disk.set_mode(dir.path(), 0755)));
  EXPECT_EQ(in_child([&]() -> std::string {
              if (setgid(65534) != 0 || setuid(65534) != 0) return "cannot change the user";
              if (get(disk, dir / "secret") != "(refused)") return "read a secret";
              if (code_of(put(disk, dir / "new", "")) != Errc::refused) return "made a file";
              if (code_of(disk.remove(dir / "secret")) != Errc::refused) return "removed";
              return "";
            }),
            "");
}

TEST(SystemDiskTest, OpensOnlyFiles) {
  const TempDir dir;
  SystemDisk disk;
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  const auto fifo = disk.open(dir / "fifo", {});  // does not wait for a writer
  EXPECT_EQ(code_of(fifo), Errc::failed);
  EXPECT_NE(fifo.error().message.find("not a regular file"), std::string::npos);
  EXPECT_EQ(code_of(disk.open("/dev/null", {})), Errc::failed);
  const auto entries = disk.list(dir.path());
  ASSERT_EQ(entries->size(), 1u);
  EXPECT_EQ(entries->front().kind, FileKind::other);
}

TEST(SystemDiskTest, DescriptorsDoNotReachOtherPrograms) {
  const TempDir dir;
  SystemDisk disk;
  std::vector<std::byte> into(1);
  ASSERT_TRUE(ok(put(disk, dir / "file", "x")));
  const auto buffered = disk.open(dir / "file", {}).value();
  const auto direct = disk.open(dir / "file", {.direct = true}).value();
  ASSERT_TRUE(ok(direct->read_cached(into, 0)));  // opens its second descriptor
  const auto queue = disk.make_queue({});
  size_t checked = 0;
  for (int fd = 3; fd < 64; ++fd) {
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    char target[4096] = {};
    if (readlink(link.c_str(), target, sizeof target - 1) < 0) continue;
    const std::string name = target;
    if (name.rfind(dir.path(), 0) != 0 && name.find("io_uring") == std::string::npos) continue;
    EXPECT_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC) << name;
    ++checked;
  }
  EXPECT_GE(checked, direct->direct() ? 3u : 2u);
}

TEST(SystemDiskTest, TheQueueWorksWhereTheKernelMayMakeNoWorkers) {
  // The kernel runs writes to a new file and a sync on worker threads, which count as processes of
  // the user.
  if (geteuid() != 0) GTEST_SKIP() << "changing the user needs root";
  const TempDir dir;
  SystemDisk disk;
  ASSERT_TRUE(ok(disk.set_mode(dir.path(), 0777)));
  EXPECT_EQ(in_child([&]() -> std::string {
              const rlimit none{0, 0};
              if (setrlimit(RLIMIT_NPROC, &none) != 0) return "cannot limit processes";
              if (setgid(65534) != 0 || setuid(65534) != 0) return "cannot change the user";
              return check_queue(disk, dir / "file", false);
            }),
            "");
}

TEST(SystemDiskTest, CachedReadsStayWithTheFileWhenItsNameMoves) {
  const TempDir dir;
  SystemDisk disk;
  ASSERT_TRUE(ok(put(disk, dir / "file", "mine")));
  ASSERT_TRUE(ok(put(disk, dir / "other", "not!")));
  const auto file = disk.open(dir / "file", {.direct = true}).value();
  if (!file->direct()) GTEST_SKIP() << "no direct I/O on this file system";
  ASSERT_TRUE(ok(disk.rename(dir / "other", dir / "file")));
  std::vector<std::byte> into(4);
  EXPECT_FALSE(*file->read_cached(into, 0));
}

TEST(SystemDiskTest, SignalsDoNotDisturbTheQueue) {
  // A timer that fires all the time while a large file is written and read.
  const TempDir dir;
  EXPECT_EQ(in_child([&]() -> std::string {
              struct sigaction action = {};
              action.sa_handler = [](int) {};
              sigaction(SIGALRM, &action, nullptr);
              const itimerval often{{0, 200}, {0, 200}};
              setitimer(ITIMER_REAL, &often, nullptr);
              SystemDisk disk;
              for (int i = 0; i < 20; ++i) {
                const std::string problem = check_queue(disk, dir / "file", i % 2 == 0);
                if (!problem.empty()) return problem;
              }
              return "";
            }),
            "");
}

}  // namespace
}  // namespace ff::io
