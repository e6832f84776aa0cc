// The output of ranks of this node, including ended attempts, for readers who are authorized.
//
// A log consists of several files (shim/rank_log.h); the oldest are removed while it grows. Offsets
// count all bytes that the log ever had: each file but the first states in its first line how many
// bytes came before it. The files of one log are consecutive, so one such line is enough.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/scheduler/attempt_record.h"
#include "ops/scheduler/scheduler.pb.h"
#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::scheduler {

constexpr uint32_t kLogReadMax = 512 << 10;  // bytes of one reply

class TaskLogs {
 public:
  // Parents of attempt folders, which are named TASK.ATTEMPT; one whose ranks have all ended is
  // moved from `attempts` to `ended` (local_attempt.h).
  TaskLogs(io::Disk& disk, std::string attempts, std::string ended)
      : disk_(disk), attempts_(std::move(attempts)), ended_(std::move(ended)) {}

  // `reader`: the uid of the caller; nothing: may read all logs. Errors: not_found, refused (log of
  // another user). Blocks.
  Result<wire::LogReply> read(const wire::LogRequest& request,
                              std::optional<uint32_t> reader) const;

 private:
  struct Found {
    std::string dir;
    AttemptRecord record;
    bool ended = false;  // all its ranks
  };
  Result<Found> find(uint64_t task, uint32_t attempt) const;
  // Nothing: the folder was moved meanwhile; search again.
  Result<std::optional<wire::LogReply>> try_read(const wire::LogRequest& request,
                                                 std::optional<uint32_t> reader) const;

  io::Disk& disk_;
  const std::string attempts_, ended_;
};

// The files of one log, opened together, so that rotation does not disturb the reader.
class RotatedLog {
 public:
  // `path`: the newest file. A log without files is empty.
  static Result<RotatedLog> open(io::Disk& disk, const std::string& path);

  uint64_t begin() const { return files_.empty() ? 0 : files_.front().begin; }
  uint64_t end() const { return files_.empty() ? 0 : files_.back().begin + files_.back().size; }
  // Reads at most `limit` bytes from `offset`, which is between begin() and end().
  Result<std::string> read(uint64_t offset, uint64_t limit) const;

 private:
  struct Part {
    std::unique_ptr<io::File> file;
    uint64_t inode = 0;
    uint64_t begin = 0;  // offset of its first byte in the log
    uint64_t size = 0;
  };
  static Result<std::optional<uint64_t>> recorded_begin(const Part& part);

  std::vector<Part> files_;  // oldest first
};

}  // namespace ff::scheduler
