// The store of keys and values (storage/kvstore) on a real cluster: two processes, each with a
// client of its own, of which one stops without a word and comes back late.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cmd/options/cluster_access.h"
#include "e2e/local_cluster.h"
#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/rng.h"
#include "platform/base/stop_token.h"
#include "platform/base/system_loop.h"
#include "platform/io/system_disk.h"
#include "storage/kvstore/store.h"

namespace ff::cmd {
namespace {

// While nobody calls it, its loop stands still, as of a paused process.
class ClusterProcess {
 public:
  explicit ClusterProcess(uint64_t seed) : rng_(seed) {
    auto url = client::parse_url("ff://" + test::shared_cluster().address());
    ClusterAccess::Options options{.url = *url, .meta = {}, .net = {}, .name = "test"};
    options.net.insecure = true;
    access_ = ClusterAccess::open(stop_, local_, options).value();
    kvstore::Options store;
    store.address = std::to_string(seed);
    store.partitions = 2;
    store.segment_bytes = kMiB;
    store.heartbeat_ns = kSecond / 10;
    auto opened = run_task(loop_, kvstore::Store::open(access_->disk(), loop_, rng_, metrics_,
                                                       access_->path("/kv"), std::move(store)));
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    store_ = std::move(*opened);
  }
  kvstore::Store& store() { return *store_; }
  Result<kvstore::Applied> put(const std::string& key, const std::string& value) {
    std::vector<kvstore::Change> changes{{.key = key, .value = value}};
    return run_task(loop_, store_->apply(std::move(changes)));
  }
  std::string get(const std::string& key) {
    const auto entry = run_task(loop_, store_->get(key));
    if (!entry) return "(" + std::string(errc_name(entry.error().code)) + ")";
    return *entry ? (*entry)->value : "(none)";
  }
  void until_owned() {
    const int64_t until_ns = clock_.steady_ns() + 60 * kSecond;
    while (clock_.steady_ns() < until_ns && !(store_->owned(0) && store_->owned(1))) {
      run_task(loop_, pause(loop_));
    }
    EXPECT_TRUE(store_->owned(0) && store_->owned(1));
  }
  void close() { run_task(loop_, store_->close()); }

 private:
  static Task<void> pause(Loop& loop) { (void)co_await sleep_for(loop, kSecond / 20); }

  SystemClock clock_;
  StopToken stop_{clock_};
  io::SystemDisk local_;
  SystemLoop loop_{clock_};
  SeededRng rng_;
  Metrics metrics_;
  std::unique_ptr<ClusterAccess> access_;
  std::unique_ptr<kvstore::Store> store_;
};

TEST(ClusterKvStore, AnotherProcessTakesOverAndTheFormerOneIsFenced) {
  ClusterProcess first(1);
  first.until_owned();
  const auto value = [](int i) { return std::string(static_cast<size_t>(i * i), 'x'); };
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(first.put(std::to_string(i), value(i)).ok()) << i;
  EXPECT_EQ(first.get("299"), value(299));

  ClusterProcess second(2);  // `first` stands still from here
  second.until_owned();
  for (int i = 0; i < 300; ++i) EXPECT_EQ(second.get(std::to_string(i)), value(i)) << i;
  ASSERT_TRUE(second.put("7", "second").ok());

  EXPECT_EQ(first.get("7"), "(stale)");
  EXPECT_EQ(first.put("7", "first").error().code, Errc::stale);
  EXPECT_EQ(second.get("7"), "second");
  second.close();
  first.until_owned();
  EXPECT_EQ(first.get("7"), "second");
  EXPECT_EQ(first.get("299"), value(299));
  first.close();
}

}  // namespace
}  // namespace ff::cmd
