// The folder in which a task and the agent of its node tell one another things: $FF_TASK_DIR, one
// for each attempt and node, shared by the task's ranks there. Small text files, one fact each:
//
//   stop             agent   "REASON DEADLINE": save and end; by then (Unix seconds) it is over
//   ack              task    it has seen the request; any content, even none
//   saved            task    "STEP": the newest step of the whole task that is safely stored
//   heartbeat.RANK   task    "STEP": where that rank is; when, the file's time says
//   life_state       both    "WORD": 32 bits, in decimal, that outlive a restart of the task
//
// Files, because everything can write them: a shell script does by `echo 120 >saved`. Here they are
// written under another name and renamed, so that nobody sees half of one; a script's are taken
// once they end in a newline. The folder is the task's user's (0700), who may put anything there:
// what is no small regular file with one line that makes sense says nothing, whatever it is.
//
// Nothing is synced: who loses power has lost the task, and the agent passes on what it has read.
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

constexpr uint64_t kFactMost = 256;  // bytes of a file; the longest that we write has 52
constexpr size_t kReasonMost = 31;   // bytes

struct StopRequest {
  std::string reason;      // "preempted", "drained", "stopped": a-z, 0-9, '_' and '-'
  int64_t deadline_s = 0;  // Unix seconds
  bool operator==(const StopRequest&) const = default;
};

// What a file says.
struct Fact {
  std::optional<std::string> line;  // without blanks around it, or its newline
  std::string ignored;              // "PATH: why": there is something, which says nothing (yet)
  int64_t mtime_ns = 0;             // as the file has it, which its owner may set
};

// Never follows a link, waits for nobody, reads no more than kFactMost.
Fact read_fact(io::Disk& disk, const std::string& path);
// Whether a regular file has that name.
bool has_file(io::Disk& disk, const std::string& path);

// "DIR/.NAME.0123456789abcdef.tmp": what becomes a fact, and in which folder.
std::string unfinished_name(Rng& rng, std::string_view dir, std::string_view name);
// Makes `path`, which nobody has made before, with this line in it.
Result<void> write_line(io::Disk& disk, const std::string& path, std::string_view line);

// Of lines. Nothing: it is none.
std::optional<StopRequest> parse_stop(std::string_view line);
std::optional<uint64_t> parse_step(std::string_view line);
std::optional<uint32_t> parse_life_state(std::string_view line);
// Errc::usage: the reason is no such word, or the deadline is before 1970.
Result<std::string> stop_line(const StopRequest& request);

}  // namespace ff::task
