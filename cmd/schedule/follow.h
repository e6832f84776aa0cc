// The output of one rank, read from the agents of the nodes that have had it: attempt after
// attempt, until the task is finished.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cmd/schedule/client.h"

namespace ff::cmd {

// Bytes of programs on their way to a terminal: control bytes become \xNN, apart from newlines and
// tabs. What is cut off in a character is kept for the next piece.
class TerminalText {
 public:
  std::string take(std::string_view bytes);

 private:
  std::string rest_;
};

struct LogWanted {
  uint64_t task = 0;
  uint32_t rank = 0;
  std::optional<uint32_t> attempt;  // else the newest, and those that follow
  std::optional<uint64_t> lines;    // only the last ones of the first attempt
  bool all = false;                 // from the first attempt that is known on, as one
  bool follow = false;
};

class LogReader {
 public:
  LogReader(ScheduleCalls& calls, const LogWanted& wanted);
  // Prints what there is; with `follow`, until the task is finished (or its attempt is over, where
  // one was asked for). The task as it was then.
  Result<scheduler::wire::ListedTask> run();

 private:
  Result<bool> step(const scheduler::wire::ListedTask& listed);
  const scheduler::wire::Attempt* choose(const scheduler::wire::Task& task) const;
  Result<void> begin(const scheduler::wire::Task& task, const scheduler::wire::Attempt& tried);
  Result<void> read_rest();
  Result<void> find_lines();
  Result<scheduler::wire::LogReply> read(uint64_t offset, uint32_t limit, bool from_end);
  Result<void> print(const scheduler::wire::LogReply& reply, std::string_view data);
  void tell_waiting(const scheduler::wire::ListedTask& listed);

  ScheduleCalls& calls_;
  const LogWanted wanted_;
  uint32_t attempt_ = 0;  // that is read; 0: none yet
  bool begun_ = false;    // its log was found
  std::string node_, agent_;
  uint32_t local_rank_ = 0;
  uint64_t offset_ = 0;
  bool lines_done_ = false;
  bool was_lost_ = false;  // the agent, and that was told
  std::string told_;       // why it waits
  TerminalText text_;
};

}  // namespace ff::cmd
