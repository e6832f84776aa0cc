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
      "Agents start it, nobody else needs to: it holds one rank of a task, whose folder it is "
      "given, until nothing of the rank is left.");
  shim.argument("DIR", dir(options.dir), "The rank's folder, with launch.json in it");
  shim.run([&options](Session& session) -> Result<void> {
    io::SystemDisk disk;
    return ff::shim::run_shim(disk, session.stop.clock(), options.dir);
  });
}

}  // namespace ff::cmd
