// A progress bar: bytes, rate, time left, and a note of the command, drawn at most ten times
// a second on the last line of the terminal, erased at the end. Workers increment the counters of
// base/progress.h; one thread draws. Without drawing there is no thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "platform/base/clock.h"
#include "platform/base/progress.h"

namespace ff::cmd {

// The terminal line on which a bar is drawn; other output goes above it.
class BarLine {
 public:
  virtual void draw_bar(const std::string& bar) = 0;
  virtual void erase_bar() = 0;

 protected:
  ~BarLine() = default;
};

// Cut to the width of the terminal on stderr, so that it stays one line.
std::string fit_terminal(std::string line);

class ProgressBar {
 public:
  ProgressBar(BarLine& line, Clock& clock, std::string label, const Progress& counters, bool draw);
  ~ProgressBar();  // erases the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Text after the numbers: "1,234 of 5,000 tensors". Thread-safe; not for inner loops.
  void note(std::string words);

 private:
  void run();
  std::string render(const std::string& words);

  BarLine& line_of_terminal_;
  Clock& clock_;
  const std::string label_;
  const int64_t started_ns_;
  const Progress& counters_;
  double rate_ = 0;  // bytes a second, smoothed; used by the drawing thread only
  int64_t last_ns_;
  uint64_t last_done_ = 0;

  std::mutex mutex_;  // guards words_ and finished_
  std::condition_variable wake_;
  std::string words_;
  bool finished_ = false;
  std::thread thread_;
};

}  // namespace ff::cmd
