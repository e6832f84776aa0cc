// Tests specific to shared memory, besides the conformance suite (connection_test.cc): announced
// regions, invalid announcements and buffers, truncated regions, and disk reads directly into the
// peer's memory.
#include "platform/net/shm.h"
#include "platform/base/clock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "platform/io/buffers.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "platform/net/shm_pair.h"

namespace ff::net {
namespace {

using ShmKind = SharedRegion::Kind;

// Both ends on one loop; the client's regions are given to the server.
class Shm : public testing::Test {
 protected:
  Shm() {
    SocketEnds ends = connected_sockets(loop_, unix_test_address());
    client_ = shm_connection(loop_, std::move(ends.client), regions_);
    server_ = shm_connection(loop_, std::move(ends.server), server_regions_);
    gate_.spawn(receive(*client_, at_client_));
    gate_.spawn(receive(*server_, at_server_));
  }
  static Task<void> receive(Connection& connection, std::optional<Error>& error) {
    for (;;) {
      auto frame = co_await connection.receive();
      if (frame) continue;
      error = std::move(frame).error();
      co_return;
    }
  }
  ByteSpan memory(size_t size, ShmKind kind) {
    auto region = regions_.make(size, kind);
    FF_CHECK(region.ok());
    return (*region)->memory();
  }
  // When it returns the server has heard of the region.
  RemoteBuffer sink(ByteSpan memory) { return settled(client_->expose_sink(memory)); }
  RemoteBuffer source(ByteView memory) { return settled(client_->expose_source(memory)); }
  RemoteBuffer settled(Result<Connection::Exposure> exposure) {
    exposures_.push_back(std::move(exposure).value());
    settle();
    return exposures_.back().buffer();
  }
  // Lets what is in the socket arrive.
  void settle() {
    for (int i = 0; i < 5; i++) run_task(loop_, yield(loop_));
  }
  static Task<void> yield(Loop& loop) { (void)co_await sleep_for(loop, 100 * kMicrosecond); }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  SharedRegionSet regions_;
  SharedRegionSet server_regions_;
  std::unique_ptr<Connection> client_;
  std::unique_ptr<Connection> server_;
  std::vector<Connection::Exposure> exposures_;
  std::optional<Error> at_client_;
  std::optional<Error> at_server_;
  Gate gate_{loop_};
};

TEST_F(Shm, MemoryInARegionIsSharedAndOtherMemoryTakesFrames) {
  auto region = regions_.make(kMiB, ShmKind::sealed);
  ASSERT_TRUE(region.ok());
  const ByteSpan shared = (*region)->memory();
  std::vector<std::byte> plain(3 * kMiB);
  std::vector<std::byte> bytes(plain.size());
  fill(bytes, 1);
  const RemoteBuffer in_place = sink(shared.subspan(5000, 100));
  EXPECT_EQ(in_place.key, (*region)->id());
  EXPECT_EQ(in_place.address, 5000u);
  const RemoteBuffer framed = sink(plain);
  EXPECT_EQ(framed.key, 0u);
  EXPECT_FALSE(server_->mapped_memory(framed).has_value());
  ASSERT_TRUE(run_task(loop_, server_->push(in_place, 10, ByteView(bytes).first(90))).ok());
  // At once, without a frame that the client would have to read.
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + 90, shared.begin() + 5010));
  ASSERT_TRUE(run_task(loop_, server_->push(framed, 0, bytes)).ok());
  std::vector<std::byte> back(plain.size());
  ASSERT_TRUE(run_task(loop_, server_->pull(source(plain), 0, back)).ok());
  EXPECT_EQ(plain, bytes);
  EXPECT_EQ(back, bytes);
}

TEST_F(Shm, ARegionIsToldOnceAConnection) {
  ShmBulk bulk(loop_, regions_);
  const ByteSpan shared = memory(kMiB, ShmKind::sealed);
  RemoteBuffer buffer;
  ASSERT_TRUE(bulk.register_memory(shared.first(10), true, buffer).ok());
  const auto told = bulk.next_region_update();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->id, buffer.key);
  EXPECT_EQ(told->size, shared.size());
  ASSERT_TRUE(bulk.register_memory(shared.last(10), false, buffer).ok());
  EXPECT_FALSE(bulk.next_region_update().has_value());
}

