// `ff schedule shim`: started by agents, one for each rank of a task (shim/shim.h).
#include "ops/shim/shim.h"
#include "cmd/schedule/schedule.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

struct ShimOptions {
  std::string dir;
};

}  // namespace

void declare_schedule_shim(Command& shim) {
  auto& options = shim.keep<ShimOptions>();
  shim.about(
      "Agents start this command: it runs one rank of a task, whose directory is the argument, "
      "until all its processes have ended.");
  shim.argument("DIR", dir(options.dir), "Directory of the rank, with launch.json");
  shim.run([&options](Session& session) -> Result<void> {
    io::SystemDisk disk;
    return ff::shim::run_shim(disk, session.stop.clock(), options.dir);
  });
}

}  // namespace ff::cmd
