// Reads the output of one rank from the agents of its nodes, attempt after attempt, until the task
// is finished.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cmd/schedule/client.h"

namespace ff::cmd {

// Escapes output for a terminal: control bytes become \xNN, except for newlines and tabs. An
// incomplete UTF-8 character is kept for the next part.
class TerminalText {
 public:
  std::string escape(std::string_view bytes);

 private:
  std::string incomplete_;
};

// The output of a program from its log (shim/rank_log.h): without timestamps, and with the parts of
// a long line joined. A newline is held back until it is known whether the line continues.
class PlainOutput {
 public:
  // `messages` gets those of the shim, such as "ff: 10 bytes of output were dropped here: …".
  std::string strip(std::string_view log, std::vector<std::string>& messages);
  // The newline that is held back, if any: the log has no more for now.
  std::string end_line() { return std::exchange(held_newline_, false) ? "\n" : ""; }
  // What a killed shim has left without a newline, if anything: the log is complete.
  std::string finish();

 private:
  std::string incomplete_;  // the begin of the next line of the log
  bool held_newline_ = false;
};

struct LogSelection {
  uint64_t task = 0;
  uint32_t rank = 0;
  std::optional<uint32_t> attempt;  // nothing: the newest and those that follow
  std::optional<uint64_t> lines;    // only the last lines of the first attempt
  bool all = false;                 // all known attempts
  bool follow = false;
  bool plain = false;  // see PlainOutput
};

class LogReader {
 public:
  LogReader(SchedulerClient& client, const LogSelection& wanted);
  // Prints the log; with `follow`, until the task is finished (or the requested attempt is over).
  // Returns the task as it was then.
  Result<scheduler::wire::ListedTask> run();

 private:
  Result<bool> step(const scheduler::wire::ListedTask& listed);
  const scheduler::wire::Attempt* choose_attempt(const scheduler::wire::Task& task) const;
  Result<void> open_attempt(const scheduler::wire::Task& task,
                            const scheduler::wire::Attempt& current);
  Result<void> read_to_end();
  Result<void> seek_last_lines();
  Result<scheduler::wire::LogReply> read(uint64_t offset, uint32_t limit, bool from_end);
  Result<void> print(const scheduler::wire::LogReply& reply, std::string_view data);
  void print_waiting(const scheduler::wire::ListedTask& listed);

  SchedulerClient& client_;
  const LogSelection selection_;
  uint32_t attempt_ = 0;  // being read; 0: none yet
  bool begun_ = false;    // its log was found
  std::string node_, agent_;
  uint32_t local_rank_ = 0;
  uint64_t offset_ = 0;
  bool lines_found_ = false;
  bool was_lost_ = false;    // the agent does not answer, and the user was told
  std::string last_reason_;  // the last reason for waiting
  TerminalText text_;
  PlainOutput plain_;
};

}  // namespace ff::cmd
