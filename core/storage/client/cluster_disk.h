// A disk (io/disk.h) whose paths that begin with ff:// lie in a cluster, and all others on another
// disk: what moves files between the two, or works on either, needs no second way to do so. Any
// number of threads may use it at once; its FileSystem runs in a thread of its own.
//
// What is different from a local disk: space is not reserved, nor given back in part (punch() is
// unsupported), and a file counts as one stretch of data. A lock is kept by asking for it again and
// again; when that fails for too long another may have it, and from then on everything that changes
// names is refused here until the lock is given back.
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
#include "storage/client/file_system.h"
#include "storage/client/loop_calls.h"

namespace ff::client {

class ClusterDisk final : public io::Disk {
 public:
  struct Options {
    std::string cluster;       // as paths name it: "ff://host:port"
    meta::Caller caller = {};  // who asks
    uint32_t umask = 022;
    // Of new files, where their directory does not say; 0: the cluster's default.
    uint64_t chunk_size = 0;
    // Memory that storage nodes of this host reach themselves (net/system_transport.h), and that
    // stays; for make_buffers(). Nothing: any memory does.
    std::function<Result<ByteSpan>(uint64_t size)> memory = {};
  };
  // All outlive it. `files` has started, and its loop runs in a thread of its own while anything
  // here is called.
  ClusterDisk(io::Disk& local, FileSystem& files, Options options);
  // After close(); no file and no queue is left.
  ~ClusterDisk() override = default;

  // In the loop: waits for what is still being closed.
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

 private:
  // A name in the cluster, as a call to its metadata takes it.
  struct Place {
    meta::Ref dir;
    std::string name;
  };
  static Place place_of(const std::string& path);
  static meta::Ref ref_of(const std::string& path) { return {.id = meta::kRoot, .way = path}; }

  // The path in the cluster; nothing for one of the other disk.
  Result<std::optional<std::string>> inside(const std::string& path) const;
  Result<std::optional<std::pair<std::string, std::string>>> inside(const std::string& from,
                                                                    const std::string& to) const;
  template <class T>
  Result<T> call(const std::string& path, const std::function<Task<Result<T>>()>& make);
  // The same for what changes names.
  template <class T>
  Result<void> change(const std::string& path, const std::function<Task<Result<T>>()>& make);

  Task<Result<std::shared_ptr<File>>> open_there(std::string path, io::OpenOptions options);
  Task<Result<std::shared_ptr<File>>> make_there(std::string path, io::OpenOptions options);
  Task<Result<meta::Seen>> look(std::string path, bool follow);
  Task<Result<std::vector<io::DirEntry>>> list_there(std::string dir);
  Task<Result<meta::Seen>> link_there(std::string from, std::string to);
  Task<Result<void>> sync_there(std::string dir);
  Task<Result<meta::Seen>> set_mtime_there(std::string path, int64_t mtime_ns);

  io::Disk& local_;
  FileSystem& files_;
  const Options options_;
  LoopCalls calls_;
  std::mutex mutex_;
  std::multimap<size_t, ByteSpan> free_memory_;  // that was given back, by size
};

}  // namespace ff::client
