// The task directory, $FF_TASK_DIR: how a task and the agent of its node communicate. There is one
// for each attempt and node, shared by the ranks there. It has small text files, one value each:
//
//   stop             agent   "REASON DEADLINE": save and exit before DEADLINE (Unix seconds)
//   ack              task    it has read the request; any content, even none
//   saved            task    "STEP": the newest durable step of the whole task
//   heartbeat.RANK   task    "STEP" of that rank; the file's mtime is the time
//   life_state       both    "NUMBER": 32 bits, decimal; kept when the task restarts
//
// Any program can write such files; a shell script does by `echo 120 >saved`. ff writes each under
// a temporary name and renames it, so that no reader sees half a file; a file of a script counts
// once it ends in a newline. The directory belongs to the task's user (mode 0700), who may put
// anything there: readers ignore everything but small regular files with one valid line.
//
// Nothing is synced: after a power loss the task is gone, and the agent has forwarded what it read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::task {

constexpr std::string_view kStop = "stop";
constexpr std::string_view kAck = "ack";
constexpr std::string_view kSaved = "saved";
constexpr std::string_view kLifeState = "life_state";
std::string heartbeat_name(uint32_t rank);

constexpr uint64_t kTaskFileMax = 256;  // bytes; ff writes at most 52
constexpr size_t kReasonMax = 31;       // bytes

struct StopRequest {
  std::string reason;      // "preempted", "drained", "stopped": a-z, 0-9, '_' and '-'
  int64_t deadline_s = 0;  // Unix seconds
  bool operator==(const StopRequest&) const = default;
};

struct TaskFile {
  std::optional<std::string> line;  // without surrounding blanks and the newline
  std::string ignored;              // "PATH: REASON" when a file exists but has no valid line (yet)
  int64_t mtime_ns = 0;             // of the file, which its owner may set
};

// Never follows a symbolic link, never blocks, reads at most kTaskFileMax bytes.
TaskFile read_task_file(io::Disk& disk, const std::string& path);
bool is_regular_file(io::Disk& disk, const std::string& path);

// "DIR/.NAME.0123456789abcdef.tmp": a file that will be renamed to NAME.
std::string temporary_name(Rng& rng, std::string_view dir, std::string_view name);
// Creates `path`, which must not exist, with this line.
Result<void> write_line(io::Disk& disk, const std::string& path, std::string_view line);

// The value of a line; nothing when it is malformed.
std::optional<StopRequest> parse_stop(std::string_view line);
std::optional<uint64_t> parse_step(std::string_view line);
std::optional<uint32_t> parse_life_state(std::string_view line);
// Errc::usage: the reason has other characters, or the deadline is before 1970.
Result<std::string> stop_line(const StopRequest& request);

}  // namespace ff::task
