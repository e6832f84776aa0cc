// Common parts of saves, loads and records in libff.so: process check, the store, number of
// workers.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "platform/base/result.h"
#include "platform/base/stop_token.h"
#include "platform/io/disk.h"

namespace ff::bindings {

// Errc::usage: this process is a forked child of the one that made the `what`.
Result<void> check_process(std::string_view what, pid_t maker);

// A directory, or a directory in a cluster: ff://HOST:PORT[,HOST:PORT]/PATH, or ff:///PATH of the
// cluster of FF_META. Errc::usage: null or empty.
Result<std::string> store_path(const char* given);

// The connection to a cluster that holds a store.
class RemoteStore {
 public:
  virtual ~RemoteStore() = default;
  virtual io::Disk& disk() = 0;
  virtual std::string path() const = 0;  // of the store, for disk()
  // The path of another URL in the same cluster. Errc::usage: in another one.
  virtual Result<std::string> path_of(const std::string& url) const = 0;
};

// cmd/library/remote_store.cc defines it, because training/ does not include storage/. Uses the
// settings of `ff checkpoint` (environment and ff.toml: servers, key or token, network), acts as
// the user of the process, and waits until the cluster answers.
Result<std::unique_ptr<RemoteStore>> open_remote_store(const StopToken& stop, io::Disk& local,
                                                       const std::string& url);

// A store that is open: on the local disk or in a cluster.
class OpenStore {
 public:
  // `local` outlives it. `store`: what store_path() returned.
  static Result<OpenStore> open(const StopToken& stop, io::Disk& local, std::string store);

  io::Disk& disk() { return cluster_ != nullptr ? cluster_->disk() : *local_; }
  const std::string& path() const { return path_; }
  // The path for disk() of another path or URL. Errc::usage: a URL in another cluster.
  Result<std::string> path_of(const std::string& given) const;
  // `wanted`, or for 0 the default of `ff checkpoint`.
  unsigned worker_count(unsigned wanted) const;

 private:
  OpenStore(io::Disk& local, std::string path) : local_(&local), path_(std::move(path)) {}

  io::Disk* local_;
  std::string path_;
  std::unique_ptr<RemoteStore> cluster_;
};

}  // namespace ff::bindings
