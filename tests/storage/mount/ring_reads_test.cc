// Reads and writes through rings, of files in a simulated cluster, in memory that the program may
// truncate at any time.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "storage/client/file_system_world.h"
#include "storage/mount/ring_server.h"
#include "storage/usrbio/shm.h"

namespace ff::mount {
namespace {

using client::text_of;

constexpr uint32_t kReadsEntries = 16;
constexpr uint64_t kData = 4 * kMiB;
constexpr int64_t kUnset = 12345;

struct ReadsKernel final : KernelCache {
  std::vector<std::pair<uint64_t, uint64_t>> pages = {};  // places and sizes
  void invalidate_attributes(meta::InodeId) override {}
  Task<void> invalidate_pages(meta::InodeId, uint64_t offset, uint64_t size) override {
    pages.emplace_back(offset, size);
    co_return;
  }
  void invalidate_pages_async(meta::InodeId, uint64_t, uint64_t) override {}
};

struct ReadsHost final : RingContext {
  ReadsHost(Loop& of, client::FileSystem& files, meta::InodeView root)
      : on(of), operations_of(files, bytes, kernel, std::move(root)), batches(of) {}
  // What a process left that was killed now.
  std::unique_ptr<RingJournal> journal_of_the_dead() const {
    std::string content(kMiB, '\0');
    const ssize_t size = ::pread(log->fd(), content.data(), content.size(), 0);
    Fd copy(::memfd_create("journal", MFD_CLOEXEC));
    EXPECT_EQ(::pwrite(copy.get(), content.data(), static_cast<size_t>(size), 0), size);
    auto opened = RingJournal::open(std::move(copy));
    EXPECT_TRUE(io::ok(opened));
    return std::move(*opened);
  }
  Loop& on;
  chain::BufferPool bytes;
  ReadsKernel kernel;
  Operations operations_of;
  std::unique_ptr<RingJournal> log = std::move(RingJournal::create()).value();
  uint64_t rings = 0;
  std::optional<Gate> batches;
  RegisteredMemoryRef known;
  Loop& loop() override { return on; }
  Gate& gate() override { return *batches; }
  Operations& operations() override { return operations_of; }
  chain::BufferPool& memory() override { return bytes; }
  RingJournal& journal() override { return *log; }
  RegisteredMemoryRef find(const usrbio::IovId&, uint32_t) override { return known; }
  void on_batch_done() override {}
};

// A program with memory, a read ring, a write ring and one open file.
class RingReadsTest : public client::FileSystemWorld {
 protected:
  void SetUp() override {
    FileSystemWorld::SetUp();
    auto root = run(metadata().stat(meta::root(), false));
    ASSERT_TRUE(io::ok(root));
    context_ = std::make_unique<ReadsHost>(stage_.world.loop(), files_, *root);
    auto created =
        run(context_->operations_of.create({}, meta::kRoot, "file", 0644, O_RDWR | O_DIRECT));
    ASSERT_TRUE(io::ok(created));
    inode_ = created->inode.id;
    handle_ = created->opened.handle;
    Operations::Write all{.offset = 0, .from = as_bytes(text_), .flags = O_RDWR | O_DIRECT};
    ASSERT_TRUE(io::ok(run(context_->operations_of.write(handle_, std::move(all)))));
    ASSERT_EQ(usrbio::create_shm(kData, -1, data_), 0);
    auto file = open_client_memory(data_.path, ::getuid());
    ASSERT_TRUE(file.ok());
    auto memory = map_client_memory(*file);
    ASSERT_TRUE(memory.ok());
    auto known = std::make_shared<RegisteredMemory>();
    known->memory = std::move(*memory);
    known->fd = std::move(file->fd);
    context_->known = known_ = known;
    reads_ = make_ring(true);
    writes_ = make_ring(false);
  }
  void TearDown() override {
    reads_.server.reset();
    writes_.server.reset();
    run(context_->batches->wait_empty());
    for (usrbio::Shm* one : {&data_, &reads_.shm, &writes_.shm}) {
      usrbio::unmap(*one);
      ::unlink(one->path.c_str());
    }
  }