TEST_F(Shm, MoreRegionsThanTheBoundTakeFrames) {
  std::vector<std::byte> bytes(100);
  fill(bytes, 2);
  for (size_t i = 0; i < kRegionsMax + 5; i++) {
    const ByteSpan shared = memory(4 * kKiB, ShmKind::sealed);
    const RemoteBuffer buffer = sink(shared);
    EXPECT_EQ(buffer.key != 0, i < kRegionsMax);
    ASSERT_TRUE(run_task(loop_, server_->push(buffer, 7, bytes)).ok());
    settle();
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), shared.begin() + 7));
  }
  RemoteBuffer buffer;
  ShmBulk bulk(loop_, regions_);
  ASSERT_TRUE(
      bulk.register_memory(memory(kRegionBytesMax, ShmKind::sealed).first(1), true, buffer).ok());
  EXPECT_NE(buffer.key, 0u);
  buffer = {};
  ASSERT_TRUE(bulk.register_memory(memory(4 * kKiB, ShmKind::sealed), true, buffer).ok());
  EXPECT_EQ(buffer.key, 0u);
}

TEST_F(Shm, ForgedSlicesAreRefused) {
  const ByteSpan shared = memory(kMiB, ShmKind::sealed);
  const ByteSpan neighbour = memory(kMiB, ShmKind::sealed);
  const RemoteBuffer good = sink(shared.first(1000));
  std::vector<std::byte> bytes(1000);
  const auto with = [&](uint64_t address, uint64_t size, uint32_t key) {
    return RemoteBuffer{.token = good.token, .size = size, .address = address, .key = key};
  };
  const std::vector<RemoteBuffer> forged = {
      with(kMiB - 999, 1000, good.key), with(kMiB, 1000, good.key),
      with(kMiB + 1, 1000, good.key),   with(uint64_t{1} << 63, 1000, good.key),
      with(UINT64_MAX, 1000, good.key), with(UINT64_MAX - 999, UINT64_MAX, good.key),
      with(0, 1000, good.key + 1),      with(0, 1000, UINT32_MAX),
  };
  for (const RemoteBuffer& buffer : forged) {
    const auto pushed = run_task(loop_, server_->push(buffer, 0, bytes));
    ASSERT_FALSE(pushed.ok()) << buffer.address;
    EXPECT_EQ(pushed.error().code, Errc::corrupt);
    EXPECT_NE(pushed.error().message.find(server_->peer()), std::string::npos);
    EXPECT_EQ(run_task(loop_, server_->pull(buffer, 0, bytes)).error().code, Errc::corrupt);
    EXPECT_FALSE(server_->mapped_memory(buffer).has_value());
  }
  // A size that no region has is only a limit for the offset, which is checked as well.
  const RemoteBuffer endless = with(10, UINT64_MAX, good.key);
  for (const uint64_t offset : {kMiB - 1009, kMiB - 10, kMiB, UINT64_MAX - 1000}) {
    EXPECT_EQ(run_task(loop_, server_->push(endless, offset, bytes)).error().code, Errc::corrupt);
    EXPECT_EQ(run_task(loop_, server_->pull(endless, offset, bytes)).error().code, Errc::corrupt);
  }
  EXPECT_FALSE(server_->mapped_memory(endless).has_value());
  EXPECT_TRUE(run_task(loop_, server_->push(endless, kMiB - 1010, bytes)).ok());
  EXPECT_FALSE(server_->failed());
  for (const std::byte byte : neighbour) ASSERT_EQ(byte, std::byte{});
}

