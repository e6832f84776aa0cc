// The threads of a mount: a session with workers, whose kernel is this test at the other end of a
// socket. Nothing is stored: a worker answers a READ with the version of the snapshot that it has.
#include "storage/mount/fuse_worker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "platform/base/log.h"
#include "platform/base/rng.h"
#include "platform/io/system_disk.h"
#include "platform/net/system_transport.h"
#include "platform/rpc/client.h"
#include "storage/mount/fuse_session.h"
#include "storage/mount/spread_load.h"

namespace ff::mount {
namespace {

constexpr size_t kWorkers = 4;
constexpr meta::InodeId kFile = 77;
// All replies fit into the socket at once; /dev/fuse takes any.
constexpr uint64_t kReadBytes = 256;
constexpr int64_t kPatienceNs = 60 * kSecond;

// Fills the memory with the version, which it has in ReadSnapshot::length. Leaves some reads to the
// owner; while `holds`, it answers none.
class VersionReader final : public client::SnapshotReader {
 public:
  VersionReader(Loop& loop, uint64_t seed, std::atomic<uint64_t>& answered,
                std::atomic<uint64_t>& holding)
      : loop_(loop), rng_(seed), answered_(answered), holding_(holding) {}

  Task<Answer> read(client::ReadSnapshotRef snapshot, uint64_t, ByteSpan into) override {
    if (snapshot->length == kHeld) {
      holding_++;
      Event never(loop_);
      const auto waited = co_await never.wait();
      holding_--;
      co_return Result<uint64_t>(waited.error());
    }
    const uint64_t turn = rng_.below(8);
    if (turn == 0) co_return std::nullopt;
    if (turn <= 2) {
      const auto slept = co_await sleep_for(loop_, static_cast<int64_t>(rng_.below(200'000)));
      if (!slept) co_return Result<uint64_t>(slept.error());
    }
    std::memcpy(into.data(), &snapshot->length, sizeof snapshot->length);
    answered_++;
    co_return Result<uint64_t>(uint64_t{into.size()});
  }
  void set_routing(const cluster::Routing&) override {}
  Task<void> close() override { co_return; }

  static constexpr uint64_t kHeld = UINT64_MAX;

 private:
  Loop& loop_;
  SeededRng rng_;
  std::atomic<uint64_t>& answered_;
  std::atomic<uint64_t>& holding_;
};

class FuseWorkerTest : public testing::Test {
 protected:
  struct Reply {
    fuse_out_header header = {};
    uint64_t version = 0;  // of the data of a READ
  };

  void SetUp() override {
    log_setup({.level = LogLevel::error});
    int ends[2] = {};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    kernel_ = Fd(ends[0]);
    device_ = std::move(*FuseDevice::adopt(Fd(ends[1]), "/nowhere"));
    std::vector<FuseSession::WorkerLoop> workers;
    for (size_t i = 0; i < kWorkers; i++) {
      loops_.push_back(std::make_unique<SystemLoop>(clock_));
      workers.push_back({*loops_.back(),
                         std::make_unique<VersionReader>(*loops_.back(), i, answered_, holding_)});
    }
    session_.emplace(loop_, *device_, memory_, callers_, metrics_,
                     FuseSession::Options{.slots = slots_.span(),
                                          .io_uring = false,
                                          .workers = std::move(workers),
                                          .snapshots = &snapshots_});
    operations_.emplace(files_, memory_, *session_, meta::InodeView{});
    owner_ = std::thread([this] { (void)run_task(loop_, session_->run(*operations_, nullptr)); });
    fuse_init_in in = {};
    in.major = FUSE_KERNEL_VERSION;
    in.minor = FUSE_KERNEL_MINOR_VERSION;
    send(FUSE_INIT, 1, in, 0);
    EXPECT_EQ(receive().header.error, 0);
  }
  void TearDown() override {
    end_owner();
    run_task(loop_, session_->close());
    operations_.reset();
    session_.reset();
  }
  // The session is unmounted: its run() returns.
  void end_owner() {
    if (!owner_.joinable()) return;
    EXPECT_EQ(::shutdown(kernel_.get(), SHUT_WR), 0);
    owner_.join();
  }

  template <class T>
  void send(uint32_t opcode, uint64_t unique, const T& in, uint64_t nodeid) {
    fuse_in_header header = {};
    header.len = sizeof(fuse_in_header) + sizeof(T);
    header.opcode = opcode;
    header.unique = unique;
    header.nodeid = nodeid;
    std::array<char, sizeof(fuse_in_header) + sizeof(T)> bytes;
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &in, sizeof in);
    while (::send(kernel_.get(), bytes.data(), bytes.size(), 0) < 0) {
      ASSERT_EQ(errno, EAGAIN);
      wait_for(POLLOUT);
    }
  }
  void send_read(uint64_t unique, uint32_t flags = O_DIRECT) {
    fuse_read_in in = {};
    in.size = kReadBytes;
    in.flags = flags;
    send(FUSE_READ, unique, in, kFile);
  }
  Reply receive() {
    std::array<char, sizeof(fuse_out_header) + kReadBytes> bytes;
    Reply reply;
    ssize_t got = -1;
    while ((got = ::recv(kernel_.get(), bytes.data(), bytes.size(), 0)) < 0 && errno == EAGAIN) {
      if (!wait_for(POLLIN)) break;
    }
    EXPECT_GE(got, static_cast<ssize_t>(sizeof reply.header)) << std::strerror(errno);
    std::memcpy(&reply.header, bytes.data(), sizeof reply.header);
    if (got == static_cast<ssize_t>(bytes.size())) {
      std::memcpy(&reply.version, bytes.data() + sizeof reply.header, sizeof reply.version);
    }
    return reply;
  }
  bool wait_for(short events) {
    pollfd one{.fd = kernel_.get(), .events = events, .revents = 0};
    const bool ready = ::poll(&one, 1, static_cast<int>(kPatienceNs / kMillisecond)) == 1;
    EXPECT_TRUE(ready) << "the session does nothing";
    return ready;
  }
  // As the owner of the file acknowledges a write: workers must not answer with an older version.
  void write_version(uint64_t version, bool publish) {
    std::atomic<bool> done = false;
    loop_.post([&] {
      snapshots_.withdraw(kFile);
      if (publish) this->publish(version);
      done = true;
      done.notify_one();
    });
    done.wait(false);
  }
  void publish(uint64_t version) {
    client::ReadSnapshot snapshot;
    snapshot.inode = kFile;
    snapshot.length = version;
    snapshots_.publish(std::move(snapshot));
  }
  bool eventually(const std::function<bool()>& condition) {
    const int64_t until_ns = clock_.steady_ns() + kPatienceNs;
    while (!condition() && clock_.steady_ns() < until_ns) std::this_thread::yield();
    return condition();
  }
  bool has_reply() {
    pollfd one{.fd = kernel_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, 0) == 1 && (one.revents & POLLIN) != 0;
  }
  // Sends READs that workers hold, until some do; the owner answers those that it has read itself.
  // Returns the unique numbers that were used: from 10 to this.
  uint64_t hold_reads() {
    write_version(VersionReader::kHeld, true);
    uint64_t next = 10;
    while (holding_ == 0 && next < 100'000) {
      for (int i = 0; i < 32; i++) send_read(next++);
      EXPECT_TRUE(eventually([&] { return holding_ > 0 || has_reply(); }));
      while (has_reply()) EXPECT_EQ(receive().header.error, -EBADF);
    }
    EXPECT_GT(holding_, 0u);
    return next;
  }
  // The reads of hold_reads().
  void interrupt_reads(uint64_t next) {
    for (uint64_t unique = 10; unique < next; unique++) {
      send(FUSE_INTERRUPT, 1'000'000 + unique, fuse_interrupt_in{.unique = unique}, 0);
    }
    EXPECT_TRUE(eventually([&] { return holding_ == 0; }));
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  std::vector<std::unique_ptr<SystemLoop>> loops_;
  net::SystemTransport transport_{net::TransportOptions{}};
  rpc::GrantScheduler grants_;
  Metrics metrics_;
  SeededRng rng_{1};
  rpc::ClientContext context_{loop_, transport_, grants_, metrics_, rng_, rpc::Identity()};
  client::FileSystem files_{context_, {net::Address{"127.0.0.1", 1, {}}}, {}};  // nobody is there
  io::SystemDisk disk_;
  CallerResolver callers_{disk_, clock_};
  chunk::AlignedBuffer slots_{32 * FuseSession::kSlotBytes};
  chain::BufferPool memory_;
  client::ReadSnapshots snapshots_;
  std::atomic<uint64_t> answered_ = 0;  // by workers
  std::atomic<uint64_t> holding_ = 0;
  Fd kernel_;
  std::unique_ptr<FuseDevice> device_;
  std::optional<FuseSession> session_;
  std::optional<Operations> operations_;
  std::thread owner_;
};

// The owner has no such file open, so it answers EBADF: a reply has data only from a worker.
TEST_F(FuseWorkerTest, NoReadAfterAnAcknowledgedChangeGetsWhatWasBefore) {
  constexpr size_t kUnderWay = 32;
  constexpr uint64_t kReads = 6000;
  SeededRng rng(7);
  std::map<uint64_t, uint64_t> sent;  // the version that was acknowledged then
  uint64_t unique = 10;
  uint64_t acknowledged = 1;
  uint64_t by_owner = 0;
  write_version(acknowledged, true);
  while (unique < kReads || !sent.empty()) {
    while (unique < kReads && sent.size() < kUnderWay) {
      sent[unique] = acknowledged;
      send_read(unique++);
    }
    const Reply reply = receive();
    const auto found = sent.find(reply.header.unique);
    ASSERT_TRUE(found != sent.end()) << "an answer too many, or none";
    if (reply.header.error == 0) {
      ASSERT_GE(reply.version, found->second);
      ASSERT_LE(reply.version, acknowledged);
    } else {
      ASSERT_EQ(reply.header.error, -EBADF);
      by_owner++;
    }
    sent.erase(found);
    if (rng.below(50) == 0) write_version(++acknowledged, rng.below(4) > 0);
  }
  EXPECT_GT(answered_, 0u);
  EXPECT_GT(by_owner, 0u);
}

TEST_F(FuseWorkerTest, AnInterruptReachesTheWorkerThatHasTheRequest) {
  const uint64_t next = hold_reads();
  // All that are left wait in workers.
  interrupt_reads(next);
}

// The kernel would keep the page, though the owner may not have seen a WRITE that it has sent
// before.
TEST_F(FuseWorkerTest, ReadsOfPagesThatTheKernelKeepsAreForTheOwner) {
  const uint64_t next = hold_reads();
  interrupt_reads(next);
  while (has_reply()) (void)receive();
  for (uint64_t unique = next; unique < next + 128; unique++) {
    send_read(unique, O_RDONLY);
    while (receive().header.unique != unique) {
    }
    ASSERT_EQ(holding_, 0u);
  }
}

TEST_F(FuseWorkerTest, CloseAnswersWhatWorkersHave) {
  (void)hold_reads();
  end_owner();
  run_task(loop_, session_->close());
  EXPECT_EQ(holding_, 0u);
  bool interrupted = false;
  while (has_reply()) interrupted |= receive().header.error == -EINTR;
  EXPECT_TRUE(interrupted);
}

TEST(SpreadLoadTest, WorkersTakePartWhileSeveralProgramsHaveRequestsForThem) {
  SpreadLoad spread;
  for (int i = 0; i < 1000; i++) EXPECT_FALSE(spread.on_request(1, true, true));
  EXPECT_FALSE(spread.on_request(2, false, true));
  EXPECT_FALSE(spread.on_request(3, false, false));
  EXPECT_FALSE(spread.on());
  EXPECT_TRUE(spread.on_request(3, false, true));
  EXPECT_TRUE(spread.on());
  for (int i = 0; i < 1000; i++) spread.on_request(i % 100 == 0 ? 2 : 1, i % 100 != 0, true);
  EXPECT_TRUE(spread.on());
  for (int i = 0; i < 256; i++) spread.on_request(1, true, true);
  EXPECT_FALSE(spread.on());
  EXPECT_TRUE(spread.on_request(3, false, true));
  for (int i = 0; i < 256; i++) spread.on_request(8, false, false);
  EXPECT_FALSE(spread.on());
}

}  // namespace
}  // namespace ff::mount
