// `ff admin fsck`: checks that the metadata is consistent and that all chunks belong to files.
#include <optional>
#include <utility>

#include "cmd/admin/admin.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"
#include "storage/meta/meta_client.h"

namespace ff::cmd {
namespace {

struct FsckOptions {
  bool repair = false;
  int64_t orphans_after_ns = 24 * 3600 * kSecond;
};

using Reply = meta::wire::FsckReply;

Result<Reply> ask_for_fsck(Session& session, const AdminOptions& admin,
                           const FsckOptions& options) {
  FF_TRY(const auto servers, parse_meta(admin.meta));
  io::SystemDisk disk;
  FF_TRY(auto transport, transport_options(disk, admin.net));
  NetClient client(session.stop, std::move(transport), "admin");
  meta::MetaClient names(client.context, servers);
  auto asking = names.fsck(options.repair, options.orphans_after_ns);
  auto reply = run_task(client.loop, cancel_on_stop(client.loop, session.stop, std::move(asking)));
  run_task(client.loop, names.close());
  return reply;
}

Json fsck_json(const Reply& reply) {
  Json told = Json::array();
  for (const auto& problem : reply.told()) {
    told.push_back({{"kind", problem.kind()},
                    {"inode", problem.inode()},
                    {"text", problem.text()},
                    {"repaired", problem.repaired()}});
  }
  return {{"inodes", reply.inodes()},     {"directories", reply.directories()},
          {"names", reply.names()},       {"garbage", reply.garbage()},
          {"sessions", reply.sessions()}, {"stored", reply.stored()},
          {"problems", reply.problems()}, {"told", std::move(told)}};
}

Result<void> run_fsck(Session& session, const AdminOptions& admin, const FsckOptions& options) {
  FF_TRY(const Reply reply, ask_for_fsck(session, admin, options));
  uint64_t repaired = 0;
  for (const auto& problem : reply.told()) {
    repaired += problem.repaired() ? 1 : 0;
    session.out.line("{}: {}{}", problem.kind(), problem.text(),
                     problem.repaired() ? " (repaired)" : "");
  }
  const auto more = reply.problems() - static_cast<uint64_t>(reply.told_size());
  if (more > 0) session.out.line("and {} more", format_count(more));
  session.out.line(
      "{} inodes, {} of them directories; {} names; {} files wait to be collected, {} "
      "are open for writing",
      format_count(reply.inodes()), format_count(reply.directories()), format_count(reply.names()),
      format_count(reply.garbage()), format_count(reply.sessions()));
  session.out.data(fsck_json(reply));
  if (reply.problems() == repaired) return {};
  Error error = fail(Errc::fault, "{} problems, {} of them repaired",
                     format_count(reply.problems()), format_count(repaired));
  error.hint =
      options.repair
          ? std::string(
                "Run fsck again to repair the rest; some problems are too new to repair yet.")
          : std::string("Repair them: ff admin fsck --repair");
  return error;
}

}  // namespace

void declare_admin_fsck(Command& admin, const AdminOptions& options) {
  auto& fsck = admin.sub("fsck", "Check the file system, and repair it");
  auto& own = fsck.keep<FsckOptions>();
  fsck.about(
      "Checks all metadata as of one moment, while the cluster is in use: every name has its "
      "inode, link counts are right, every inode has a name or waits for garbage collection, and "
      "storage has no chunks of files that do not exist. The exit code is 3 if something is wrong "
      "and was not repaired.\n\nWith --repair the command removes names without an inode, corrects "
      "link counts, and moves inodes without a name to /lost+found. It removes chunks without a "
      "file once fsck has known them for a day, because a restored backup may not know files that "
      "a newer backup has.");
  fsck.flag("--repair", own.repair, "Repair problems");
  fsck.option("--orphans-after", duration(own.orphans_after_ns),
              "How long fsck must have known chunks without a file before --repair removes them");
  fsck.example("ff admin fsck", "only check");
  fsck.example("ff admin fsck --repair", "after damage to the database");
  fsck.blocking();
  fsck.run([&options, &own](Session& session) { return run_fsck(session, options, own); });
}

}  // namespace ff::cmd
