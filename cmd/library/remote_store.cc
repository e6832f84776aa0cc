// Stores in a cluster for libff.so: its part of core/training/bindings/checkpoint.h. It reads the
// same settings as `ff checkpoint`, so a training needs no mount.
#include <string>
#include <utility>

#include "cmd/cli/cli.h"
#include "cmd/cli/settings.h"
#include "cmd/options/cluster_access.h"
#include "cmd/options/meta_option.h"
#include "cmd/options/net_options.h"
#include "storage/client/url.h"
#include "training/bindings/checkpoint.h"
#include "training/checkpoint/format/chunk_file.h"

namespace ff::bindings {
namespace {

class ClusterAccessStore final : public RemoteStore {
 public:
  ClusterAccessStore(std::unique_ptr<cmd::ClusterAccess> access, std::string url, std::string path)
      : access_(std::move(access)), url_(std::move(url)), path_(std::move(path)) {}
  io::Disk& disk() override { return access_->disk(); }
  std::string path() const override { return access_->path(path_); }
  Result<std::string> path_of(const std::string& text) const override {
    FF_TRY(const auto url, client::parse_url(text));
    if (access_->has_servers_of(url)) return access_->path(url.path);
    return fail(Errc::usage, "{}: names other servers than {}", text, url_);
  }

 private:
  std::unique_ptr<cmd::ClusterAccess> access_;
  const std::string url_;  // of the store, as given
  const std::string path_;
};

}  // namespace

Result<std::unique_ptr<RemoteStore>> open_remote_store(const StopToken& stop, io::Disk& local,
                                                       const std::string& url) {
  cmd::ClusterAccess::Options options{.url = {},
                                      .meta = cmd::kDefaultMeta,
                                      .net = {},
                                      .name = "checkpoint",
                                      .chunk_size = checkpoint::kChunkBytes};
  FF_TRY(options.url, client::parse_url(url));
  cmd::Command settings("checkpoint", "the settings of ff checkpoint");
  cmd::declare_meta(settings, options.meta);
  cmd::declare_net(settings, options.net);
  FF_TRY(cmd::assign_settings(settings));
  FF_TRY(auto access, cmd::ClusterAccess::open(stop, local, options));
  std::unique_ptr<RemoteStore> store =
      std::make_unique<ClusterAccessStore>(std::move(access), url, options.url.path);
  return store;
}

}  // namespace ff::bindings
