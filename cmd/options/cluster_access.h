// Makes the file system of a cluster available as an io::Disk, beside the local disk.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cmd/options/net_client.h"
#include "cmd/options/net_options.h"
#include "storage/client/cluster_disk.h"
#include "storage/client/file_system.h"
#include "storage/client/url.h"

namespace ff::cmd {

class ClusterAccess {
 public:
  struct Options {
    client::Url url;
    std::string meta;  // if the URL names no servers
    NetOptions net;
    std::string name;         // of the client in messages of servers
    uint64_t chunk_size = 0;  // client::ClusterDisk::Options
  };
  // Waits until the cluster answers. Acts for the user who runs the program.
  static Result<std::unique_ptr<ClusterAccess>> open(const StopToken& stop, io::Disk& local,
                                                     const Options& options);
  // All files and queues of disk() must be closed before.
  ~ClusterAccess();
  ClusterAccess(const ClusterAccess&) = delete;
  ClusterAccess& operator=(const ClusterAccess&) = delete;

  io::Disk& disk() { return *disk_; }
  // Whether a URL names the same servers as the one that was opened.
  bool has_servers_of(const client::Url& url) const;
  // The path for disk() of a path in the cluster.
  std::string path(std::string in_cluster) const;

 private:
  ClusterAccess(const StopToken& stop, net::TransportOptions transport, const Options& options)
      : client_(stop, std::move(transport), options.name), named_(options.url.servers) {}

  NetClient client_;
  const std::vector<net::Address> named_;  // servers of the URL; empty: the default cluster
  std::string cluster_;                    // "ff://host:port"
  std::optional<client::FileSystem> files_;
  std::optional<client::ClusterDisk> disk_;
  std::thread thread_;  // runs the client's loop
};

}  // namespace ff::cmd
