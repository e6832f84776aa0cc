// `ff fs`: a cluster's file system without a mount. Subcommands: list.cc, show.cc,
// change.cc, copy.cc.
#include "cmd/fs/fs.h"

#include <cerrno>

#include "cmd/options/acting_user.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::cmd {

namespace {

std::vector<std::string> texts(const std::vector<net::Address>& addresses) {
  std::vector<std::string> made;
  for (const net::Address& address : addresses) made.push_back(address.text());
  return made;
}

}  // namespace

Result<void> FsPaths::add(client::Url url) {
  paths.push_back(std::move(url.path));
  if (url.servers.empty()) return {};
  if (servers.empty())
    servers = std::move(url.servers);
  else if (texts(servers) != texts(url.servers)) {
    return fail(Errc::usage, "addresses of two clusters: {} and {}", fmt::join(texts(servers), ","),
                fmt::join(texts(url.servers), ","));
  }
  return {};
}

Result<FsPaths> FsPaths::of(const std::vector<std::string>& words) {
  FsPaths made;
  for (const std::string& word : words) {
    FF_TRY(auto url, client::parse_cluster_path(word));
    FF_TRY(made.add(std::move(url)));
  }
  return made;
}

FsClient::FsClient(Session& session, net::TransportOptions transport)
    : session_(session),
      client_(session.stop, std::move(transport), "fs"),
      caller_(process_caller()),
      umask_(process_umask()) {}

FsClient::~FsClient() {
  if (files_ != nullptr) run_task(client_.loop, files_->close());
}

Result<std::unique_ptr<FsClient>> FsClient::open(Session& session, const FsOptions& options,
                                                 const std::vector<net::Address>& servers,
                                                 Options client_options) {
  std::vector<net::Address> asked = servers;
  if (asked.empty()) {
    FF_TRY(asked, parse_meta(options.meta));
  }
  io::SystemDisk disk;
  FF_TRY(auto transport, transport_options(disk, options.net));
  std::unique_ptr<FsClient> run(new FsClient(session, std::move(transport)));
  if (client_options.arena > 0) {
    FF_TRY(run->arena_, run->client_.transport.allocate_shared_memory(client_options.arena));
  }
  run->files_ = std::make_unique<client::FileSystem>(run->client_.context, asked,
                                                     client::FileSystem::Options{});
  Loop& loop = run->loop();
  const int64_t until_ns = loop.now_ns() + kConnectTimeoutNs;
  if (client_options.chains) {
    FF_TRY(run->run(run->files_->start(until_ns)));
    return run;
  }
  // Wrong addresses must fail sooner than the timeout of an operation.
  auto found = run->run(with_deadline(
      loop, until_ns, "no answer", run->metadata().walk(run->caller_, meta::root(), "/", false)));
  // The key may reach another directory than the root.
  if (found || found.error().sys == EACCES) return run;
  if (found.error().code != Errc::deadline || !session.stop.check()) {
    return std::move(found).error();
  }
  Error error = fail(Errc::unreachable, "no server of the cluster answers at {}",
                     fmt::join(texts(asked), ", "));
  error.hint = "Is 'ff serve-meta' running there? --meta or FF_META names it.";
  return error;
}

std::string_view kind_name(meta::InodeType kind) {
  switch (kind) {
    case meta::InodeType::file: return "file";
    case meta::InodeType::directory: return "directory";
    case meta::InodeType::symlink: return "symlink";
    case meta::InodeType::fifo: return "fifo";
    case meta::InodeType::socket: return "socket";
    case meta::InodeType::character: return "character";
    case meta::InodeType::block: return "block";
  }
  return "unknown";
}

char kind_letter(meta::InodeType kind) {
  switch (kind) {
    case meta::InodeType::file: return '-';
    case meta::InodeType::directory: return 'd';
    case meta::InodeType::symlink: return 'l';
    case meta::InodeType::fifo: return 'p';
    case meta::InodeType::socket: return 's';
    case meta::InodeType::character: return 'c';
    case meta::InodeType::block: return 'b';
  }
  return '?';
}

Json entry_json(std::string_view path, const meta::Inode& inode) {
  Json json = {{"path", path},
               {"type", kind_name(inode.kind)},
               {"inode", inode.id},
               {"mode", fmt::format("{:04o}", inode.mode)},
               {"uid", inode.uid},
               {"gid", inode.gid},
               {"links", inode.links},
               {"size", inode.length},
               {"mtime", format_time(inode.mtime_ns)},
               {"mtime_ns", inode.mtime_ns}};
  if (inode.is(meta::InodeType::symlink)) json["target"] = inode.target;
  // JSON has no other bytes than UTF-8.
  if (!valid_utf8(path)) json["path_hex"] = hex(as_bytes(path));
  return json;
}

void declare_fs(Command& fs) {
  auto& options = fs.keep<FsOptions>();
  fs.about(
      "Works on the file system of a cluster without a mount. Paths begin with '/'. "
      "ff://HOST:PORT/PATH (several servers separated by commas) also names the cluster; "
      "ff:///PATH means the cluster of --meta. Commands that also use local files (cp, cat) need "
      "ff:// for files in the cluster.\n\nThe servers check permissions. A client with the cluster "
      "key, or on the same machine as a cluster without a key, acts as the user and groups of its "
      "process; a client with --token acts as the user of the token.");
  declare_meta(fs, options.meta);
  declare_net(fs, options.net);
  declare_fs_list(fs, options);
  declare_fs_show(fs, options);
  declare_fs_change(fs, options);
  declare_fs_copy(fs, options);
  fs.example("ff fs cp -r ./data ff:///data", "copy a directory into the cluster");
  fs.example("ff fs ls -l /data", "list files with details");
  fs.example("tar c . | ff fs cp - ff://node1:4400/backup.tar", "from a pipe");
}

}  // namespace ff::cmd
