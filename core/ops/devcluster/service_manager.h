// Runs services and restarts one that exits, after a delay that doubles with each exit in a row,
// until they are stopped.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/devcluster/log_file.h"
#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/process.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::devcluster {

struct ServiceSpec {
  std::string name;               // "storage-2"; its log is NAME.log
  std::vector<std::string> argv;  // without the program name
  std::string ready_text;         // part of the line that it prints when it is ready
  unsigned stop_priority = 0;     // services of higher priority stop before lower ones are asked
};

// The status of one service.
struct ServiceStatus {
  std::string name;
  pid_t pid = 0;           // 0: not running
  bool ready = false;      // the running process
  bool was_ready = false;  // this or an earlier process
  uint64_t restarts = 0;
  int64_t exited_ns = 0;                      // the last exit, Unix epoch; 0: none
  std::string exit_text = {};                 // of the last exit: "exit 1"
  std::vector<std::string> last_output = {};  // the last lines before the exit
};

class ServiceManager {
 public:
  struct Options {
    std::string program;
    std::vector<std::string> env;
    std::string logs;                       // folder of the logs
    uint64_t log_limit = 4 << 20;           // bytes, see log_file.h
    int64_t first_pause_ns = kSecond / 10;  // delay before the first restart
    int64_t last_pause_ns = 10 * kSecond;
    int64_t healthy_ns = 60 * kSecond;   // after so long a run the delay is reset
    int64_t patience_ns = 20 * kSecond;  // from SIGTERM to SIGKILL
  };
  // `changed`: a status has changed. The references must outlive the manager; call stop() before
  // its destruction.
  ServiceManager(Loop& loop, io::Disk& disk, Rng& rng, Options options,
                 std::function<void()> changed);
  ~ServiceManager();

  void start(ServiceSpec spec);
  // Stops all services, by stop priority. None is restarted.
  Task<void> stop();
  std::vector<ServiceStatus> statuses() const;

 private:
  struct ManagedService;
  Task<void> supervise(ManagedService& service);
  Task<bool> run_once(ManagedService& service);  // false: it was asked to stop
  void handle_output(ManagedService& service, std::string_view bytes);
  void handle_line(ManagedService& service);
  Task<void> wait_stopped(ManagedService& service);

  Loop& loop_;
  io::Disk& disk_;
  Rng& rng_;
  const Options options_;
  const std::function<void()> changed_;
  std::deque<std::unique_ptr<ManagedService>> services_;
  Gate gate_;
};

}  // namespace ff::devcluster
