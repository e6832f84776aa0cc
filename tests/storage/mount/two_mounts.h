// Two mounts of a simulated cluster, without a kernel: on one machine or on two.
#pragma once

#include <fcntl.h>
#include <linux/falloc.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/client/file_system_world.h"
#include "storage/mount/operations.h"

namespace ff::mount {

// Records the invalidations.
struct RecordingKernelCache final : KernelCache {
  std::vector<meta::InodeId> attributes = {};
  std::vector<meta::InodeId> pages = {};
  std::vector<std::pair<uint64_t, uint64_t>> dropped = {};  // places and sizes
  void invalidate_attributes(meta::InodeId inode) override { attributes.push_back(inode); }
  Task<void> invalidate_pages(meta::InodeId inode, uint64_t, uint64_t) override {
    pages.push_back(inode);
    co_return;
  }
  void invalidate_pages_async(meta::InodeId, uint64_t offset, uint64_t size) override {
    dropped.emplace_back(offset, size);
  }
};

struct OneMount {
  explicit OneMount(client::FileSystem& files, meta::InodeView root)
      : operations(files, memory, kernel, std::move(root)) {}
  chain::BufferPool memory = chain::BufferPool();
  RecordingKernelCache kernel = {};
  Operations operations;
};

class TwoMounts : public client::FileSystemWorld {
 protected:
  void SetUp() override {
    FileSystemWorld::SetUp();
    ASSERT_TRUE(io::ok(run(other_.files().start(INT64_MAX))));
    auto root = run(metadata().stat(meta::root(), false));
    ASSERT_TRUE(io::ok(root));
    here_ = std::make_unique<OneMount>(files_, *root);
    there_ = std::make_unique<OneMount>(other_.files(), *root);
  }

  struct Made {
    meta::InodeId inode = 0;
    uint64_t handle = 0;
  };
  Made make_open(OneMount& mount, std::string name, uint32_t flags = O_RDWR) {
    auto created = run(mount.operations.create({}, meta::kRoot, std::move(name), 0644, flags));
    EXPECT_TRUE(io::ok(created));
    return created ? Made{created->inode.id, created->opened.handle} : Made{};
  }
  Result<Operations::Opened> open(OneMount& mount, meta::InodeId inode, uint32_t flags) {
    return run(mount.operations.open({}, inode, flags));
  }
  Result<void> write(OneMount& mount, uint64_t handle, uint64_t offset, std::string_view text,
                     uint32_t flags = O_RDWR) {
    Operations::Write how{.offset = offset, .from = as_bytes(text), .flags = flags};
    return run(mount.operations.write(handle, std::move(how)));
  }
  std::string read(OneMount& mount, uint64_t handle, uint64_t offset, uint64_t size) {
    auto data = run(mount.operations.read(handle, offset, size, {}));
    return data ? std::string(as_text(data->bytes)) : "(" + data.error().message + ")";
  }
  void close(OneMount& mount, uint64_t handle) {
    EXPECT_TRUE(io::ok(run(mount.operations.flush(handle))));
    run(mount.operations.release(handle));
  }
  int lookup(OneMount& mount, std::string name) {
    const auto found = run(mount.operations.lookup({}, meta::kRoot, std::move(name)));
    return found ? 0 : found.error().sys;
  }

  client::User other_{stage_, "other"};
  std::unique_ptr<OneMount> here_;
  std::unique_ptr<OneMount> there_;
};

}  // namespace ff::mount
