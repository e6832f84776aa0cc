// `ff down`: stops the cluster of `ff up`, and removes it on request.
#include <sys/types.h>

#include <cerrno>
#include <csignal>
#include <memory>
#include <utility>

#include "cmd/cli/confirm.h"
#include "cmd/up/up.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

constexpr int64_t kDownNs = 90 * kSecond;
constexpr int64_t kDownPollNs = 50 * kMillisecond;

struct DownOptions {
  std::optional<std::string> dir;
  bool purge = false;
  bool yes = false;
};

// Whether there is a cluster to stop or remove. Errc::refused: not a folder of `ff up`.
Result<bool> check_dir(io::Disk& disk, devcluster::ClusterDir& folder) {
  FF_TRY(const bool there, io::exists(disk, folder.path()));
  if (!there) return false;
  const auto config = folder.config();
  if (config) return true;
  if (config.error().code != Errc::not_found) return config.error();
  Error error = fail(Errc::refused, "{}: not a directory of 'ff up'", folder.path());
  error.hint = "Give the directory of 'ff up' with --dir.";
  return error;
}

Result<void> poll_wait_down(Session& session, const devcluster::ClusterDir& folder) {
  auto paused = session.stop.sleep_ns(kDownPollNs);
  if (paused) return {};
  Error error = std::move(paused).error();
  error.message += fmt::format(": {} is still stopping", folder.path());
  error.hint = "Its logs: " + folder.logs();
  return error;
}

// Stops the supervisor and returns the lock, which a running supervisor would hold.
Result<std::unique_ptr<io::File>> stop_supervisor(Session& session, devcluster::ClusterDir& folder,
                                                  bool& ran) {
  pid_t signalled = 0;
  for (;;) {
    FF_TRY(auto lock, folder.lock());
    if (lock != nullptr) return lock;
    ran = true;
    const auto status = folder.status();
    if (status && status->supervisor != signalled) {
      if (signalled == 0) session.out.note("stopping");
      signalled = status->supervisor;
      if (::kill(signalled, SIGTERM) != 0 && errno != ESRCH) {
        return errno_error(errno, fmt::format("process {}, the supervisor", signalled));
      }
    }
    FF_TRY(poll_wait_down(session, folder));
  }
}

// Waits for the daemons of a killed supervisor: the kernel is about to end them.
Result<void> clear_leftovers(Session& session, devcluster::ClusterDir& folder) {
  const auto status = folder.status();
  if (!status) return {};
  while (folder.any_process_left(*status)) FF_TRY(poll_wait_down(session, folder));
  if (!status->mount.empty()) {
    // Other reasons against a mount are reported by the next `ff up`.
    (void)wait_until_mountable(session, status->mount);
  }
  return folder.clear_status();
}

Result<void> run_down(Session& session, const DownOptions& options) {
  FF_TRY(const std::string dir, up_dir(options.dir));
  io::SystemDisk disk;
  devcluster::ClusterDir folder(disk, dir);
  FF_TRY(const bool there, check_dir(disk, folder));
  if (there && options.purge) {
    FF_TRY(confirm(session, options.yes,
                   fmt::format("This removes {} with all data. Type yes to continue:", dir), "yes",
                   NonInteractive::proceed));
  }
  bool ran = false;
  bool left = false;
  if (there) {
    FF_TRY(const auto lock, stop_supervisor(session, folder, ran));
    FF_TRY(clear_leftovers(session, folder));
    if (options.purge) {
      FF_TRY(const bool all, folder.purge());
      left = !all;
    }
  }
  if (ran) {
    session.out.line("stopped {}", dir);
  } else {
    session.out.line("nothing runs in {}", dir);
  }
  if (options.purge && there) session.out.line("removed the cluster and its data");
  if (left) session.out.note("{} stays: it contains other files", dir);
  session.out.data({{"dir", dir}, {"ran", ran}, {"purged", options.purge && there}});
  return {};
}

}  // namespace

void declare_down(Command& down) {
  auto& options = down.keep<DownOptions>();
  down.about(
      "Stops the cluster that 'ff up' runs in a directory: first the mount and the gateway, "
      "then the storage daemons, then serve-meta. The command returns when all have exited. The "
      "data stays, and the "
      "next 'ff up' continues with it. If nothing runs, the command succeeds.\n\n--purge also "
      "removes the data, the key and the logs for good, but no files that 'ff up' did not create. "
      "On a terminal the command asks for confirmation.");
  declare_up_dir(down, options.dir);
  down.flag("--purge", options.purge, "Remove the cluster with all its data");
  declare_yes(down, options.yes);
  down.blocking(kDownNs);
  down.example("ff down", "stop the cluster; the data stays");
  down.example("ff down --dir /data/ff --purge", "stop the cluster and remove all its data");
  down.run([&options](Session& session) { return run_down(session, options); });
}

}  // namespace ff::cmd
