// Common part of the commands of `ff fs`: addresses and paths, the client, JSON of entries.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cmd/cli/batch.h"
#include "cmd/cli/cancel_on_stop.h"
#include "cmd/cli/cli.h"
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
  std::vector<net::Address> servers;  // from ff:// addresses; empty: use --meta
  std::vector<std::string> paths;

  // Errc::usage if `url` names another cluster than those before.
  Result<void> add(client::Url url);
  // Parses ff:// addresses and plain paths.
  static Result<FsPaths> of(const std::vector<std::string>& texts);
};

// A client of the file system of a cluster, for one command.
class FsClient {
 public:
  struct Options {
    bool chains = false;  // fetch the routing of the chains, to open files
    uint64_t arena = 0;   // bytes of shared memory for file data
  };
  // Waits until the cluster answers.
  static Result<std::unique_ptr<FsClient>> open(Session& session, const FsOptions& options,
                                                const std::vector<net::Address>& servers,
                                                Options client_options);
  ~FsClient();

  Session& session() { return session_; }
  io::Disk& disk() { return disk_; }
  Loop& loop() { return client_.loop; }
  client::FileSystem& files() { return *files_; }
  meta::MetaClient& metadata() { return files_->metadata(); }
  const meta::Caller& caller() const { return caller_; }
  uint32_t umask() const { return umask_; }
  ByteSpan arena() const { return arena_; }
  // Runs `task` in the loop; cancels it if the command must stop.
  template <class T>
  Result<T> run(Task<Result<T>> task) {
    return run_task(client_.loop, cancel_on_stop(client_.loop, session_.stop, std::move(task)));
  }

 private:
  FsClient(Session& session, net::TransportOptions transport);

  Session& session_;
  io::SystemDisk disk_;
  NetClient client_;
  meta::Caller caller_;
  uint32_t umask_ = 0;
  ByteSpan arena_;
  std::unique_ptr<client::FileSystem> files_;
};

// "directory", 'd'.
std::string_view kind_name(meta::InodeType kind);
char kind_letter(meta::InodeType kind);
Json entry_json(std::string_view path, const meta::Inode& inode);

// Each function declares some subcommands of `ff fs`.
void declare_fs_list(Command& fs, const FsOptions& options);
void declare_fs_show(Command& fs, const FsOptions& options);
void declare_fs_change(Command& fs, const FsOptions& options);
void declare_fs_copy(Command& fs, const FsOptions& options);

}  // namespace ff::cmd