// What a peer may announce instead of a region.
TEST_F(Shm, GarbageIsNotTakenForARegion) {
  ShmBulk bulk(loop_, regions_);
  const io::TempDir dir;
  const auto memory_file = [](off_t size) {
    const int fd = ::memfd_create("test", MFD_CLOEXEC);
    FF_CHECK(::ftruncate(fd, size) == 0);
    return fd;
  };
  const auto again = [&](int flags) {
    const Fd original(memory_file(8192));
    return ::open(fmt::format("/proc/self/fd/{}", original.get()).c_str(), flags | O_CLOEXEC);
  };
  int pipe_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  const Fd writer(pipe_ends[1]);
  const int on_disk = ::open((dir / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::ftruncate(on_disk, 8192), 0);
  const int huge_tlb = ::memfd_create("test", MFD_CLOEXEC | MFD_HUGETLB);
  (void)::ftruncate(huge_tlb, 2 * kMiB);  // no kernel need have it
  const std::vector<Bulk::RegionUpdate> garbage = {
      {1, 4096, pipe_ends[0]},
      {1, 4096, ::open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC)},
      {1, 4096, ::open("/dev/zero", O_RDWR | O_CLOEXEC)},
      {1, 4096, ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)},
      {1, 4096, on_disk},
      {1, 2 * kMiB, huge_tlb},
      {1, 4096, again(O_RDONLY)},
      {1, 4096, again(O_WRONLY)},
      {1, 4096, again(O_PATH)},
      {1, 4096, -1},
      {1, UINT64_MAX, memory_file(8192)},
      {1, 0, memory_file(8192)},
      {0, 8192, memory_file(8192)},
      {1, kRegionBytesMax + 1, memory_file(static_cast<off_t>(2 * kRegionBytesMax))},
  };
  const size_t descriptors = open_descriptors();
  for (const Bulk::RegionUpdate& region : garbage) {
    const auto added = bulk.apply_region_update(region);
    ASSERT_FALSE(added.ok()) << region.fd;
    EXPECT_EQ(added.error().code, Errc::corrupt) << added.error().message;
  }
  const auto were_open = std::ranges::count_if(garbage, [](auto& each) { return each.fd >= 0; });
  EXPECT_EQ(open_descriptors(), descriptors - static_cast<size_t>(were_open));
  ASSERT_TRUE(bulk.apply_region_update({1, 8192, memory_file(8192)}).ok());
  EXPECT_EQ(bulk.apply_region_update({1, 8192, memory_file(8192)}).error().code, Errc::corrupt);
  // One that was cut off before it was told: whoever goes there gets an error.
  ASSERT_TRUE(bulk.apply_region_update({2, 8193, memory_file(8192)}).ok());
  const RemoteBuffer truncated = {.size = 8193, .key = 2};
  const std::array<std::byte, 1> byte = {};
  const auto pushed = run_task(loop_, bulk.push(truncated, 8192, byte));
  ASSERT_FALSE(pushed.ok());
  EXPECT_EQ(pushed.error().code, Errc::refused);
}

TEST_F(Shm, TooManyRegionsAreRefused) {
  ShmBulk bulk(loop_, regions_);
  const auto announce = [&](uint32_t id) {
    const int fd = ::memfd_create("test", MFD_CLOEXEC);
    FF_CHECK(::ftruncate(fd, 4096) == 0);
    return bulk.apply_region_update({id, 4096, fd});
  };
  for (uint32_t id = 1; id <= kRegionsMax; id++) ASSERT_TRUE(announce(id).ok());
  EXPECT_EQ(announce(kRegionsMax + 1).error().code, Errc::corrupt);
  ShmBulk other(loop_, regions_);
  const auto sparse = [&](uint32_t id, uint64_t size) {
    const int fd = ::memfd_create("test", MFD_CLOEXEC);
    FF_CHECK(::ftruncate(fd, static_cast<off_t>(size)) == 0);
    return other.apply_region_update({id, size, fd});
  };
  ASSERT_TRUE(sparse(1, kRegionBytesMax - 4096).ok());
  EXPECT_EQ(sparse(2, 8192).error().code, Errc::corrupt);
  EXPECT_TRUE(sparse(3, 4096).ok());
}

// A peer of one's own making: raw frames and descriptors on one end of the socket.
TEST_F(Shm, ABadAnnouncementFailsOnlyItsConnection) {
  SocketEnds ends = connected_sockets(loop_, unix_test_address());
  const auto raw = stream_of(loop_, std::move(ends.client));
  const auto victim = shm_connection(loop_, std::move(ends.server), server_regions_);
  int pipe_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  const Fd a(pipe_ends[0]);
  const Fd b(pipe_ends[1]);
  std::string message(16, '\0');
  message[0] = 1;     // id
  message[9] = 0x10;  // size: 4096
  std::string bytes;
  append_frame(bytes, {.kind = FrameKind::region}, message);
  raw->send_descriptor(a.get());
  const std::array<ByteView, 1> views = {as_bytes(bytes)};
  ASSERT_TRUE(raw->try_write(views).ok());
  const auto received = run_task(loop_, victim->receive());
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code, Errc::corrupt);
  EXPECT_NE(received.error().message.find("is not a memory file"), std::string::npos);
  EXPECT_EQ(victim->fault(), FrameFault::protocol);
  EXPECT_FALSE(server_->failed());
}

TEST_F(Shm, DescriptorsThatNobodyAskedForAreBounded) {
  SocketEnds ends = connected_sockets(loop_, unix_test_address());
  const auto raw = stream_of(loop_, std::move(ends.client));
  auto victim = shm_connection(loop_, std::move(ends.server), server_regions_);
  const size_t descriptors = open_descriptors();
  std::string bytes;
  append_frame(bytes, {.kind = FrameKind::ping}, "");
  const std::array<ByteView, 1> views = {as_bytes(bytes)};
  std::optional<Error> error;
  for (int i = 0; i < 100 && !error; i++) {
    for (int j = 0; j < 16; j++) raw->send_descriptor(raw->fd());
    if (!raw->try_write(views).ok()) break;
    auto received = run_task(loop_, victim->receive());
    if (!received) error = std::move(received).error();
  }
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, Errc::corrupt) << error->message;
  EXPECT_EQ(victim->fault(), FrameFault::transport);
  EXPECT_LT(open_descriptors(), descriptors + 300);
  victim.reset();
  EXPECT_LT(open_descriptors(), descriptors);
}

