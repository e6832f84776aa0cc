// kv.cc: the gateway of `ff up --kv`: what it needs in the cluster, and how its clients connect.
#include <unistd.h>

#include <memory>
#include <utility>

#include "cmd/options/acting_user.h"
#include "cmd/up/up.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "storage/cluster/service.h"
#include "storage/cluster/wire.h"
#include "storage/meta/meta_client.h"

namespace ff::cmd {
namespace {

constexpr const char* kEntity = "mount/kv";

// A new file that only its owner can read.
Result<void> write_key(io::Disk& disk, const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new.tmp";
  auto removed = disk.remove(temporary);  // of an earlier start
  if (!removed && removed.error().code != Errc::not_found) return removed;
  FF_TRY(const auto file,
         disk.open(
             temporary,
             {.access = io::AccessMode::write, .create = true, .exclusive = true, .mode = 0600}));
  FF_TRY(file->write_at(as_bytes(text), 0));
  FF_TRY(file->sync());
  FF_TRY(disk.rename(temporary, path));
  return disk.sync_dir(io::parent(path));
}

// The rights of the key are those of the user who runs this.
Result<void> make_kv_key(Session& session, const AdminOptions& admin, io::Disk& disk,
                         const std::string& path, int64_t timeout_ns) {
  FF_TRY(const bool there, io::exists(disk, path));
  if (there) return {};
  cluster::wire::CreateKeyRequest request;
  request.set_entity(kEntity);
  request.set_uids(fmt::to_string(::geteuid()));
  FF_TRY(const auto calls, AdminClient::open(session, admin, timeout_ns));
  FF_TRY(const auto reply,
         calls->call(cluster::kCreateKey, std::move(request), AdminClient::CallKind::write));
  return write_key(disk, path, reply.text());
}

// Makes a folder at the top of the cluster, which is root's, and gives it to the user who runs
// this.
Task<Result<void>> make_folder(meta::MetaClient& metadata, std::string name, uint32_t mode) {
  const meta::Caller root;
  const meta::Caller self = process_caller();
  meta::Namespace::CreateOptions options;
  options.kind = meta::InodeType::directory;
  options.mode = mode;
  auto folder = co_await metadata.create(root, meta::root(), name, std::move(options));
  if (!folder && folder.error().code == Errc::exists) {
    folder = co_await metadata.lookup(root, meta::root(), name);
  }
  FF_CO_TRY(const auto view, std::move(folder));
  if (view.inode.uid != 0 || self.uid == 0) co_return Result<void>();
  meta::Namespace::Attributes owner;
  owner.uid = self.uid;
  owner.gid = self.gid;
  FF_CO_TRY(co_await metadata.set_attributes(root, view.ref(), std::move(owner)));
  co_return Result<void>();
}

Task<Result<void>> make_folders(meta::MetaClient& metadata) {
  FF_CO_TRY(co_await make_folder(metadata, std::string(devcluster::kKeysAndValues), 0700));
  FF_CO_TRY(co_await make_folder(metadata, std::string(devcluster::kObjects), 0755));
  co_return Result<void>();
}

}  // namespace

Result<void> prepare_kv(Session& session, const AdminOptions& admin, devcluster::ClusterDir& folder,
                        int64_t timeout_ns) {
  io::SystemDisk disk;
  FF_TRY(make_kv_key(session, admin, disk, folder.kv_key(), timeout_ns));
  FF_TRY(const auto servers, parse_meta(admin.meta));
  FF_TRY(auto transport, transport_options(disk, admin.net));
  NetClient client(session.stop, std::move(transport), "up");
  meta::MetaClient metadata(client.context, servers);
  auto made =
      run_task(client.loop, cancel_on_stop(client.loop, session.stop, make_folders(metadata)));
  run_task(client.loop, metadata.close());
  return made;
}

void print_kv_use(Output& out, const devcluster::ClusterDir& folder,
                  const devcluster::ClusterConfig& config) {
  const std::string key = shell_quote_if_needed(folder.kv_key());
  const std::string port = config.redis.substr(config.redis.rfind(':') + 1);
  out.line("         export REDISCLI_AUTH=\"$(cat {})\"; redis-cli -p {}", key, port);
  out.line("         export $(ff admin user s3-key {}); aws --endpoint-url http://{} s3 ls", key,
           config.s3);
}

}  // namespace ff::cmd
