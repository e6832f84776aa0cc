// `ff admin backup`, `restore` and `adopt`: saves and restores the state of the managers.
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "cmd/admin/admin.h"
#include "cmd/options/kv_options.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"
#include "platform/kv/backup.h"
#include "storage/cluster/wire.h"
#include "storage/meta/inode_id_allocator.h"
#include "storage/meta/restore.h"

namespace ff::cmd {
namespace {

struct BackupOptions {
  std::string file;
  std::optional<std::string> name;
  KvOptions kv;
};

enum class Way : uint8_t { out, in };

Result<void> run_restore_name(Session& session, const BackupOptions& options, int64_t timeout_ns) {
  Clock& clock = session.stop.clock();
  FF_TRY(const auto store, KvStore::open(clock, options.kv, KvStore::Access::exclusive));
  SystemLoop loop(clock);
  auth::SecureRng rng;
  Metrics metrics;
  const auto engine = store->engine(loop, rng, metrics);
  io::SystemDisk disk;
  const int64_t deadline_ns = timeout_ns == 0 ? INT64_MAX : clock.steady_ns() + timeout_ns;
  auto restoring = meta::restore_name(*engine, disk, options.file, *options.name, deadline_ns);
  FF_TRY(const auto restored,
         run_task(loop, cancel_on_stop(loop, session.stop, std::move(restoring))));
  for (const std::string& record : restored.put) session.out.line("restored {}", record);
  for (const std::string& record : restored.erased) session.out.line("removed {}", record);
  if (restored.put.empty())
    session.out.line("no record of {} is missing or damaged", *options.name);
  session.out.data({{"file", options.file}, {"put", restored.put}, {"removed", restored.erased}});
  return {};
}

// Errc::fault: the backup lacks the corrupt records that the error names.
Result<void> check_complete(const kv::BackupReport& report, const std::string& file) {
  constexpr size_t kNamed = 10;
  const auto& records = report.left_out;
  if (records.empty()) return {};
  const auto named = std::span(records).first(std::min(records.size(), kNamed));
  Error error = fail(Errc::fault, "{} lacks {} damaged {} of the store: {}{}", file,
                     format_count(records.size()), records.size() == 1 ? "record" : "records",
                     fmt::join(named, ", "), records.size() > kNamed ? ", ..." : "");
  error.hint =
      "It has all other records. Keep the previous backup, and restore single paths from it: ff "
      "admin restore FILE --name PATH";
  return error;
}

Result<void> run_backup(Session& session, const BackupOptions& options, Way way,
                        int64_t timeout_ns) {
  Clock& clock = session.stop.clock();
  FF_TRY(const auto store,
         KvStore::open(clock, options.kv,
                       way == Way::out ? KvStore::Access::read_only : KvStore::Access::exclusive));
  SystemLoop loop(clock);
  auth::SecureRng rng;
  Metrics metrics;
  const auto engine = store->engine(loop, rng, metrics);
  io::SystemDisk disk;
  const int64_t deadline_ns = timeout_ns == 0 ? INT64_MAX : clock.steady_ns() + timeout_ns;
  auto copying = way == Way::out ? kv::write_backup(*engine, disk, options.file, deadline_ns)
                                 : kv::restore_backup(*engine, disk, options.file, deadline_ns,
                                                      meta::skip_inode_ids);
  FF_TRY(const auto report, run_task(loop, cancel_on_stop(loop, session.stop, std::move(copying))));
  session.out.line("{} {}: {} entries, {}", way == Way::out ? "wrote" : "restored", options.file,
                   report.entries, format_size(report.bytes));
  Json data = {{"file", options.file}, {"entries", report.entries}, {"bytes", report.bytes}};
  if (way == Way::out) data["left_out"] = report.left_out;
  session.out.data(std::move(data));
  return check_complete(report, options.file);
}

struct AdoptBackupOptions {
  bool without_absent = false;
};

Result<void> run_adopt(Session& session, const AdminOptions& admin,
                       const AdoptBackupOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto calls, AdminClient::open(session, admin, timeout_ns));
  cluster::wire::AdoptRequest request;
  request.set_without_absent(options.without_absent);
  FF_TRY(const auto reply,
         calls->call(cluster::kAdopt, std::move(request), AdminClient::CallKind::write));
  session.out.line("adopted routing version {} instead of {}", reply.changes().to(),
                   reply.changes().since());
  session.out.data({{"version", reply.changes().to()}, {"before", reply.changes().since()}});
  return {};
}

void declare_copy(Command& admin, Way way) {
  Command& command = admin.sub(way == Way::out ? "backup" : "restore",
                               way == Way::out ? "Back up the store of the managers"
                                               : "Restore a backup into an empty store");
  auto& wanted = command.keep<BackupOptions>();
  command.about(
      way == Way::out
          ? "Writes the whole content of the store, as of one moment, to a new file. The command "
            "reads the store itself, while managers run: the SQLite file in --dir on this machine, "
            "etcd or PostgreSQL. The file does not depend on the store: 'ff admin restore' can "
            "move the state to another one. This backs up metadata only; back up file data "
            "separately.\n\nThe backup "
            "omits damaged records and names them; the exit code is then 3."
          : "Checks the whole file before it changes anything. The store must be empty, and no "
            "manager may run on it: use a new directory, a new prefix in etcd, or a new database "
            "of PostgreSQL. If a restore was "
            "interrupted, run it again.\n\nA backup is older than the cluster. When a node with "
            "newer routing reports, a manager on the restored store stops; 'ff admin adopt' then "
            "takes over the routing of the nodes.\n\nWith --name the command repairs one path in a "
            "store that is in use and has damaged records ('ff admin fsck' reports them, or "
            "programs get EIO): it restores the directories of the path, the inode and its "
            "attributes from the backup if the store has lost them. It does not change undamaged "
            "records, and asks the storage nodes for the length of the file.");
  command.argument("FILE", file(wanted.file),
                   way == Way::out ? "New file for the backup" : "File that backup has written");
  if (way == Way::in) {
    command.option("--name", text(wanted.name, "PATH"),
                   "Repair only this path, in a store that stays in use");
  }
  declare_kv(command, wanted.kv);
  command.blocking();
  command.run([&wanted, &command, way](Session& session) {
    if (wanted.name) return run_restore_name(session, wanted, command.timeout_ns());
    return run_backup(session, wanted, way, command.timeout_ns());
  });
}

}  // namespace

void declare_admin_backups(Command& admin, const AdminOptions& options) {
  declare_copy(admin, Way::out);
  declare_copy(admin, Way::in);
  Command& adopt = admin.sub("adopt", "Take over the routing of the nodes after a restore");
  auto& wanted = adopt.keep<AdoptBackupOptions>();
  adopt.about(
      "For a manager that has stopped because its database is older than its cluster. Every node "
      "has a copy of the routing and sends it; the newest copy becomes the routing of the cluster. "
      "The command is refused while a node is absent, because that node may have an even newer "
      "copy.");
  adopt.flag("--without-absent", wanted.without_absent,
             "Continue although nodes are absent: they will never come back");
  adopt.blocking(kAdminTimeoutNs);
  adopt.run(
      [&](Session& session) { return run_adopt(session, options, wanted, adopt.timeout_ns()); });
}

}  // namespace ff::cmd
