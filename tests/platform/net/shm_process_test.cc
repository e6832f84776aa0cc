// Shared memory between two processes with faults: a peer is killed during a copy, or truncates and
// overwrites the region that the other copies to.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>

#include "platform/base/clock.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "platform/net/shm_pair.h"

namespace ff::net {
namespace {

using Kind = SharedRegion::Kind;

// A second process at the other end of a socket pair. The body has its loop and its end; it is
// killed, or ends by itself with 0.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void(Loop&, Socket)>& body) {
    int ends[2];
    FF_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    const Address address = unix_test_address();
    pid_ = ::fork();
    FF_CHECK(pid_ >= 0);
    Socket socket{Fd(ends[pid_ == 0 ? 1 : 0]), address, address};
    ::close(ends[pid_ == 0 ? 0 : 1]);
    if (pid_ == 0) {
      ::alarm(60);  // whatever happens to the parent
      SystemClock clock;
      SystemLoop loop(clock);
      body(loop, std::move(socket));
      ::_exit(0);
    }
    here = std::move(socket);
  }
  ~OtherProcess() { kill(); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    // Killed by us, not dead before of its own mistakes.
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }

  Socket here;

 private:
  pid_t pid_;
};

std::string slice_message(const RemoteBuffer& buffer) {
  return {reinterpret_cast<const char*>(&buffer), sizeof buffer};
}

RemoteBuffer slice_of(const std::string& message) {
  RemoteBuffer buffer;
  FF_CHECK(message.size() == sizeof buffer);
  std::memcpy(&buffer, message.data(), sizeof buffer);
  return buffer;
}

// Pushes into the buffer that comes, again and again.
Task<void> push_for_ever(Loop& loop, Connection& connection) {
  auto frame = co_await connection.receive();
  FF_CHECK(frame.ok());
  const RemoteBuffer buffer = slice_of(frame->message);
  std::vector<std::byte> bytes(buffer.size);
  for (int round = 1;; round++) {
    std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(round));
    if (!(co_await connection.push(buffer, 0, bytes)).ok()) co_return;
    YieldWait yield(loop);
    (void)co_await yield;
  }
}

TEST(ShmProcesses, APeerKilledInTheMiddleOfAPushIsNoticed) {
  OtherProcess other([](Loop& loop, Socket socket) {
    const SharedRegionSet regions;
    const auto connection = shm_connection(loop, std::move(socket), regions);
    run_task(loop, push_for_ever(loop, *connection));
  });
  SystemClock clock;
  SystemLoop loop(clock);
  SharedRegionSet regions;
  auto region = regions.make(16 * kMiB);
  ASSERT_TRUE(region.ok());
  const ByteSpan memory = (*region)->memory();
  const auto connection = shm_connection(loop, std::move(other.here), regions);
  auto exposure = connection->expose_sink(memory);
  ASSERT_TRUE(exposure.ok());
  connection->send({.kind = FrameKind::call, .call = 1}, slice_message(exposure->buffer()));
  Gate gate(loop);
  std::optional<Error> error;
  gate.spawn([](Connection& receiving, std::optional<Error>& out) -> Task<void> {
    out = (co_await receiving.receive()).error();
  }(*connection, error));
  // Once a push has come through and another is half done.
  std::atomic_ref<std::byte> first(memory[0]);
  run_task(loop, [](Loop& on, std::atomic_ref<std::byte>& seen) -> Task<void> {
    while (seen.load() < std::byte{3}) (void)co_await sleep_for(on, 50 * kMicrosecond);
  }(loop, first));
  other.kill();
  run_task(loop, gate.wait_empty());
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, Errc::unreachable);
  EXPECT_TRUE(connection->failed());
  // What has arrived are whole rounds, at most two of them.
  const std::byte newest = memory[0];
  for (const std::byte byte : memory) {
    ASSERT_LE(static_cast<uint8_t>(newest) - static_cast<uint8_t>(byte), 1);
  }
  exposure = Connection::Exposure();
}

// Gives out a region and then does its worst to it.
void abuse(Loop& loop, Socket socket) {
  SharedRegionSet regions;
  auto region = regions.make(8 * kMiB, Kind::huge);
  FF_CHECK(region.ok());
  const auto connection = shm_connection(loop, std::move(socket), regions);
  const auto exposure = connection->expose_sink((*region)->memory());
  connection->send({.kind = FrameKind::call}, slice_message(exposure->buffer()));
  FF_CHECK(run_task(loop, connection->receive()).ok());
  const std::vector<std::byte> noise(kMiB, std::byte{0xee});
  const int fd = (*region)->fd();
  for (off_t size = 0;; size = (size + 777'777) % static_cast<off_t>(8 * kMiB)) {
    FF_CHECK(::ftruncate(fd, size) == 0);
    FF_CHECK(::pwrite(fd, noise.data(), noise.size(), size / 2) > 0);
    FF_CHECK(::ftruncate(fd, static_cast<off_t>(8 * kMiB)) == 0);
    (void)::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, size / 3, 3 * kMiB);
  }
}

