// What the commands of `ff fs` share: the cluster they mean, who calls, and how entries are shown.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "cmd/cli/many.h"
#include "cmd/cli/stop_watch.h"
#include "cmd/options/meta_option.h"
#include "cmd/options/net_client.h"
#include "cmd/options/net_options.h"
#include "platform/io/system_disk.h"
#include "storage/client/file_system.h"
#include "storage/client/url.h"

namespace ff::cmd {

struct FsOptions {
  std::string meta = kDefaultMeta;
  NetOptions net;
};

// The paths of one command line, all in one cluster.
struct FsPaths {
  std::vector<net::Address> servers;  // those that addresses named; none: of --meta
  std::vector<std::string> paths;

  // Errc::usage: of another cluster than those before.
  Result<void> add(client::Url url);
  // Of ff:// addresses and plain paths.
  static Result<FsPaths> of(const std::vector<std::string>& texts);
};

// A client of the cluster's file system, for as long as a command runs.
class FsRun {
 public:
  struct Wants {
    bool chains = false;  // files are opened
    uint64_t arena = 0;   // bytes for the data of files
  };
  // Returns once the cluster has answered.
  static Result<std::unique_ptr<FsRun>> open(Session& session, const FsOptions& options,
                                             const std::vector<net::Address>& servers, Wants wants);
  ~FsRun();

  Session& session() { return session_; }
  io::Disk& disk() { return disk_; }
  Loop& loop() { return client_.loop; }
  client::FileSystem& files() { return *files_; }
  meta::MetaClient& names() { return files_->metadata(); }
  const meta::Caller& caller() const { return caller_; }
  uint32_t umask() const { return umask_; }
  ByteSpan arena() const { return arena_; }
  // Until it is done, or the command is to stop.
  template <class T>
  Result<T> run(Task<Result<T>> task) {
    return run_task(client_.loop, stoppable(client_.loop, session_.stop, std::move(task)));
  }

 private:
  FsRun(Session& session, net::TransportOptions transport);

  Session& session_;
  io::SystemDisk disk_;
  NetClient client_;
  meta::Caller caller_;
  uint32_t umask_ = 0;
  ByteSpan arena_;
  std::unique_ptr<client::FileSystem> files_;
};

// "directory", 'd'.
std::string_view kind_name(meta::Kind kind);
char kind_letter(meta::Kind kind);
Json entry_json(std::string_view path, const meta::Inode& inode);

// Each declares its subcommands of `ff fs`.
void declare_fs_list(Command& fs, const FsOptions& options);
void declare_fs_show(Command& fs, const FsOptions& options);
void declare_fs_change(Command& fs, const FsOptions& options);
void declare_fs_copy(Command& fs, const FsOptions& options);

}  // namespace ff::cmd