  struct OneRing {
    usrbio::Shm shm = {};
    usrbio::Ring ring = {};
    usrbio::IovLinkName name = {};
    uint64_t number = 0;
    std::shared_ptr<RingServer> server = {};
    uint32_t added = 0;
    std::vector<int64_t> results = std::vector<int64_t>(kReadsEntries, kUnset);  // by slot
    uint32_t taken = 0;
  };
  OneRing make_ring(bool read, uint32_t uid = 0) {
    OneRing made;
    EXPECT_EQ(usrbio::create_shm(usrbio::ring_bytes(kReadsEntries), -1, made.shm), 0);
    made.ring = usrbio::Ring(made.shm.base, kReadsEntries);
    made.ring.head().magic = usrbio::kRingMagic;
    made.ring.head().version = usrbio::kRingVersion;
    made.ring.head().entries = kReadsEntries;
    made.name.ring = true;
    made.name.read = read;
    made.number = ++context_->rings;
    const auto file = open_client_memory(made.shm.path, ::getuid());
    EXPECT_TRUE(file.ok());
    auto server = RingServer::make(*context_, made.name, uid, *file, made.number);
    EXPECT_TRUE(server.ok());
    made.server = *server;
    return made;
  }
  void add(OneRing& to, uint64_t at, uint64_t offset, uint64_t length) {
    usrbio::SubmissionEntry& request = to.ring.submission(to.added);
    request = {};
    request.file = inode_;
    request.at = at;
    request.offset = offset;
    request.length = length;
    request.slot = to.added++ % kReadsEntries;
    to.ring.head().submitted.store(to.added);
  }
  // Takes completions. Returns whether all entries have one.
  bool take(OneRing& of) {
    for (; of.taken < of.ring.head().completed.load(); of.taken++) {
      const usrbio::CompletionEntry& outcome = of.ring.completion(of.taken);
      EXPECT_LT(outcome.slot, kReadsEntries);
      completions_++;
      of.results[outcome.slot] = outcome.result;
    }
    return of.taken == of.added;
  }
  void until_done(OneRing& of) {
    of.server->take_requests();
    EXPECT_TRUE(eventually([&] { return take(of); }));
  }
  std::string_view seen(uint64_t at, uint64_t size) const {
    return {static_cast<const char*>(data_.base) + at, size};
  }
  void cut(uint64_t to) { ASSERT_EQ(::truncate(data_.path.c_str(), static_cast<off_t>(to)), 0); }
  // The daemon accesses a missing page.
  void lose() {
    cut(0);
    EXPECT_EQ(known_->memory.bytes[0], std::byte{0});
    ASSERT_TRUE(known_->memory.lost());
  }

  // Kills the process, and another one continues the ring.
  void kill_and_continue(OneRing& of) {
    auto left = context_->journal_of_the_dead();
    of.server.reset();
    context_->batches.emplace(stage_.world.loop());
    for (OneRing* const one : {&reads_, &writes_}) one->server.reset();
    context_->log = std::move(left);
    const auto file = open_client_memory(of.shm.path, ::getuid());
    ASSERT_TRUE(file.ok());
    auto server = RingServer::restore(*context_, of.name, 0, *file, of.number);
    ASSERT_TRUE(io::ok(server));
    of.server = *server;
  }
  void block_nodes(bool blocked) {
    for (int node = 1; node <= 3; node++) {
      const std::string name = fmt::format("node{}", node);
      blocked ? stage_.net.block(name, "user") : stage_.net.unblock(name, "user");
    }
  }