TEST(ShmProcesses, ARegionTruncatedAndScribbledOverDuringIo) {
  if (!offers_huge()) GTEST_SKIP() << "no region that could be truncated";
  const io::TempDir dir;
  io::SystemDisk disk;
  {
    auto file = disk.open(dir / "data", {.access = io::AccessMode::write, .create = true});
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->write_at(std::vector<std::byte>(4 * kMiB, std::byte{4}), 0).ok());
    ASSERT_TRUE((*file)->sync().ok());
  }
  OtherProcess other(abuse);
  SystemClock clock;
  SystemLoop loop(clock);
  const SharedRegionSet regions;
  const auto connection = shm_connection(loop, std::move(other.here), regions);
  auto frame = run_task(loop, connection->receive());
  ASSERT_TRUE(frame.ok());
  const RemoteBuffer buffer = slice_of(frame->message);
  connection->send({.kind = FrameKind::reply});
  auto file = disk.open(dir / "data", {.access = io::AccessMode::read, .direct = true});
  ASSERT_TRUE(file.ok());
  const auto queue = disk.make_queue({.depth = 1});
  std::vector<std::byte> bytes(4 * kMiB);
  size_t refused = 0;
  const auto note = [&](const Result<void>& result) {
    if (result) return;
    ASSERT_EQ(result.error().code, Errc::refused) << result.error().message;
    refused++;
  };
  const int64_t end = loop.now_ns() + 1500 * kMillisecond;
  for (uint64_t round = 0; loop.now_ns() < end; round++) {
    const uint64_t offset = round * 12'345 % (4 * kMiB);
    note(run_task(loop, connection->push(buffer, offset, bytes)));
    note(run_task(loop, connection->pull(buffer, offset, bytes)));
    RemoteBuffer part = buffer;
    part.address += round % 4 * kMiB;
    part.size = 4 * kMiB;
    const auto span = connection->mapped_memory(part);
    ASSERT_TRUE(span.has_value());
    queue->read(**file, span->bytes(), 0, [&](Result<size_t> got) {
      if (!got || *got < span->bytes().size()) refused++;
    });
    while (queue->in_flight() > 0) queue->run();
  }
  EXPECT_GT(refused, 0u);  // else the test has tested nothing
  EXPECT_FALSE(connection->failed());
  other.kill();
}

TEST(ShmProcesses, AnOwnerKilledWhileItsMemoryIsUsedIsNoticed) {
  OtherProcess other([](Loop& loop, Socket socket) {
    SharedRegionSet regions;
    auto region = regions.make(16 * kMiB);
    FF_CHECK(region.ok());
    const auto connection = shm_connection(loop, std::move(socket), regions);
    const auto exposure = connection->expose_sink((*region)->memory());
    connection->send({.kind = FrameKind::call}, slice_message(exposure->buffer()));
    (void)run_task(loop, connection->receive());
  });
  SystemClock clock;
  SystemLoop loop(clock);
  const SharedRegionSet regions;
  const auto connection = shm_connection(loop, std::move(other.here), regions);
  auto frame = run_task(loop, connection->receive());
  ASSERT_TRUE(frame.ok());
  const RemoteBuffer buffer = slice_of(frame->message);
  std::vector<std::byte> bytes(16 * kMiB);
  Gate gate(loop);
  std::optional<Result<void>> pushed;
  gate.spawn([](Connection& to, RemoteBuffer sink, ByteView from,
                std::optional<Result<void>>& out) -> Task<void> {
    do {
      out = co_await to.push(sink, 0, from);
    } while (out->ok());
  }(*connection, buffer, bytes, pushed));
  gate.spawn([](Loop& on, OtherProcess& owner) -> Task<void> {
    (void)co_await sleep_for(on, 20 * kMillisecond);
    owner.kill();
  }(loop, other));
  const auto received = run_task(loop, connection->receive());
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code, Errc::unreachable);
  run_task(loop, gate.wait_empty());
  ASSERT_TRUE(pushed.has_value() && !pushed->ok());
  EXPECT_EQ(pushed->error().code, Errc::unreachable);
}

}  // namespace
}  // namespace ff::net
