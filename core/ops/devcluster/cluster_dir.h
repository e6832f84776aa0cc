// The folder of a cluster on one machine: its configuration, and the status of its daemons.
//
//   made.json     the configuration (ClusterConfig); it marks the folder as one of `ff up`
//   running.json  the status (ClusterStatus) while a supervisor runs; left behind by a killed one
//   lock          locked by the supervisor
//   cluster.key   the cluster key
//   meta/         of serve-meta
//   storage-N/    the disk of the N-th serve-storage
//   scheduler/    of schedule serve, with --schedule
//   agent/        of schedule agent
//   kv.key        with --kv: the key with which clients of the gateway log in
//   log/          NAME.log of each daemon, and supervisor.log
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/devcluster/service_manager.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::devcluster {

struct ClusterShape {
  uint64_t storage = 3;  // daemons
  uint64_t replicas = 2;
  uint64_t targets_per_disk = 4;
  bool operator==(const ClusterShape&) const = default;
};

// "3 storage daemons, 2 replicas, 4 targets a disk"
std::string describe(const ClusterShape& shape);

struct ClusterConfig {
  ClusterShape shape;
  bool formed = false;               // the cluster was initialized, with all its chains
  std::string meta;                  // address, "127.0.0.1:21400"; empty: not chosen yet
  std::vector<std::string> storage;  // addresses, in order
  std::string scheduler, agent;      // addresses; empty: never requested
  std::string page;                  // address of the scheduler's web page; empty: never requested
  std::string redis, s3;             // addresses of the gateway; empty: never requested
};

struct ClusterStatus {
  pid_t supervisor = 0;
  int64_t since_ns = 0;   // Unix epoch
  std::string mount;      // mount point; empty: none
  bool schedule = false;  // with a scheduler and an agent
  bool kv = false;        // with a gateway
  std::vector<ServiceStatus> services;
};

class ClusterDir {
 public:
  // `path` is absolute; it need not exist.
  ClusterDir(io::Disk& disk, std::string path) : disk_(disk), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string key() const { return file("cluster.key"); }
  std::string kv_key() const { return file("kv.key"); }
  std::string logs() const { return file("log"); }
  std::string storage(uint64_t number) const { return file("storage-" + std::to_string(number)); }
  std::string meta() const { return file("meta"); }

  // Creates the empty folder. Errc::refused: it contains other files; nothing was changed. `mount`
  // may be inside it.
  Result<void> create(std::string_view mount);
  // Null: another process holds the lock.
  Result<std::unique_ptr<io::File>> lock();
  // Writes the key and the configuration of a new folder.
  Result<void> initialize(const ClusterShape& shape);

  // Errc::not_found: initialize() was never called.
  Result<ClusterConfig> config();
  Result<void> set_config(const ClusterConfig& config);
  // Errc::not_found: no supervisor runs, or it is just starting.
  Result<ClusterStatus> status();
  Result<void> set_status(const ClusterStatus& status);
  Result<void> clear_status();
  // Whether the supervisor that wrote `status` runs: false while a SIGKILL waits for it, or while
  // it exits, although it still holds the lock.
  bool is_supervised(const ClusterStatus& status);
  // Whether a process that `status` names still runs.
  bool any_process_left(const ClusterStatus& status);

  // The command lines of its daemons. They stop in this order: the agent, which ends its tasks; the
  // mount and the gateway; storage; meta and the scheduler.
  std::vector<ServiceSpec> daemons(const ClusterConfig& config);
  std::vector<ServiceSpec> schedule_services(const ClusterConfig& config);
  ServiceSpec mount_service(const ClusterConfig& config, const std::string& mount);
  // The gateway for clients of Redis and S3. The cluster must have its folders.
  ServiceSpec kv_service(const ClusterConfig& config);
  // The link that logs a browser in to the scheduler's web page, the newest one of the scheduler's
  // log; the address of the page where the log has none.
  std::string page_link(const ClusterConfig& config);

  // Removes all that `ff up` created, and the folder if nothing else is in it. False: other files
  // remain.
  Result<bool> purge();

 private:
  struct ProcessFiles {
    std::string command_line, status;  // /proc/PID/cmdline and status (proc(5))
  };
  // Nothing: there is no such process.
  std::optional<ProcessFiles> process_files(pid_t pid);
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  io::Disk& disk_;
  const std::string path_;
};

// Folders at the top of the cluster: the gateway's store of keys and values, and the buckets.
constexpr std::string_view kKeysAndValues = "kv";
constexpr std::string_view kObjects = "objects";

// What runs only on request.
struct OptionalDaemons {
  bool schedule = false;  // a scheduler with its web page, and an agent
  bool kv = false;        // a gateway
};

// Chooses a local port for each daemon, below the ephemeral range. Existing ports are kept unless
// another program uses them now; the returned messages tell the operator.
Result<std::vector<std::string>> choose_ports(ClusterConfig& config, OptionalDaemons extras,
                                              Rng& rng);

}  // namespace ff::devcluster