  std::unique_ptr<ReadsHost> context_;
  size_t completions_ = 0;
  const std::string text_ = text_of(7, 1'000'000);
  meta::InodeId inode_ = 0;
  uint64_t handle_ = 0;
  usrbio::Shm data_;
  std::shared_ptr<const RegisteredMemory> known_;
  OneRing reads_;
  OneRing writes_;
};

TEST_F(RingReadsTest, ReadsBringTheFilesBytes) {
  add(reads_, 0, 0, 300'000);
  add(reads_, 300'001, 123'457, 65'536);
  add(reads_, 500'000, text_.size() - 10, 100);
  add(reads_, 600'000, text_.size(), 100);
  add(reads_, 700'000, 5, 0);
  add(reads_, kData - 4096, 4096, 4096);
  until_done(reads_);
  EXPECT_EQ(reads_.results[0], 300'000);
  EXPECT_TRUE(seen(0, 300'000) == text_.substr(0, 300'000));
  EXPECT_EQ(reads_.results[1], 65'536);
  EXPECT_TRUE(seen(300'001, 65'536) == text_.substr(123'457, 65'536));
  EXPECT_EQ(reads_.results[2], 10);
  EXPECT_EQ(seen(500'000, 10), text_.substr(text_.size() - 10));
  EXPECT_EQ(reads_.results[3], 0);
  EXPECT_EQ(reads_.results[4], 0);
  EXPECT_EQ(reads_.results[5], 4096);
  EXPECT_EQ(reads_.server->running(), 0u);
}

// More than one read covers.
TEST_F(RingReadsTest, ALongReadIsDoneInParts) {
  constexpr uint64_t kLong = 40 * kMiB;
  usrbio::Shm large;
  ASSERT_EQ(usrbio::create_shm(kLong, -1, large), 0);
  const auto file = open_client_memory(large.path, ::getuid());
  ASSERT_TRUE(file.ok());
  auto known = std::make_shared<RegisteredMemory>();
  known->memory = std::move(map_client_memory(*file)).value();
  context_->known = known;
  const uint64_t far = 36 * kMiB;
  Operations::Write tail{.offset = far, .from = as_bytes("tail"), .flags = O_RDWR | O_DIRECT};
  ASSERT_TRUE(io::ok(run(context_->operations_of.write(handle_, std::move(tail)))));
  add(reads_, 0, 0, kLong);
  until_done(reads_);
  EXPECT_EQ(reads_.results[0], static_cast<int64_t>(far + 4));
  const std::string_view bytes(static_cast<const char*>(large.base), kLong);
  EXPECT_TRUE(bytes.substr(0, text_.size()) == text_);
  EXPECT_EQ(bytes.find_first_not_of('\0', text_.size()), far);
  EXPECT_EQ(bytes.substr(far, 4), "tail");
  usrbio::unmap(large);
  ::unlink(large.path.c_str());
}

TEST_F(RingReadsTest, WritesAreReadByAll) {
  std::memcpy(data_.base, "new bytes", 9);
  add(writes_, 0, 100, 9);
  add(writes_, 0, text_.size(), 9);
  until_done(writes_);
  EXPECT_EQ(writes_.results[0], 9);
  EXPECT_EQ(writes_.results[1], 9);
  const auto length = run(context_->operations_of.getattr(inode_));
  ASSERT_TRUE(io::ok(length));
  EXPECT_EQ(length->inode.length, text_.size() + 9);
  add(reads_, 4096, 95, 20);
  until_done(reads_);
  std::string expected = text_.substr(95, 20);
  expected.replace(5, 9, "new bytes");
  EXPECT_EQ(seen(4096, 20), expected);
}

TEST_F(RingReadsTest, ALongWriteIsDoneInParts) {
  const std::string long_text = text_of(9, 3'000'000);
  std::memcpy(static_cast<char*>(data_.base) + 77, long_text.data(), long_text.size());
  add(writes_, 77, 12'345, long_text.size());
  until_done(writes_);
  EXPECT_EQ(writes_.results[0], static_cast<int64_t>(long_text.size()));
  std::memset(data_.base, 0, kData);
  add(reads_, 0, 12'345, long_text.size());
  until_done(reads_);
  EXPECT_TRUE(seen(0, long_text.size()) == long_text);
}

// Write-behind goes first, and the page cache becomes stale.
TEST_F(RingReadsTest, AWriteGoesPastThePagesOfOthers) {
  const auto cached = run(context_->operations_of.open({}, inode_, O_RDWR));
  ASSERT_TRUE(cached.ok());
  Operations::Write behind{.offset = 0, .from = as_bytes("behind"), .flags = O_RDWR};
  ASSERT_TRUE(io::ok(run(context_->operations_of.write(cached->handle, std::move(behind)))));
  std::memcpy(data_.base, "ring", 4);
  add(writes_, 0, 0, 4);
  until_done(writes_);
  EXPECT_EQ(writes_.results[0], 4);
  EXPECT_EQ(context_->kernel.pages, (std::vector<std::pair<uint64_t, uint64_t>>{{0, 4}}));
  ASSERT_TRUE(io::ok(run(context_->operations_of.sync(cached->handle))));
  add(reads_, 4096, 0, 8);
  until_done(reads_);
  EXPECT_EQ(seen(4096, 8), "ringnd" + text_.substr(6, 2));
}

TEST_F(RingReadsTest, ARingDoesWhatItsUserHasTheFileOpenFor) {
  constexpr uint32_t kUser = 7;
  const meta::Namespace::Attributes theirs{.mode = 04755, .uid = kUser, .gid = kUser};
  ASSERT_TRUE(io::ok(run(context_->operations_of.setattr({}, inode_, {.to = theirs}))));
  ASSERT_TRUE(io::ok(run(context_->operations_of.setattr({}, inode_, {.to = {.mode = 04755}}))));
  OneRing reads = make_ring(true, kUser);
  OneRing writes = make_ring(false, kUser);
  const auto attempt = [&](OneRing& ring) {
    const uint32_t slot = ring.added;
    add(ring, 0, 0, 4);
    until_done(ring);
    return ring.results[slot];
  };
  EXPECT_EQ(attempt(reads), -EBADF);  // root alone has it open
  EXPECT_EQ(attempt(writes), -EBADF);
  const meta::Caller user{.uid = kUser, .gid = kUser};
  ASSERT_TRUE(io::ok(run(context_->operations_of.open(user, inode_, O_RDONLY))));
  EXPECT_EQ(attempt(reads), 4);
  EXPECT_EQ(attempt(writes), -EBADF);
  ASSERT_TRUE(io::ok(run(context_->operations_of.open(user, inode_, O_WRONLY))));
  EXPECT_EQ(attempt(writes), 4);
  // A write clears set-user-ID and set-group-ID.
  EXPECT_EQ(run(context_->operations_of.getattr(inode_))->inode.mode, 0755u);
  for (OneRing* const one : {&reads, &writes}) {
    usrbio::unmap(one->shm);
    ::unlink(one->shm.path.c_str());
  }
}

// Entries whose completions were not taken yet count, too.
TEST_F(RingReadsTest, ARingThatIsOverfilledIsClosed) {
  for (uint32_t i = 0; i < kReadsEntries; i++) add(reads_, 0, 0, 4096);
  EXPECT_EQ(reads_.server->take_requests(), kReadsEntries);
  add(reads_, 0, 0, 4096);
  EXPECT_EQ(reads_.server->take_requests(), 0u);
  pass(kSecond);
  EXPECT_EQ(reads_.ring.head().completed.load(), kReadsEntries);
  EXPECT_EQ(reads_.server->take_requests(), 0u);
  reads_.added--;
}

TEST_F(RingReadsTest, AWriteFromMemoryThatHasGoneWritesNothing) {
  cut(4096);
  add(writes_, 8192, 0, 100);
  add(writes_, 4000, 0, 200);
  until_done(writes_);
  EXPECT_EQ(writes_.results[0], -EFAULT);
  EXPECT_EQ(writes_.results[1], -EFAULT);
  cut(kData);
  add(reads_, 0, 0, 300);
  until_done(reads_);
  EXPECT_EQ(seen(0, 300), text_.substr(0, 300));
}

// Data for truncated memory may go to private pages of the mount.
TEST_F(RingReadsTest, WhatTheProgramNeverGotIsNotSaidToBeThere) {
  cut(0);
  for (uint64_t i = 0; i < 8; i++) add(reads_, i * 65'536, i * 65'536, 65'536);
  until_done(reads_);
  for (int i = 0; i < 8; i++) EXPECT_EQ(reads_.results[i], -EFAULT);
  cut(kData);
  add(reads_, 0, 0, 4096);
  until_done(reads_);
  EXPECT_EQ(reads_.results[8], -EFAULT);  // for good
}

TEST_F(RingReadsTest, ReadsIntoLostMemoryAreGivenUp) {
  for (int node = 1; node <= 3; node++) stage_.net.block(fmt::format("node{}", node), "user");
  add(reads_, 0, 0, 65'536);
  add(reads_, 65'536, 500'000, 65'536);
  reads_.server->take_requests();
  pass(100 * kMillisecond);
  reads_.server->cancel_lost_reads();
  pass(100 * kMillisecond);
  EXPECT_FALSE(take(reads_));  // it is all there
  lose();
  reads_.server->cancel_lost_reads();
  pass(100 * kMillisecond);
  EXPECT_TRUE(take(reads_));
  EXPECT_EQ(reads_.results[0], -EFAULT);
  EXPECT_EQ(reads_.results[1], -EFAULT);
  EXPECT_EQ(reads_.server->running(), 0u);
}

TEST_F(RingReadsTest, ASuccessorRepeatsReadsThatHaveNoCompletion) {
  add(reads_, 0, 0, 4096);
  until_done(reads_);
  block_nodes(true);
  for (uint64_t i = 1; i < 6; i++) add(reads_, i * 65'536, i * 65'536, 65'536);
  reads_.server->take_requests();
  pass(100 * kMillisecond);
  EXPECT_FALSE(take(reads_));
  add(reads_, 6 * 65'536, 6 * 65'536, 65'536);  // nobody has taken it
  kill_and_continue(reads_);
  block_nodes(false);
  EXPECT_EQ(reads_.server->take_requests(), 5u);
  EXPECT_FALSE(reads_.server->prepare_to_sleep());
  until_done(reads_);
  pass(kSecond);
  EXPECT_TRUE(take(reads_));
  EXPECT_EQ(completions_, 7u);
  for (uint64_t i = 1; i < 7; i++) {
    EXPECT_EQ(reads_.results[i], 65'536);
    EXPECT_TRUE(seen(i * 65'536, 65'536) == text_.substr(i * 65'536, 65'536)) << i;
  }
}

TEST_F(RingReadsTest, ASuccessorRepeatsWritesAndChecksThatTheFileIsOpen) {
  std::memcpy(data_.base, "new bytes", 9);
  block_nodes(true);
  add(writes_, 0, 100, 9);
  writes_.server->take_requests();
  pass(100 * kMillisecond);
  kill_and_continue(writes_);
  block_nodes(false);
  until_done(writes_);
  EXPECT_EQ(writes_.results[0], 9);
  const auto read = run(context_->operations_of.read(handle_, 95, 20, {}));
  ASSERT_TRUE(io::ok(read));
  EXPECT_EQ(as_text(read->bytes), text_.substr(95, 5) + "new bytes" + text_.substr(109, 6));
  block_nodes(true);
  add(writes_, 0, 200, 9);
  writes_.server->take_requests();
  pass(100 * kMillisecond);
  run(context_->operations_of.release(handle_));
  kill_and_continue(writes_);
  block_nodes(false);
  until_done(writes_);
  EXPECT_EQ(writes_.results[1], -EBADF);
}

// The program may write anything into its ring meanwhile.
TEST_F(RingReadsTest, ASuccessorRefusesARingWithCountersOfTheProgram) {
  add(reads_, 0, 0, 4096);
  until_done(reads_);
  auto left = context_->journal_of_the_dead();
  reads_.server.reset();
  writes_.server.reset();
  context_->log = std::move(left);
  const size_t room = context_->log->room();
  reads_.ring.head().completed.store(2);
  const auto file = open_client_memory(reads_.shm.path, ::getuid());
  ASSERT_TRUE(file.ok());
  const auto server = RingServer::restore(*context_, reads_.name, 0, *file, reads_.number);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code, Errc::refused);
  reads_.ring.head().completed.store(1);
  EXPECT_FALSE(RingServer::restore(*context_, reads_.name, 0, *file, reads_.number).ok());
  EXPECT_EQ(context_->log->room(), room);
}

}  // namespace
}  // namespace ff::mount
