// The supervisor: runs the daemons of a cluster on one machine until it is asked to stop, and
// records their status in the folder (cluster_dir.h).
//
// The process that started it holds the other end of a pipe. Until SupervisorCommand::detach, the
// end of the pipe stops the supervisor.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/devcluster/cluster_dir.h"
#include "ops/devcluster/service_manager.h"
#include "platform/base/loop.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::devcluster {

// Commands through the pipe, one byte each.
enum class SupervisorCommand : char {
  mount = 'm',   // the cluster is formed: mount it
  kv = 'k',      // the cluster is formed, and what the gateway needs exists: start it
  detach = 'g',  // keep running when the pipe is closed
};

class Supervisor {
 public:
  struct Options {
    std::string mount;  // mount point; empty: none
    bool schedule = false;
    bool kv = false;
    std::string program;
    std::vector<std::string> env;
    int pipe = -1;                       // non-blocking
    std::function<void()> changed = {};  // a status has changed
  };
  Supervisor(Loop& loop, io::Disk& disk, Rng& rng, ClusterDir& folder, ClusterConfig config,
             Options options);

  // Runs until `stop` returns true and all services have stopped.
  Task<void> run(std::function<bool()> stop);

 private:
  void write_status();
  Task<void> read_commands();

  Loop& loop_;
  ClusterDir& folder_;
  const ClusterConfig config_;
  const Options options_;
  ClusterStatus status_;
  bool parent_gone_ = false;  // the pipe was closed before detach
  ServiceManager manager_;
};

}  // namespace ff::devcluster
