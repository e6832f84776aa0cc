// A simulated cluster with a file system (scenario/storage_cluster.h) and one client.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/storage_cluster.h"
#include "platform/base/log.h"
#include "platform/io/test_bytes.h"
#include "platform/kv/memory_engine.h"
#include "storage/client/file_system.h"

namespace ff::client {

inline std::string text_of(uint64_t seed, size_t size) {
  SeededRng rng(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(rng.below(256));
  return text;
}

// One client machine.
class User {
 public:
  User(scenario::cluster_parts::ClusterSimulation& stage, std::string name,
       bool delegations = false, ReadSnapshots* snapshots = nullptr)
      : transport_(stage.net.transport(name)),
        context_{stage.world.loop(), *transport_, grants_,
                 stage.metrics,      stage.rng,   stage.identity(name)},
        files_(context_, scenario::cluster_parts::manager_addresses(),
               {.arena = {}, .delegations = delegations, .snapshots = snapshots}) {}
  FileSystem& files() { return files_; }
  rpc::ClientContext& context() { return context_; }

 private:
  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport_;
  rpc::ClientContext context_;
  FileSystem files_;
};

constexpr uint64_t kChunk = 64 * kKiB;

class FileSystemWorld : public testing::Test {
 protected:
  explicit FileSystemWorld(uint64_t seed = 1)
      : cluster_(seed, {.chains = 3, .replicas = 2, .files = true}) {}
  void SetUp() override {
    log_setup({.level = LogLevel::error});  // what daemons warn of is what was done to them
    cluster_.form();
    ASSERT_FALSE(stage_.violation) << stage_.violation->message;
    ASSERT_TRUE(io::ok(run(files_.start(INT64_MAX))));
    const meta::Layout layout{.table = 1, .chunk_size = kChunk, .stripe = 2};
    ASSERT_TRUE(io::ok(run(metadata().set_layout({}, meta::root(), layout))));
  }

  template <class T>
  T run(Task<T> task) {
    return run_task(stage_.world.loop(), std::move(task));
  }
  void pass(int64_t ns) { cluster_.run_for(ns); }
  // Waits up to two minutes.
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 240 && !condition(); i++) pass(500 * kMillisecond);
    return condition();
  }
  meta::MetaClient& metadata() { return files_.metadata(); }

  using FileRef = std::shared_ptr<File>;
  Result<FileRef> create(std::string name) {
    return run(files_.create({}, meta::root(), std::move(name), {.mode = 0644}));
  }
  Result<FileRef> open(uint64_t inode, uint32_t rights = meta::kMayRead) {
    return run(files_.open({}, {.id = inode}, rights));
  }
  static std::string read(FileSystemWorld& world, File& file, uint64_t offset, size_t size) {
    std::string text(size, '?');
    const auto got =
        world.run(file.read(offset, {reinterpret_cast<std::byte*>(text.data()), text.size()}));
    if (!got) return "(" + got.error().message + ")";
    text.resize(*got);
    return text;
  }
  std::string read(File& file, uint64_t offset, size_t size) {
    return read(*this, file, offset, size);
  }
  // Creates a closed file with this text.
  uint64_t make(std::string name, const std::string& text) {
    auto file = create(std::move(name));
    EXPECT_TRUE(io::ok(file));
    if (!file) return 0;
    EXPECT_TRUE(io::ok(run((*file)->write(0, as_bytes(text)))));
    EXPECT_TRUE(io::ok(run((*file)->close())));
    return (*file)->inode().id;
  }
  meta::wire::FsckReply fsck(bool repair = false, int64_t orphans_after_ns = 0) {
    auto reply = run(metadata().fsck(repair, orphans_after_ns));
    EXPECT_TRUE(io::ok(reply));
    return reply ? *reply : meta::wire::FsckReply();
  }
  // The number of files with chunks, per target.
  size_t stored() { return static_cast<size_t>(fsck().stored()); }

  scenario::StorageCluster cluster_;
  scenario::cluster_parts::ClusterSimulation& stage_ = cluster_.simulation();
  // For tests that access the store directly.
  kv::MemoryEngine store_{stage_.store, stage_.world.loop(), stage_.rng};
  User user_{stage_, "user"};
  FileSystem& files_ = user_.files();
};

}  // namespace ff::client
