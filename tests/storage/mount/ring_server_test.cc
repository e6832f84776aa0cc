// What a malicious program can do to the daemon through shared memory: rings with arbitrary
// content, and files that are truncated while in use.
#include "storage/mount/ring_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "platform/base/log.h"
#include "platform/base/rng.h"
#include "platform/base/system_loop.h"
#include "storage/usrbio/shm.h"

namespace ff::mount {
namespace {

constexpr uint32_t kEntries = 32;

// No memory is registered or valid, so no entry reaches a file.
struct Host final : RingContext {
  SystemClock clock;
  SystemLoop system{clock};
  Gate batches{system};
  chain::BufferPool bytes;
  std::unique_ptr<RingJournal> log = std::move(RingJournal::create()).value();
  RegisteredMemoryRef known;
  Loop& loop() override { return system; }
  Gate& gate() override { return batches; }
  Operations& operations() override { check_failed(__FILE__, __LINE__, "a file was asked for"); }
  chain::BufferPool& memory() override { return bytes; }
  RingJournal& journal() override { return *log; }
  RegisteredMemoryRef find(const usrbio::IovId&, uint32_t) override { return known; }
  void on_batch_done() override {}
};

class RingServerTest : public testing::Test {
 protected:
  void SetUp() override {
    log_setup({.level = LogLevel::error});
    ASSERT_EQ(usrbio::create_shm(usrbio::ring_bytes(kEntries), -1, shm_), 0);
    ring_ = usrbio::Ring(shm_.base, kEntries);
    fill_head();
  }
  void TearDown() override {
    usrbio::unmap(shm_);
    ::unlink(shm_.path.c_str());
  }
  void fill_head() {
    ring_.head().magic = usrbio::kRingMagic;
    ring_.head().version = usrbio::kRingVersion;
    ring_.head().entries = kEntries;
  }
  Result<std::shared_ptr<RingServer>> serve(int32_t depth = 0) {
    FF_TRY(const auto file, open_client_memory(shm_.path, ::getuid()));
    usrbio::IovLinkName name;
    name.ring = name.read = true;
    name.depth = depth;
    return RingServer::make(context_, name, ::getuid(), file, ++rings_);
  }

