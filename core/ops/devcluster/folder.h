// The folder of a cluster on one machine: what it was made with, where its daemons listen, and
// which of them run.
//
//   made.json     what it was made with (Made); it marks the folder as one of these
//   running.json  what runs (Running), while a supervisor does; left behind by one that was killed
//   lock          locked by the supervisor
//   cluster.key   the cluster's key
//   meta/         of serve-meta
//   storage-N/    the disk of the N-th serve-storage
//   scheduler/    of schedule serve, once it was wanted
//   agent/        of schedule agent
//   log/          NAME.log of each daemon, and supervisor.log
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/devcluster/keeper.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::devcluster {

struct Shape {
  uint64_t storage = 3;  // daemons
  uint64_t replicas = 2;
  uint64_t targets_per_disk = 4;
  bool operator==(const Shape&) const = default;
};

// "3 storage daemons, 2 replicas, 4 targets a disk"
std::string describe(const Shape& shape);

struct Made {
  Shape shape;
  bool formed = false;               // its cluster was made, with all its chains
  std::string meta;                  // "127.0.0.1:21400"; empty: not chosen yet
  std::vector<std::string> storage;  // of each, in order
  std::string scheduler, agent;      // empty: never wanted yet
};

struct Running {
  pid_t supervisor = 0;
  int64_t since_ns = 0;   // Unix epoch
  std::string mount;      // where it is mounted; empty: nowhere
  bool schedule = false;  // a scheduler and an agent, too
  std::vector<Standing> services;
};

class Folder {
 public:
  // `path` is absolute, and need not exist.
  Folder(io::Disk& disk, std::string path) : disk_(disk), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string key() const { return file("cluster.key"); }
  std::string logs() const { return file("log"); }
  std::string storage(uint64_t number) const { return file("storage-" + std::to_string(number)); }
  std::string meta() const { return file("meta"); }

  // Makes the folder itself, with nothing in it. Errc::refused: there is one with other things in
  // it, and nothing was changed. `mount` may lie in it.
  Result<void> make(std::string_view mount);
  // Null: somebody has it.
  Result<std::unique_ptr<io::File>> lock();
  // The rest of a new folder.
  Result<void> fill(const Shape& shape);

  // Errc::not_found: it was not made by fill().
  Result<Made> made();
  Result<void> set_made(const Made& made);
  // Errc::not_found: nothing runs, or it begins just now.
  Result<Running> running();
  Result<void> set_running(const Running& running);
  Result<void> forget_running();
  // Whether a process that `running` names is there still.
  bool any_left(const Running& running);

  // The command lines of its daemons. Ranks for stopping: the agent, which ends its tasks first,
  // then the mount, storage, and at last meta and the scheduler.
  std::vector<Service> daemons(const Made& made);
  std::vector<Service> schedule_services(const Made& made);
  Service mount_service(const Made& made, const std::string& mount);

  // Removes what was made here, and the folder when nothing else is left in it; false: something
  // is.
  Result<bool> purge();

 private:
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  io::Disk& disk_;
  const std::string path_;
};

// Gives each daemon, of `schedule` only where they are wanted, a port of this machine, below those
// that the kernel takes for connections of programs. Those that have one keep it, unless it is
// another program's now: what it says then is for the operator.
Result<std::vector<std::string>> choose_ports(Made& made, bool schedule, Rng& rng);

}  // namespace ff::devcluster
