// cluster_access.cc: connects, runs the loop in a thread, disconnects.
#include "cmd/options/cluster_access.h"

#include <algorithm>

#include "cmd/cli/cancel_on_stop.h"
#include "cmd/options/acting_user.h"
#include "cmd/options/meta_option.h"

namespace ff::cmd {

Result<std::unique_ptr<ClusterAccess>> ClusterAccess::open(const StopToken& stop, io::Disk& local,
                                                           const Options& options) {
  std::vector<net::Address> servers = options.url.servers;
  if (servers.empty()) {
    FF_TRY(servers, parse_meta(options.meta));
  }
  FF_TRY(auto transport_settings, transport_options(local, options.net));
  std::unique_ptr<ClusterAccess> access(
      new ClusterAccess(stop, std::move(transport_settings), options));
  access->cluster_ = client::kUrlScheme;
  for (const net::Address& server : servers) {
    if (!access->cluster_.ends_with('/')) access->cluster_ += ',';
    access->cluster_ += server.text();
  }
  Loop& loop = access->client_.loop;
  auto& files =
      access->files_.emplace(access->client_.context, servers, client::FileSystem::Options{});
  net::SystemTransport& transport = access->client_.transport;
  access->disk_.emplace(
      local, files,
      client::ClusterDisk::Options{.cluster = access->cluster_,
                                   .caller = process_caller(),
                                   .umask = process_umask(),
                                   .chunk_size = options.chunk_size,
                                   .memory = [&transport](uint64_t size) {
                                     return transport.allocate_shared_memory(size);
                                   }});
  auto started =
      run_task(loop, cancel_on_stop(loop, stop, files.start(loop.now_ns() + kConnectTimeoutNs)));
  if (!started) return std::move(started).error().with_context(access->cluster_ + ": ");
  access->thread_ = std::thread([&loop] { loop.run(); });
  return access;
}

ClusterAccess::~ClusterAccess() {
  Loop& loop = client_.loop;
  if (thread_.joinable()) {
    loop.post([&loop] { loop.stop(); });
    thread_.join();
  }
  run_task(loop, disk_->close());
  run_task(loop, files_->close());
}

bool ClusterAccess::has_servers_of(const client::Url& url) const {
  return std::ranges::equal(named_, url.servers, {}, &net::Address::text, &net::Address::text);
}

std::string ClusterAccess::path(std::string in_cluster) const {
  while (in_cluster.ends_with('/')) in_cluster.pop_back();
  return cluster_ + in_cluster;
}

}  // namespace ff::cmd
