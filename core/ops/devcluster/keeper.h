// Keeps programs running: one that ends is started again, after a pause that doubles with each end
// in a row, until it is told to stop.
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

struct Service {
  std::string name;               // "storage-2"; its log is NAME.log
  std::vector<std::string> argv;  // without the name of the program
  std::string serves;             // stands in the line that it prints when it serves
  unsigned rank = 0;  // when all stop: higher ones have ended before lower ones are told
};

// How one of them is.
struct Standing {
  std::string name;
  pid_t pid = 0;        // 0: it does not run now
  bool serves = false;  // the process that runs
  bool served = false;  // this or one before it
  uint64_t restarts = 0;
  int64_t ended_ns = 0;                      // the last end, Unix epoch; 0: none yet
  std::string end = {};                      // how that was: "exit 1"
  std::vector<std::string> last_words = {};  // the last lines that it printed before
};

class Keeper {
 public:
  struct Options {
    std::string program;
    std::vector<std::string> env;
    std::string logs;                       // folder of the logs
    uint64_t log_limit = 4 << 20;           // bytes, of a log_file.h
    int64_t first_pause_ns = kSecond / 10;  // before one is started again
    int64_t last_pause_ns = 10 * kSecond;
    int64_t healthy_ns = 60 * kSecond;   // who has run for so long begins with the first pause
    int64_t patience_ns = 20 * kSecond;  // who is told to stop, and has not by then, is killed
  };
  // `changed`: some Standing is another. All outlive it, and stop() comes before its end.
  Keeper(Loop& loop, io::Disk& disk, Rng& rng, Options options, std::function<void()> changed);
  ~Keeper();

  void start(Service service);
  // All of them, by rank. None is started again.
  Task<void> stop();
  std::vector<Standing> standings() const;

 private:
  struct Kept;
  Task<void> keep(Kept& kept);
  Task<bool> run_once(Kept& kept);  // false: it was told to stop
  void hear(Kept& kept, std::string_view bytes);
  void hear_line(Kept& kept);
  Task<void> end(Kept& kept);

  Loop& loop_;
  io::Disk& disk_;
  Rng& rng_;
  const Options options_;
  const std::function<void()> changed_;
  std::deque<std::unique_ptr<Kept>> kept_;
  Gate gate_;
};

}  // namespace ff::devcluster
