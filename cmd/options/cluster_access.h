// A cluster's file system as a disk beside the machine's own, for as long as a command runs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "cmd/options/net_client.h"
#include "cmd/options/net_options.h"
#include "storage/client/cluster_disk.h"
#include "storage/client/file_system.h"
#include "storage/client/url.h"

namespace ff::cmd {

class ClusterAccess {
 public:
  struct Where {
    client::Url url;
    std::string meta;  // for a URL that names no servers
    NetOptions net;
    std::string name;         // of the command, for messages of servers
    uint64_t chunk_size = 0;  // client::ClusterDisk::Options
  };
  // Returns once the cluster has answered. Acts for the user who runs the program.
  static Result<std::unique_ptr<ClusterAccess>> open(const StopToken& stop, io::Disk& local,
                                                     const Where& where);
  // With no file and no queue of disk() left.
  ~ClusterAccess();
  ClusterAccess(const ClusterAccess&) = delete;
  ClusterAccess& operator=(const ClusterAccess&) = delete;

  io::Disk& disk() { return *disk_; }
  // A path in the cluster, as disk() takes it.
  std::string path(std::string in_cluster) const;

 private:
  ClusterAccess(const StopToken& stop, net::TransportOptions transport, const std::string& name)
      : client_(stop, std::move(transport), name) {}

  NetClient client_;
  std::string cluster_;  // "ff://host:port"
  std::optional<client::FileSystem> files_;
  std::optional<client::ClusterDisk> disk_;
  std::thread thread_;  // runs the client's loop
};

}  // namespace ff::cmd