TEST_F(Shm, ATruncatedRegionIsAnErrorAndNoSignal) {
  if (!offers_huge()) GTEST_SKIP() << "no region that could be truncated";
  auto region = regions_.make(4 * kMiB, ShmKind::huge);
  ASSERT_TRUE(region.ok());
  const RemoteBuffer buffer = sink((*region)->memory());
  std::vector<std::byte> bytes(3 * kMiB);
  ASSERT_TRUE(run_task(loop_, server_->push(buffer, 0, bytes)).ok());
  ASSERT_EQ(::ftruncate((*region)->fd(), 2 * kMiB), 0);
  for (const uint64_t offset : {uint64_t{0}, kMiB}) {
    const auto pushed = run_task(loop_, server_->push(buffer, offset, bytes));
    ASSERT_FALSE(pushed.ok());
    EXPECT_EQ(pushed.error().code, Errc::refused);
    EXPECT_EQ(pushed.error().sys, EFAULT);
    EXPECT_EQ(run_task(loop_, server_->pull(buffer, offset, bytes)).error().code, Errc::refused);
  }
  struct stat status;
  ASSERT_EQ(::fstat((*region)->fd(), &status), 0);
  EXPECT_EQ(static_cast<uint64_t>(status.st_size), 2 * kMiB);  // no push has grown it
  ASSERT_EQ(::ftruncate((*region)->fd(), 0), 0);
  const auto span = server_->mapped_memory(buffer);
  ASSERT_TRUE(span.has_value());
  const Fd zeros(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(::read(zeros.get(), span->bytes().data(), 4096), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_FALSE(server_->failed());
}

// A disk may still write to memory of the peer, which the peer reuses after the end of the stream.
TEST_F(Shm, ThePeerSeesNoEndWhileItsMemoryIsInUse) {
  const RemoteBuffer buffer = sink(memory(kMiB, ShmKind::sealed));
  {
    const auto mapped = server_->mapped_memory(buffer);
    ASSERT_TRUE(mapped.has_value());
    server_->close(fail(Errc::unreachable, "no sign of life"));
    client_->send({.kind = FrameKind::ping});
    settle();
    EXPECT_TRUE(at_server_.has_value()) << "this side has ended";
    EXPECT_FALSE(client_->failed());
    EXPECT_FALSE(server_->mapped_memory(buffer).has_value());
  }
  settle();
  EXPECT_TRUE(at_client_.has_value());
  EXPECT_TRUE(client_->ended_by_peer());
  EXPECT_FALSE(server_->ended_by_peer());
}

TEST_F(Shm, ARemovedRegionIsForgotten) {
  auto region = regions_.make(kMiB, ShmKind::sealed);
  ASSERT_TRUE(region.ok());
  const RemoteBuffer buffer = sink((*region)->memory());
  EXPECT_TRUE(server_->mapped_memory(buffer).has_value());
  const size_t descriptors = open_descriptors();
  exposures_.clear();
  regions_.remove(**region);
  region->reset();
  client_->send({.kind = FrameKind::ping});
  settle();
  EXPECT_FALSE(server_->mapped_memory(buffer).has_value());
  EXPECT_FALSE(server_->failed());
  EXPECT_LT(open_descriptors(), descriptors);
}

TEST_F(Shm, LongCopiesLetOtherTasksRun) {
  const ByteSpan shared = memory(32 * kMiB, ShmKind::sealed);
  const RemoteBuffer buffer = sink(shared);
  std::vector<std::byte> bytes(shared.size());
  size_t turns = 0;
  Gate gate(loop_);
  gate.spawn([](Loop& loop, size_t& count) -> Task<void> {
    for (;;) {
      YieldWait yield(loop);
      if (!co_await yield) co_return;
      count++;
    }
  }(loop_, turns));
  ASSERT_TRUE(run_task(loop_, server_->push(buffer, 0, bytes)).ok());
  EXPECT_GE(turns, 31u);
  turns = 0;
  ASSERT_TRUE(run_task(loop_, server_->pull(buffer, 0, bytes)).ok());
  EXPECT_GE(turns, 31u);
  turns = 0;  // so do many short ones
  run_task(loop_, [](Connection& server, RemoteBuffer to, ByteView from) -> Task<void> {
    for (int i = 0; i < 320; i++) (void)co_await server.push(to, 0, from);
  }(*server_, buffer, ByteView(bytes).first(100'000)));
  EXPECT_GE(turns, 20u);
  run_task(loop_, gate.close(fail(Errc::interrupted, "enough")));
}

TEST_F(Shm, FramesPassALongCopy) {
  const ByteSpan shared = memory(64 * kMiB, ShmKind::sealed);
  const RemoteBuffer buffer = sink(shared);
  std::vector<std::byte> bytes(shared.size());
  SocketEnds ends = connected_sockets(loop_, unix_test_address());
  const auto here = shm_connection(loop_, std::move(ends.client), regions_);
  const auto there = shm_connection(loop_, std::move(ends.server), server_regions_);
  std::optional<Result<void>> pushed;
  size_t frames = 0;
  Gate gate(loop_);
  gate.spawn(keep(server_->push(buffer, 0, bytes), pushed));
  gate.spawn([](Connection& from, Connection& to, std::optional<Result<void>>& copy,
                size_t& count) -> Task<void> {
    while (!copy) {
      from.send({.kind = FrameKind::ping});
      if (!(co_await to.receive()).ok()) co_return;
      if (!copy) count++;
    }
  }(*here, *there, pushed, frames));
  run_task(loop_, gate.wait_empty());
  EXPECT_TRUE(pushed->ok());
  EXPECT_GE(frames, 16u);
}

TEST_F(Shm, AFailedConnectionStopsWriting) {
  const ByteSpan shared = memory(32 * kMiB, ShmKind::sealed);
  const RemoteBuffer buffer = sink(shared);
  std::vector<std::byte> bytes(shared.size(), std::byte{1});
  std::optional<Result<void>> pushed;
  Gate gate(loop_);
  gate.spawn(keep(server_->push(buffer, 0, bytes), pushed));
  gate.spawn([](Loop& loop, Connection& server, ByteSpan seen) -> Task<void> {
    while (seen[0] == std::byte{}) {
      YieldWait yield(loop);
      (void)co_await yield;
    }
    server.close(fail(Errc::unreachable, "closed by the test"));
  }(loop_, *server_, shared));
  run_task(loop_, gate.wait_empty());
  ASSERT_TRUE(pushed.has_value() && !pushed->ok());
  EXPECT_EQ(pushed->error().message, "closed by the test");
  EXPECT_EQ(shared[8 * kMiB], std::byte{});
}

// The disk writes into the client's memory; no byte passes through the server's.
TEST_F(Shm, ADiskReadLandsInTheClientsMemory) {
  const io::TempDir dir;
  io::SystemDisk disk;
  auto content = io::Buffers::make(1, 4 * kMiB);
  ASSERT_TRUE(content.ok());
  fill(content->slot(0), 5);
  {
    auto file = disk.open(dir / "data", {.access = io::AccessMode::write, .create = true});
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->write_at(content->slot(0), 0).ok());
    ASSERT_TRUE((*file)->sync().ok());
  }
  for (const ShmKind kind : {ShmKind::sealed, ShmKind::huge}) {
    if (kind == ShmKind::huge && !offers_huge()) continue;
    const ByteSpan shared = memory(6 * kMiB, kind);
    const RemoteBuffer buffer = sink(shared.subspan(kMiB, 4 * kMiB));
    const auto span = server_->mapped_memory(buffer);
    ASSERT_TRUE(span.has_value());
    ASSERT_EQ(span->bytes().size(), 4 * kMiB);
    ASSERT_NE(span->bytes().data(), shared.data() + kMiB);  // a mapping of its own
    auto file = disk.open(dir / "data", {.access = io::AccessMode::read, .direct = true});
    ASSERT_TRUE(file.ok());
    const auto queue = disk.make_queue({.depth = 4});
    size_t read = 0;
    for (uint64_t at = 0; at < 4 * kMiB; at += kMiB) {
      queue->read(**file, span->bytes().subspan(at, kMiB), at, [&](Result<size_t> got) {
        ASSERT_TRUE(got.ok()) << got.error().message;
        read += *got;
      });
    }
    while (queue->in_flight() > 0) queue->run();
    EXPECT_EQ(read, 4 * kMiB);
    const ByteSpan expected = content->slot(0);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), shared.begin() + kMiB));
  }
}

}  // namespace
}  // namespace ff::net
