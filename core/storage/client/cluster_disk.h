// A Disk (io/disk.h) that stores paths starting with ff:// in a cluster and delegates all others to
// another disk. Code that moves files between the two, or works on either, needs one implementation
// only. Any number of threads may use it at once; its FileSystem runs on a thread of its own.
//
// Differences from a local disk: it neither reserves space nor punches holes (punch_hole() is
// unsupported), and next_data() reports a file as one data range. It holds a lock by renewing it.
// If renewal fails for too long, another owner may hold the lock; this disk then refuses all
// metadata changes until the lock is released.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "platform/io/buffers.h"
#include "platform/io/disk.h"
#include "storage/client/below_directory.h"
#include "storage/client/file_system.h"
#include "storage/client/loop_executor.h"

namespace ff::client {

class ClusterDisk final : public io::Disk {
 public:
  struct Options {
    std::string cluster;       // as in paths
    meta::Caller caller = {};  // the user of all calls
    uint32_t umask = 022;
    // For new files whose directory has no chunk size; 0: the default of the cluster.
    uint64_t chunk_size = 0;
    // Allocates permanent memory that storage nodes of this host can access directly
    // (net/system_transport.h), for make_buffers(). Not set: any memory.
    std::function<Result<ByteSpan>(uint64_t size)> memory = {};
  };
  // All outlive it. Call anything here only after `files` has started and while its loop runs on a
  // thread of its own.
  ClusterDisk(io::Disk& local, FileSystem& files, Options options);
  // Call after close(), when no file, no queue and no disk of beneath() is left.
  ~ClusterDisk() override = default;

  // On the loop: waits for files that are still being closed.
  Task<void> close() { return calls_.close(); }

  Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenOptions options) override;
  std::unique_ptr<io::IoQueue> make_queue(io::QueueOptions options) override;
  Result<io::Buffers> make_buffers(size_t count, size_t slot_bytes) override;
  Result<io::FileInfo> info(const std::string& path) override;
  Result<std::vector<io::DirEntry>> list(const std::string& dir) override;
  Result<void> make_dir(const std::string& path, uint32_t mode) override;
  Result<void> remove(const std::string& path) override;
  Result<void> remove_dir(const std::string& path) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> link(const std::string& from, const std::string& to) override;
  Result<void> make_symlink(const std::string& target, const std::string& path) override;
  Result<std::string> read_symlink(const std::string& path) override;
  Result<void> set_mode(const std::string& path, uint32_t mode) override;
  Result<void> set_mtime(const std::string& path, int64_t mtime_ns) override;
  Result<void> sync_dir(const std::string& dir) override;
  Result<io::Space> space(const std::string& path) override;
  Result<std::unique_ptr<io::Disk>> beneath(const std::string& dir) override;

 private:
  // A directory and a name in it, as metadata calls take them.
  struct NamedEntry {
    meta::InodeRef dir;
    std::string name;
  };
  // Of beneath(): the same disk, limited to a directory.
  ClusterDisk(ClusterDisk& whole, std::shared_ptr<BelowDirectory> below);
  Task<Result<NamedEntry>> entry_at(std::string path);
  // An existing inode for a call; the server follows symbolic links, except beneath a directory,
  // where they are refused.
  Task<Result<meta::InodeRef>> ref_of(std::string path);

  // The path in the cluster; none: the path is on the other disk.
  Result<std::optional<std::string>> cluster_path(const std::string& path) const;
  Result<std::optional<std::pair<std::string, std::string>>> cluster_path(
      const std::string& from, const std::string& to) const;
  template <class T>
  Result<T> call(const std::string& path, const std::function<Task<Result<T>>()>& make);
  // call() for a metadata change: refused after a lock was lost.
  template <class T>
  Result<void> change(const std::string& path, const std::function<Task<Result<T>>()>& make);

  Task<Result<std::shared_ptr<File>>> open_in_cluster(std::string path, io::OpenOptions options);
  Task<Result<std::shared_ptr<File>>> create_in_cluster(std::string path, io::OpenOptions options);
  Task<Result<meta::InodeView>> lookup_path(std::string path, bool follow);
  Task<Result<std::vector<io::DirEntry>>> list_in_cluster(std::string dir);
  Task<Result<meta::InodeView>> make_in_cluster(std::string path,
                                                meta::Namespace::CreateOptions options);
  Task<Result<meta::InodeView>> remove_in_cluster(std::string path, bool directory);
  Task<Result<meta::InodeView>> rename_in_cluster(std::string from, std::string to);
  Task<Result<meta::InodeView>> link_in_cluster(std::string from, std::string to);
  Task<Result<void>> sync_in_cluster(std::string dir);
  Task<Result<meta::InodeView>> set_mode_in_cluster(std::string path, uint32_t mode);
  Task<Result<std::shared_ptr<BelowDirectory>>> beneath_in_cluster(std::string dir);
  Task<Result<meta::InodeView>> set_mtime_in_cluster(std::string path, int64_t mtime_ns);

  io::Disk& local_;
  FileSystem& files_;
  const Options options_;
  ClusterDisk* const whole_;  // null: not of beneath()
  std::shared_ptr<BelowDirectory> below_;
  std::optional<LoopExecutor> own_calls_;
  LoopExecutor& calls_;
  std::mutex mutex_;
  std::multimap<size_t, ByteSpan> free_memory_;  // freed buffers
};

}  // namespace ff::client
