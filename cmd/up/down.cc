// `ff down`: stops what `ff up` has started, and removes it when that is wanted.
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

// Whether there is something to stop or to remove. Errc::refused: the folder is another's.
Result<bool> look(io::Disk& disk, devcluster::Folder& folder) {
  FF_TRY(const bool there, io::exists(disk, folder.path()));
  if (!there) return false;
  const auto made = folder.made();
  if (made) return true;
  if (made.error().code != Errc::not_found) return made.error();
  Error error = fail(Errc::refused, "{}: not a directory of 'ff up'", folder.path());
  error.hint = "Give the directory of 'ff up' with --dir.";
  return error;
}

Result<void> pause_down(Session& session, const devcluster::Folder& folder) {
  auto paused = session.stop.sleep_ns(kDownPollNs);
  if (paused) return {};
  Error error = std::move(paused).error();
  error.message += fmt::format(": {} is still stopping", folder.path());
  error.hint = "Its logs: " + folder.logs();
  return error;
}

// Returns with the lock, which nobody who runs has.
Result<std::unique_ptr<io::File>> stop_supervisor(Session& session, devcluster::Folder& folder,
                                                  bool& ran) {
  pid_t told = 0;
  for (;;) {
    FF_TRY(auto lock, folder.lock());
    if (lock != nullptr) return lock;
    ran = true;
    const auto running = folder.running();
    if (running && running->supervisor != told) {
      if (told == 0) session.out.note("stopping");
      told = running->supervisor;
      if (::kill(told, SIGTERM) != 0 && errno != ESRCH) {
        return errno_error(errno, fmt::format("process {}, the supervisor", told));
      }
    }
    FF_TRY(pause_down(session, folder));
  }
}

// What a supervisor that was killed has left: the kernel is about to end its daemons.
Result<void> clear_leftovers(Session& session, devcluster::Folder& folder) {
  const auto running = folder.running();
  if (!running) return {};
  while (folder.any_left(*running)) FF_TRY(pause_down(session, folder));
  if (!running->mount.empty()) {
    // Whatever else keeps it from being mounted is for the next one to say.
    (void)wait_until_mountable(session, running->mount);
  }
  return folder.forget_running();
}

Result<void> run_down(Session& session, const DownOptions& options) {
  FF_TRY(const std::string dir, up_dir(options.dir));
  io::SystemDisk disk;
  devcluster::Folder folder(disk, dir);
  FF_TRY(const bool there, look(disk, folder));
  if (there && options.purge) {
    FF_TRY(confirm(session, options.yes,
                   fmt::format("This removes {} with all data. Type yes to continue:", dir), "yes",
                   Unasked::act));
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
      "Stops the cluster that 'ff up' runs in a directory: first the mount, then the storage "
      "daemons, then serve-meta. The command returns when all have exited. The data stays, and the "
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