  Host context_;
  usrbio::Shm shm_;
  usrbio::Ring ring_;
  uint64_t rings_ = 0;
};

TEST_F(RingServerTest, AnswersWhatItCannotDo) {
  const auto server = serve();
  ASSERT_TRUE(server.ok()) << server.error().message;
  EXPECT_EQ(ring_.head().daemon_sleeping.load(), 1u);
  for (uint32_t i = 0; i < 3; i++) ring_.submission(i).slot = i;
  ring_.submission(2).slot = kEntries;
  ring_.head().submitted.store(3);
  EXPECT_EQ((*server)->take_requests(), 3u);
  EXPECT_EQ(ring_.head().completed.load(), 3u);
  for (uint32_t i = 0; i < 3; i++) EXPECT_EQ(ring_.completion(i).result, -EINVAL);
}

TEST_F(RingServerTest, WaitsForWholeBatches) {
  const auto server = serve(4);
  ASSERT_TRUE(server.ok());
  ring_.head().submitted.store(3);
  EXPECT_EQ((*server)->take_requests(), 0u);
  EXPECT_TRUE((*server)->prepare_to_sleep());
  ring_.head().submitted.store(9);
  EXPECT_FALSE((*server)->prepare_to_sleep());
  EXPECT_EQ((*server)->take_requests(), 8u);
  EXPECT_EQ((*server)->take_requests(), 0u);
  EXPECT_TRUE((*server)->prepare_to_sleep());
}

TEST_F(RingServerTest, ClosesARingWhoseNumbersMakeNoSense) {
  const auto server = serve();
  ASSERT_TRUE(server.ok());
  ring_.head().submitted.store(kEntries + 1);
  EXPECT_EQ((*server)->take_requests(), 0u);
  ring_.head().submitted.store(1);
  EXPECT_EQ((*server)->take_requests(), 0u);
  EXPECT_EQ(ring_.head().completed.load(), 0u);
}

TEST_F(RingServerTest, RefusesWhatIsNoRing) {
  for (const uint32_t entries : {kEntries + 1, UINT32_MAX, 0u}) {
    ring_.head().entries = entries;
    EXPECT_FALSE(serve().ok()) << entries;
  }
  fill_head();
  EXPECT_FALSE(serve(kEntries + 1).ok());
  ring_.head().version = 2;
  EXPECT_FALSE(serve().ok());
  ASSERT_EQ(::truncate(shm_.path.c_str(), 100), 0);
  EXPECT_FALSE(serve().ok());
}

TEST_F(RingServerTest, TakesAnyBytes) {
  const uint64_t seed = system_seed();
  std::cout << "seed " << seed << "\n";
  SeededRng rng(seed);
  auto* const bytes = static_cast<uint8_t*>(shm_.base);
  for (int round = 0; round < 300; round++) {
    fill_head();
    if (rng.below(2) == 0) ring_.head().entries = static_cast<uint32_t>(rng.below(1 << 20));
    const auto server = serve(static_cast<int32_t>(rng.below(80)) - 40);
    for (int i = 0; server.ok() && i < 20; i++) {
      for (int k = 0; k < 64; k++)
        bytes[rng.below(shm_.size)] = static_cast<uint8_t>(rng.below(256));
      if (rng.below(2) == 0) ring_.head().submitted.store(static_cast<uint32_t>(i) * 3);
      EXPECT_LE((*server)->take_requests(), RingServer::kBatchMax);
      (*server)->prepare_to_sleep();
    }
  }
}

TEST_F(RingServerTest, OutlivesAFileThatIsCutOff) {
  const auto server = serve();
  ASSERT_TRUE(server.ok());
  ring_.head().submitted.store(2);
  ASSERT_EQ(::truncate(shm_.path.c_str(), 0), 0);
  EXPECT_EQ((*server)->take_requests(), 0u);  // zeros: nothing was submitted
  (*server)->prepare_to_sleep();
}

// A page that replaces a missing one is not shared with the program.
TEST_F(RingServerTest, MemoryThatWasMissingOnceIsLostForGood) {
  const auto file = open_client_memory(shm_.path, ::getuid());
  ASSERT_TRUE(file.ok());
  auto guarded = map_client_memory(*file);
  const auto other = map_client_memory(*file);
  ASSERT_TRUE(guarded.ok() && other.ok());
  guarded->bytes[0] = std::byte{1};
  EXPECT_FALSE(guarded->lost());
  ASSERT_EQ(::truncate(shm_.path.c_str(), 0), 0);
  EXPECT_FALSE(guarded->lost());
  guarded->bytes[0] = std::byte{2};
  EXPECT_TRUE(guarded->lost());
  EXPECT_FALSE(other->lost());
  ASSERT_EQ(::truncate(shm_.path.c_str(), static_cast<off_t>(file->size)), 0);
  EXPECT_EQ(*static_cast<const std::byte*>(shm_.base), std::byte{0});
  EXPECT_TRUE(guarded->lost());
  *guarded = ClientMemory();
  const auto again = map_client_memory(*file);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->lost());
}

TEST_F(RingServerTest, RequestsIntoLostMemoryAreRefused) {
  usrbio::Shm data;
  ASSERT_EQ(usrbio::create_shm(kMiB, -1, data), 0);
  const auto file = open_client_memory(data.path, ::getuid());
  ASSERT_TRUE(file.ok());
  auto memory = map_client_memory(*file);
  ASSERT_TRUE(memory.ok());
  auto known = std::make_shared<RegisteredMemory>();
  known->memory = *memory;
  context_.known = known;
  const auto server = serve();
  ASSERT_TRUE(server.ok());
  ASSERT_EQ(::truncate(data.path.c_str(), 0), 0);
  EXPECT_EQ(memory->bytes[0], std::byte{0});
  ring_.head().submitted.store(1);
  EXPECT_EQ((*server)->take_requests(), 1u);
  EXPECT_EQ(ring_.completion(0).result, -EFAULT);
  usrbio::unmap(data);
  ::unlink(data.path.c_str());
}

TEST_F(RingServerTest, OtherBusErrorsEndTheProcess) {
  const auto file = open_client_memory(shm_.path, ::getuid());
  ASSERT_TRUE(file.ok());
  const auto guarded = map_client_memory(*file);
  ASSERT_TRUE(guarded.ok());
  ASSERT_EQ(::truncate(shm_.path.c_str(), 0), 0);
  EXPECT_EQ(guarded->bytes[0], std::byte{0});
  const auto touch = [this] {
    volatile const char* const at = static_cast<const char*>(shm_.base);  // not guarded
    return *at;
  };
  const auto by_it = [](int status) {
    const bool by_sanitizer = (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) ||
                              (WIFEXITED(status) && WEXITSTATUS(status) == 66);
    return by_sanitizer || (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
  };
  EXPECT_EXIT(touch(), by_it, "");
}

TEST_F(RingServerTest, OpensNothingButMemoryFilesOfTheUser) {
  EXPECT_FALSE(open_client_memory("/etc/passwd", 0).ok());
  EXPECT_FALSE(open_client_memory("/dev/shm/../../etc/passwd", 0).ok());
  EXPECT_FALSE(open_client_memory("/dev/shm/.", 0).ok());
  const std::string link = shm_.path + ".link";
  ASSERT_EQ(::symlink(shm_.path.c_str(), link.c_str()), 0);
  EXPECT_FALSE(open_client_memory(link, 0).ok());
  ::unlink(link.c_str());
  ASSERT_EQ(::mkfifo(link.c_str(), 0600), 0);
  EXPECT_FALSE(open_client_memory(link, 0).ok());
  ::unlink(link.c_str());
  EXPECT_TRUE(open_client_memory(shm_.path, ::getuid()).ok());
  const auto others = open_client_memory(shm_.path, ::getuid() + 1);
  ASSERT_FALSE(others.ok());
  EXPECT_EQ(others.error().sys, EACCES);
  EXPECT_TRUE(open_client_memory(shm_.path, 0).ok());
}

}  // namespace
}  // namespace ff::mount
