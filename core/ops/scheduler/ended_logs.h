// The logs of attempts that have ended on this node, each in a folder of its own: how much of them
// the node keeps, and for how long. The logs of one user have a limit, and so have all together;
// beyond it the node removes the oldest of the user who has the most. So no user fills the disk of
// a node, or displaces the logs of others.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "ops/scheduler/kept_records.h"
#include "platform/base/bytes.h"
#include "platform/base/clock.h"
#include "platform/io/disk.h"

namespace ff::scheduler {

struct LogRetention {
  int64_t keep_ns = 0;
  uint64_t user_bytes = 4 * kGiB;
  size_t attempts = 2000;
  // All users together.
  uint64_t bytes() const { return user_bytes > UINT64_MAX / 4 ? UINT64_MAX : user_bytes * 4; }
  // One attempt, while it runs, too: a user keeps the logs of several.
  uint64_t attempt_bytes() const { return user_bytes / 4; }
};

// All functions block.
class EndedLogs {
 public:
  // `dir`: the folder with the folders of attempts, named TASK.ATTEMPT.
  EndedLogs(io::Disk& disk, Clock& clock, std::string dir, LogRetention limits)
      : disk_(disk), clock_(clock), dir_(std::move(dir)), limits_(limits) {}

  // Finds what is in the folder, and measures what is new there.
  void scan();
  // The folder of an attempt has been put there, or was replaced.
  void add(const std::string& name);
  // Removes what is too old or too much. What cannot be removed is found by the next scan.
  void prune();

  uint64_t bytes_of(uint32_t uid) const { return kept_.bytes_of(uid); }

 private:
  using Records = KeptRecords<std::string>;
  std::optional<Records::Record> measure(const std::string& name) const;
  void forget(const std::string& name);
  void remove(const Records::Record& record);

  io::Disk& disk_;
  Clock& clock_;
  const std::string dir_;
  const LogRetention limits_;
  Records kept_;
  std::map<std::string, Records::Record> known_;  // by name
};

}  // namespace ff::scheduler
