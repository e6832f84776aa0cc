// What ranks of this node have printed, also of attempts that are over, for whoever may read it.
//
// A log is several files (shim/rank_log.h), of which the oldest go while it grows. Offsets count
// all bytes that the log ever had: each file but the first says in its first line how many came
// before it. The files of one log follow one another, so one that says so is enough.
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

constexpr uint32_t kLogReadMax = 512 << 10;  // bytes of one answer

class KeptLogs {
 public:
  // `folders`: of attempts, each with folders called TASK.ATTEMPT in it.
  KeptLogs(io::Disk& disk, std::vector<std::string> folders)
      : disk_(disk), folders_(std::move(folders)) {}

  // `reader`: nobody: who may read all. Errors: not_found, refused (another user's). Blocks.
  Result<wire::LogReply> read(const wire::LogRequest& request,
                              std::optional<uint32_t> reader) const;

 private:
  struct Found {
    std::string dir;
    AttemptRecord record;
  };
  Result<Found> find(uint64_t task, uint32_t attempt) const;
  // Nothing: the folder was put away meanwhile, and is now somewhere else.
  Result<std::optional<wire::LogReply>> try_read(const wire::LogRequest& request,
                                                 std::optional<uint32_t> reader) const;

  io::Disk& disk_;
  const std::vector<std::string> folders_;
};

// One log's files, opened together: they stay what they were while they are read.
class LogFiles {
 public:
  // `path`: of the newest. No file at all is an empty log.
  static Result<LogFiles> open(io::Disk& disk, const std::string& path);

  uint64_t begin() const { return files_.empty() ? 0 : files_.front().begin; }
  uint64_t end() const { return files_.empty() ? 0 : files_.back().begin + files_.back().size; }
  // From there on, at most so many; `offset` is between begin() and end().
  Result<std::string> read(uint64_t offset, uint64_t limit) const;

 private:
  struct Part {
    std::unique_ptr<io::File> file;
    uint64_t inode = 0;
    uint64_t begin = 0;  // bytes of the log before it
    uint64_t size = 0;
  };
  static Result<std::optional<uint64_t>> told_begin(const Part& part);

  std::vector<Part> files_;  // the oldest first
};

}  // namespace ff::scheduler
