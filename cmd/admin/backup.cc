// `ff admin backup`, `restore` and `adopt`: a copy of what the managers keep, and the way back.
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
  FF_TRY(const auto store, KvStore::open(clock, options.kv, KvStore::Use::own));
  SystemLoop loop(clock);
  auth::SecureRng rng;
  const auto engine = store->engine(loop, rng);
  io::SystemDisk disk;
  const int64_t deadline_ns = timeout_ns == 0 ? INT64_MAX : clock.steady_ns() + timeout_ns;
  auto restoring = meta::restore_name(*engine, disk, options.file, *options.name, deadline_ns);
  FF_TRY(const auto restored, run_task(loop, stoppable(loop, session.stop, std::move(restoring))));
  for (const std::string& record : restored.put) session.out.line("put back {}", record);
  for (const std::string& record : restored.erased) session.out.line("removed {}", record);
  if (restored.put.empty()) session.out.line("nothing of {} is missing or damaged", *options.name);
  session.out.data({{"file", options.file}, {"put", restored.put}, {"removed", restored.erased}});
  return {};
}

// Errc::fault: the backup lacks damaged records, which the error names.
Result<void> check_complete(const kv::BackupReport& report, const std::string& file) {
  constexpr size_t kNamed = 10;
  const auto& records = report.left_out;
  if (records.empty()) return {};
  const auto named = std::span(records).first(std::min(records.size(), kNamed));
  Error error = fail(Errc::fault, "{} lacks {} damaged {} of the store: {}{}", file,
                     format_count(records.size()), records.size() == 1 ? "record" : "records",
                     fmt::join(named, ", "), records.size() > kNamed ? ", ..." : "");
  error.hint =
      "It holds all others. Keep the backup before it, and put single names back from that: ff "
      "admin restore FILE --name PATH";
  return error;
}

Result<void> run_backup(Session& session, const BackupOptions& options, Way way,
                        int64_t timeout_ns) {
  Clock& clock = session.stop.clock();
  FF_TRY(
      const auto store,
      KvStore::open(clock, options.kv, way == Way::out ? KvStore::Use::beside : KvStore::Use::own));
  SystemLoop loop(clock);
  auth::SecureRng rng;
  const auto engine = store->engine(loop, rng);
  io::SystemDisk disk;
  const int64_t deadline_ns = timeout_ns == 0 ? INT64_MAX : clock.steady_ns() + timeout_ns;
  auto copying = way == Way::out ? kv::write_backup(*engine, disk, options.file, deadline_ns)
                                 : kv::restore_backup(*engine, disk, options.file, deadline_ns,
                                                      meta::skip_inode_ids);
  FF_TRY(const auto report, run_task(loop, stoppable(loop, session.stop, std::move(copying))));
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
  FF_TRY(const auto calls, AdminCalls::open(session, admin, timeout_ns));
  cluster::wire::AdoptRequest request;
  request.set_without_absent(options.without_absent);
  FF_TRY(const auto reply,
         calls->call(cluster::kAdopt, std::move(request), AdminCalls::Kind::change));
  session.out.line("adopted routing version {} in the place of {}", reply.changes().to(),
                   reply.changes().since());
  session.out.data({{"version", reply.changes().to()}, {"before", reply.changes().since()}});
  return {};
}

void declare_copy(Command& admin, Way way) {
  Command& command = admin.sub(way == Way::out ? "backup" : "restore",
                               way == Way::out ? "Copy what the managers keep to a file"
                                               : "Fill an empty store from a backup");
  auto& wanted = command.keep<BackupOptions>();
  command.about(
      way == Way::out
          ? "Writes all that the store holds, at one moment, to a new file. It reads the store "
            "itself, beside running managers: the SQLite file in --dir on this machine, or "
            "etcd.\n\nDamaged records are left out and named, and the exit code is 3."
          : "The whole file is checked before anything is changed. The store must be empty, and "
            "no manager may be running on it: name a new folder, or a new prefix in etcd; one "
            "that was cut short is begun again.\n\nA backup is older than the cluster. A manager "
            "that is started on it stops when a node with newer routing reports, and 'ff admin "
            "adopt' then takes over what the nodes hold.\n\nWith --name the command repairs one "
            "path of a store in use whose records are damaged ('ff admin fsck' reports them, or "
            "programs get EIO): it takes the directories of the path, the inode and its "
            "attributes from the backup where the store has lost them. It leaves everything that "
            "is whole as it is, and asks the storage nodes how long the file is.");
  command.argument("FILE", file(wanted.file),
                   way == Way::out ? "A file that is not there yet" : "What backup has written");
  if (way == Way::in) {
    command.option("--name", text(wanted.name, "PATH"),
                   "Repair only this path, in a store that stays in use otherwise");
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
  Command& adopt = admin.sub("adopt", "After a restore, take over what the nodes hold");
  auto& wanted = adopt.keep<AdoptBackupOptions>();
  adopt.about(
      "For a manager that has stopped because its database is older than its cluster. Every node "
      "keeps a copy of the routing and offers it; the newest becomes the cluster's. It is refused "
      "while a node is absent, for that one may hold an even newer copy.");
  adopt.flag("--without-absent", wanted.without_absent,
             "Nodes that have not reported are gone for good");
  adopt.blocking(kAdminNs);
  adopt.run(
      [&](Session& session) { return run_adopt(session, options, wanted, adopt.timeout_ns()); });
}

}  // namespace ff::cmd
