// The Disk contract (io/disk.h) on the file system of a real cluster, once driven by run() and once
// by a loop; and what is a cluster's own: locks across clients, errors, several threads.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cmd/options/cluster_access.h"
#include "e2e/local_cluster.h"
#include "platform/base/stop_token.h"
#include "platform/base/system_loop.h"
#include "platform/io/async_conformance.h"
#include "platform/io/disk_conformance.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

// A client of its own.
class Client {
 public:
  Client() {
    auto url = client::parse_url("ff://" + test::shared_cluster().address());
    ClusterAccess::Options options{.url = *url, .meta = {}, .net = {}, .name = "test"};
    options.net.insecure = true;
    access_ = ClusterAccess::open(stop_, local_, options).value();
  }
  io::Disk& disk() { return access_->disk(); }
  std::string path(const std::string& in_cluster) { return access_->path(in_cluster); }

 private:
  SystemClock clock_;
  StopToken stop_{clock_};
  io::SystemDisk local_;
  std::unique_ptr<ClusterAccess> access_;
};

class TestedClusterDisk : public io::TestedDisk {
 public:
  explicit TestedClusterDisk(bool looped) {
    static std::atomic<int> last{0};
    dir_ = client_.path("/disk" + std::to_string(++last));
    EXPECT_TRUE(client_.disk().make_dir(dir_, 0755).ok());
    if (looped) loop_.emplace(clock_);
  }
  io::Disk& disk() override { return client_.disk(); }
  std::string dir() override { return dir_; }
  std::unique_ptr<io::IoQueue> make_queue(io::QueueOptions options) override {
    return client_.disk().make_queue(options);
  }
  Loop* loop() override { return loop_ ? &*loop_ : nullptr; }
  bool has_cache() override { return false; }
  bool has_holes() override { return false; }

 private:
  Client client_;
  std::string dir_;
  SystemClock clock_;
  std::optional<SystemLoop> loop_;
};

io::DiskMaker maker(const std::string& name, bool looped) {
  return {name, [looped] { return std::make_unique<TestedClusterDisk>(looped); }};
}

}  // namespace
}  // namespace ff::cmd

namespace ff::io {
namespace {

INSTANTIATE_TEST_SUITE_P(Cluster, DiskConformance,
                         testing::Values(cmd::maker("run", false), cmd::maker("loop", true)),
                         maker_name);
INSTANTIATE_TEST_SUITE_P(Cluster, AsyncConformance, testing::Values(cmd::maker("loop", true)),
                         maker_name);

}  // namespace
}  // namespace ff::io

namespace ff::cmd {
namespace {

TEST(ClusterDisk, ALockExcludesOtherClientsUntilItsFileIsClosed) {
  Client first, second;
  const std::string path = first.path("/lock");
  const io::OpenOptions options{.access = io::AccessMode::write, .create = true};
  auto held = first.disk().open(path, options).value();
  auto wanted = second.disk().open(path, options).value();
  EXPECT_TRUE(held->try_lock().value());
  EXPECT_FALSE(wanted->try_lock().value());
  held.reset();
  EXPECT_TRUE(wanted->try_lock().value());
  wanted.reset();
  EXPECT_TRUE(first.disk().open(path, options).value()->try_lock().value());
}

TEST(ClusterDisk, AClosedFileIsSeenByOthers) {
  Client writer, reader;
  const auto bytes = io::random_bytes(3 * kMiB + 17, 1);
  const std::string path = writer.path("/seen");
  EXPECT_TRUE(writer.disk()
                  .open(path, {.access = io::AccessMode::write, .create = true})
                  .value()
                  ->write_at(bytes, 0)
                  .ok());
  const auto file = reader.disk().open(path, {}).value();
  std::vector<std::byte> into(bytes.size() + 1);
  EXPECT_EQ(file->read_at(into, 0).value(), bytes.size());
  into.resize(bytes.size());
  EXPECT_TRUE(into == bytes);
}

TEST(ClusterDisk, ErrorsNameThePathAsItWasGiven) {
  Client client;
  const std::string path = client.path("/none/below");
  const auto error = client.disk().info(path).error();
  EXPECT_EQ(error.message, path + ": No such file or directory");
  EXPECT_EQ(error.code, Errc::not_found);
  const auto elsewhere = client.disk().info("ff://192.0.2.1:4400/x");
  EXPECT_EQ(elsewhere.error().code, Errc::usage);
  EXPECT_EQ(client.disk().rename("/tmp/x", path).error().code, Errc::failed);
}

// One queue moves what one disk has to the other.
TEST(ClusterDisk, AQueueServesFilesOfBothDisks) {
  Client client;
  test::TempDir dir;
  const auto bytes = io::random_bytes(kMiB, 1);
  const io::OpenOptions both{.access = io::AccessMode::read_write, .create = true};
  const auto near = client.disk().open(dir / "near", both).value();
  const auto far = client.disk().open(client.path("/far"), both).value();
  auto queue = client.disk().make_queue({.depth = 4});
  std::vector<std::byte> into(bytes.size());
  size_t done = 0;
  queue->write(*near, bytes, 0, [&](auto written) { done += *written; });
  queue->write(*far, bytes, 0, [&](auto written) { done += *written; });
  while (queue->in_flight() > 0) queue->run();
  EXPECT_EQ(done, 2 * bytes.size());
  for (io::File* file : {near.get(), far.get()}) {
    std::ranges::fill(into, std::byte{0});
    queue->read(*file, into, 0, [](auto) {});
    while (queue->in_flight() > 0) queue->run();
    EXPECT_TRUE(into == bytes);
  }
}

TEST(ClusterDisk, ManyThreadsAtOnce) {
  Client client;
  ASSERT_TRUE(client.disk().make_dir(client.path("/many"), 0755).ok());
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; thread++) {
    threads.emplace_back([&, thread] {
      const auto bytes = io::random_bytes(100'000, static_cast<uint64_t>(thread));
      for (int i = 0; i < 10; i++) {
        const std::string path =
            client.path("/many/" + std::to_string(thread) + "." + std::to_string(i));
        EXPECT_TRUE(io::put(client.disk(), path, as_text(bytes)).ok());
        if (io::get(client.disk(), path) == as_text(bytes)) good++;
        EXPECT_TRUE(client.disk().rename(path, path + ".moved").ok());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 80);
  EXPECT_EQ(client.disk().list(client.path("/many"))->size(), 80u);
}

}  // namespace
}  // namespace ff::cmd
