// Runs a cluster's daemons on one machine until it is told to stop, and keeps note of them in their
// folder (folder.h).
//
// Whoever has started it holds the other end of a pipe. While the cluster is being formed they
// belong together: an end of the pipe without Words::go_on is a stop.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/devcluster/folder.h"
#include "ops/devcluster/keeper.h"
#include "platform/base/loop.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::devcluster {

// What is said through the pipe, a byte each.
enum class Word : char {
  mount = 'm',  // the cluster is formed: mount it
  go_on = 'g',  // alone, from now on
};

class Supervisor {
 public:
  struct Options {
    std::string mount;  // empty: nowhere
    bool schedule = false;
    std::string program;
    std::vector<std::string> env;
    int pipe = -1;                       // non-blocking
    std::function<void()> changed = {};  // besides what is noted
  };
  Supervisor(Loop& loop, io::Disk& disk, Rng& rng, Folder& folder, Made made, Options options);

  // Until `stop` holds, and all has ended.
  Task<void> run(std::function<bool()> stop);

 private:
  void note();
  Task<void> listen();

  Loop& loop_;
  Folder& folder_;
  const Made made_;
  const Options options_;
  Running running_;
  bool left_ = false;  // the pipe has ended too early
  Keeper keeper_;
};

}  // namespace ff::devcluster
