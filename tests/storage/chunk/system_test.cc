// The chunk store on real files: O_DIRECT, io_uring, and the committer thread.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "storage/chunk/chunk_world.h"

namespace ff::chunk {
namespace {

using io::code_of;
using io::ok;

class SystemStoreTest : public testing::Test {
 protected:
  ChunkStoreOptions options() {
    return {.disk = disk_,
            .loop = loop_,
            .rng = rng_,
            .dir = dir_ / "disk",
            .cluster = "cluster-1",
            .boot_id = "boot-1",
            .log = {.segment_bytes = 12 * kKiB}};  // checkpoints in their thread
  }
  void SetUp() override {
    ASSERT_TRUE(
        ok(ChunkStore::create(options(), {.cluster = "cluster-1", .disk = "d", .node = 1})));
    open();
    ASSERT_TRUE(ok(run_task(loop_, store_->create_target(kTarget, 1))));
  }
  void open() {
    auto opened = run_task(loop_, ChunkStore::open(options()));
    ASSERT_TRUE(ok(opened));
    store_ = std::move(*opened);
  }

  // Writes several versions of a chunk; `text` is the final content.
  Task<void> write_some(ChunkId id, std::string& text) {
    SeededRng rng(id.index);
    for (uint64_t version = 1; version <= 8; ++version) {
      const uint64_t offset = version % 2 == 0 ? rng.below(text.size()) : text.size();
      const std::string data = bytes_of(rng.next(), 1 + rng.below(30000));
      text.resize(std::max<uint64_t>(text.size(), offset + data.size()));
      text.replace(offset, data.size(), data);
      const Update update{.target = kTarget,
                          .id = id,
                          .version = version,
                          .request_id = {.client = id.index, .channel = 1, .sequence = version},
                          .offset = offset,
                          .data = as_bytes(data),
                          .chunk_size = kMiB};
      EXPECT_TRUE(ok(co_await store_->write(update)));
      EXPECT_TRUE(ok(co_await store_->commit(kTarget, id, version, 1)));
    }
    if (id.index % 4 != 0) co_return;
    EXPECT_TRUE(ok(co_await store_->sync()));
  }
  void expect_all(const std::vector<std::string>& texts) {
    for (uint64_t i = 0; i < texts.size(); ++i) {
      std::string text(texts[i].size() + 1, '\0');
      const ByteSpan into(reinterpret_cast<std::byte*>(text.data()), text.size());
      const ReadRequest request{.target = kTarget, .id = {.inode = 1, .index = i}};
      const auto done = run_task(loop_, store_->read(request, into));
      ASSERT_TRUE(ok(done));
      text.resize(done->bytes);
      EXPECT_TRUE(text == texts[i]) << i;
    }
  }

  io::TempDir dir_;
  io::SystemDisk disk_;
  SystemClock clock_;
  SystemLoop loop_{clock_};
  SeededRng rng_{1};
  std::unique_ptr<ChunkStore> store_;
};

TEST_F(SystemStoreTest, ManyAtOnceSurviveAnEndWithAndWithoutAClose) {
  std::vector<std::string> texts(16);
  Gate gate(loop_);
  for (uint64_t i = 0; i < texts.size(); ++i) {
    gate.spawn(write_some({.inode = 1, .index = i}, texts[i]));
  }
  run_task(loop_, gate.wait_empty());
  expect_all(texts);
  store_.reset();
  open();
  EXPECT_EQ(store_->last_shutdown(), ShutdownKind::process_died);
  EXPECT_EQ(store_->rolled_back_chunks(), 0u);
  expect_all(texts);
  ASSERT_TRUE(ok(run_task(loop_, store_->close())));
  store_.reset();
  open();
  EXPECT_EQ(store_->last_shutdown(), ShutdownKind::clean);
  expect_all(texts);
}

// Zero-copy reads into memory of a client that was truncated: completely, in part, or not at all.
TEST_F(SystemStoreTest, MemoryThatHasGoneIsNoFaultOfTheDisk) {
  constexpr size_t kBytes = 512 * kKiB;
  const ChunkId id{.inode = 1, .index = 1};
  const std::string data = bytes_of(3, kBytes);
  const Update update{.target = kTarget,
                      .id = id,
                      .version = 1,
                      .request_id = {.client = 1, .channel = 1, .sequence = 1},
                      .data = as_bytes(data),
                      .chunk_size = kMiB};
  ASSERT_TRUE(ok(run_task(loop_, store_->write(update))));
  ASSERT_TRUE(ok(run_task(loop_, store_->commit(kTarget, id, 1, 1))));
  const int fd = ::memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(fd, kBytes), 0);
  void* const base = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(base, MAP_FAILED);
  const ByteSpan into(static_cast<std::byte*>(base), kBytes);
  const ReadRequest request{.target = kTarget, .id = id, .zero_copy = true};
  for (const off_t left : {0, 4096, 262144}) {
    ASSERT_EQ(::ftruncate(fd, left), 0);
    const auto done = run_task(loop_, store_->read(request, into));
    ASSERT_FALSE(done.ok()) << left;
    EXPECT_EQ(done.error().code, Errc::refused) << done.error().message;
    EXPECT_EQ(done.error().sys, EFAULT);
    EXPECT_TRUE(ok(store_->health()));
  }
  ASSERT_EQ(::ftruncate(fd, kBytes), 0);
  ASSERT_TRUE(ok(run_task(loop_, store_->read(request, into))));
  EXPECT_TRUE(as_text(into) == data);
  ::munmap(base, kBytes);
  ::close(fd);
}

TEST_F(SystemStoreTest, ASecondProcessIsRefused) {
  EXPECT_EQ(code_of(run_task(loop_, ChunkStore::open(options()))), Errc::busy);
}

}  // namespace
}  // namespace ff::chunk
