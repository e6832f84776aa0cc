// A progress bar: bytes, rate, time left, and a few words of the command's own, at most ten times
// a second on the last line of the terminal, erased at the end. Workers bump the counters of
// base/progress.h; one thread draws. Where nothing is drawn no thread exists.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "platform/base/clock.h"
#include "platform/base/progress.h"

namespace ff::cmd {

// Where a bar is drawn: the last line of a terminal, beside what else is printed there.
class BarLine {
 public:
  virtual void draw_bar(const std::string& bar) = 0;
  virtual void erase_bar() = 0;

 protected:
  ~BarLine() = default;
};

class ProgressBar {
 public:
  ProgressBar(BarLine& line, Clock& clock, std::string label, const Progress& counters, bool draw);
  ~ProgressBar();  // erases the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Words after the numbers: "1,234 of 5,000 tensors". From any thread, not in an inner loop.
  void note(std::string words);

 private:
  void run();
  std::string render(const std::string& words, uint64_t columns);

  BarLine& line_of_terminal_;
  Clock& clock_;
  const std::string label_;
  const int64_t started_ns_;
  const Progress& counters_;
  double rate_ = 0;  // bytes a second, smoothed; the drawing thread's own
  int64_t last_ns_;
  uint64_t last_done_ = 0;

  std::mutex mutex_;  // guards words_ and finished_
  std::condition_variable wake_;
  std::string words_;
  bool finished_ = false;
  std::thread thread_;
};

}  // namespace ff::cmd
