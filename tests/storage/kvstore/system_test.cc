// The store on the machine's own file system, with many keys. FF_KVSTORE_KEYS=1000000 measures: it
// prints the memory of the index and the times of writing, opening and reading.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/rng.h"
#include "platform/base/system_loop.h"
#include "platform/base/text.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "storage/kvstore/store.h"
#include "storage/kvstore/store_reader.h"

namespace ff::kvstore {
namespace {

constexpr uint64_t kFewKeys = 20'000;
constexpr uint64_t kAtOnce = 1000;
constexpr size_t kValueBytes = 100;

class SystemStoreTest : public testing::Test {
 protected:
  void open() {
    Options options;
    options.partitions = 4;
    options.heartbeat_ns = kSecond / 10;
    const int64_t began_ns = clock_.steady_ns();
    auto opened = run_task(loop_, Store::open(disk_, loop_, rng_, metrics_, dir_ / "kv", options));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    store_ = std::move(*opened);
    // After a kill it waits for the end of the lease.
    while (!all_owned() && clock_.steady_ns() < began_ns + 60 * kSecond) {
      run_task(loop_, pause(loop_));
    }
    ASSERT_TRUE(all_owned());
    report("opened", began_ns, store_->counts().keys);
  }
  void close() {
    run_task(loop_, store_->close());
    store_.reset();
  }
  void kill() { store_.reset(); }

  void write(uint64_t keys) {
    const int64_t began_ns = clock_.steady_ns();
    for (uint64_t at = 0; at < keys; at += kAtOnce) run_task(loop_, write_some(at));
    report("wrote", began_ns, keys);
  }
  void read(uint64_t keys) {
    const int64_t began_ns = clock_.steady_ns();
    for (uint64_t at = 0; at < keys; at += kAtOnce) {
      std::vector<std::string> names;
      for (uint64_t i = at; i < at + kAtOnce; ++i) names.push_back(key(i));
      const auto got = run_task(loop_, store_->get_many(std::move(names)));
      for (uint64_t i = at; i < at + kAtOnce; ++i) {
        const auto& entry = got[i - at];
        ASSERT_TRUE(entry.ok() && entry->has_value()) << key(i);
        ASSERT_EQ((*entry)->value, value(i));
      }
    }
    report("read", began_ns, keys);
  }
  static uint64_t keys() {
    const char* const given = std::getenv("FF_KVSTORE_KEYS");
    if (given == nullptr) return kFewKeys;
    return align_up(parse_u64(given).value_or(kFewKeys), kAtOnce);
  }

  io::TempDir dir_;
  SystemClock clock_;
  io::SystemDisk disk_;
  SystemLoop loop_{clock_};
  SeededRng rng_{1};
  Metrics metrics_;
  std::unique_ptr<Store> store_;

 private:
  static Task<void> pause(Loop& loop) { (void)co_await sleep_for(loop, kSecond / 100); }
  static std::string key(uint64_t i) { return fmt::format("key:{}", i); }
  static std::string value(uint64_t i) { return fmt::format("{:0{}}", i, kValueBytes); }
  bool all_owned() const {
    for (uint32_t p = 0; p < store_->partitions(); ++p) {
      if (!store_->owned(p)) return false;
    }
    return true;
  }
  // Where the disk takes seconds for a heartbeat, the lease ends until the next one.
  Task<void> write_one(uint64_t i) {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      std::vector<Change> changes{{.key = key(i), .value = value(i)}};
      const auto applied = co_await store_->apply(std::move(changes));
      if (applied) co_return;
      EXPECT_EQ(applied.error().code, Errc::stale) << applied.error().message;
      co_await pause(loop_);
    }
    ADD_FAILURE() << "no heartbeat";
  }
  Task<void> write_some(uint64_t begin) {
    Gate gate(loop_);
    for (uint64_t i = begin; i < begin + kAtOnce; ++i) gate.spawn(write_one(i));
    co_await gate.wait_empty();
  }
  void report(std::string_view what, int64_t began_ns, uint64_t keys) {
    if (std::getenv("FF_KVSTORE_KEYS") == nullptr) return;
    fmt::print("{} {} keys in {:.2f} s\n", what, keys, to_seconds(clock_.steady_ns() - began_ns));
  }
};

TEST_F(SystemStoreTest, ManyKeysTakeLittleMemoryAndOpenAgain) {
  open();
  write(keys());
  const Counts counts = store_->counts();
  EXPECT_EQ(counts.keys, keys());
  EXPECT_LE(counts.index_bytes, 100 * counts.keys + 100 * kKiB);
  if (std::getenv("FF_KVSTORE_KEYS") != nullptr) {
    fmt::print("{:.1f} bytes of index a key\n",
               static_cast<double>(counts.index_bytes) / static_cast<double>(counts.keys));
  }
  kill();
  open();
  EXPECT_EQ(store_->counts().keys, keys());
  close();
  open();
  EXPECT_EQ(store_->counts().keys, keys());
  read(keys());
  close();
}

// With threads that look at the folders of partitions, of which there are more than threads.
TEST_F(SystemStoreTest, AReaderWithThreadsSeesEveryChange) {
  open();
  write(1000);
  StoreReader::Options options;
  options.threads = 3;
  auto opened = StoreReader::open(disk_, loop_, dir_ / "kv", options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  StoreReader& reader = **opened;
  const auto found = [&](const std::string& name) {
    const std::string_view view = name;
    const auto infos = run_task(loop_, reader.find_many(std::span(&view, 1)));
    EXPECT_TRUE(infos.ok());
    return infos && infos->front().has_value();
  };
  ASSERT_TRUE(run_task(loop_, reader.refresh()).ok());
  EXPECT_EQ(reader.counts().keys, 1000U);
  for (int i = 0; i < 20; ++i) {
    const std::string name = fmt::format("new:{}", i);
    std::vector<Change> changes{{.key = name, .value = "value"}};
    ASSERT_TRUE(run_task(loop_, store_->apply(std::move(changes))).ok());
    EXPECT_TRUE(found(name));
    EXPECT_FALSE(found("missing"));
  }
  for (uint32_t p = 0; p < store_->partitions(); ++p) {
    ASSERT_TRUE(run_task(loop_, store_->clear(p)).ok());
  }
  EXPECT_FALSE(found("new:1"));
  ASSERT_TRUE(run_task(loop_, reader.refresh()).ok());
  EXPECT_EQ(reader.counts().keys, 0U);
  close();
}

}  // namespace
}  // namespace ff::kvstore
