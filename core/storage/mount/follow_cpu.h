// Decides on which CPU the loop of a mount runs. A program and the loop hand over to each other
// faster on one CPU than on two, above all in virtual machines, where another CPU must first be
// woken. But programs that work at the same time, and large transfers, need more than one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace ff::mount {

class FollowCpu {
 public:
  // A program that waits for the reply has sent a request from `cpu`; none: unknown. `alone`: it is
  // small, and no other program waits. Returns whether pinned() has changed.
  bool on_request(std::optional<size_t> cpu, bool alone);
  // For requests that do not tell their CPU, and come alone: whether to find out where this thread
  // runs, which costs as much as a request. Otherwise last_cpu() will do.
  bool must_ask(uint32_t thread);
  std::optional<size_t> last_cpu() const { return cpu_; }
  // Where the loop shall run; none: anywhere.
  std::optional<size_t> pinned() const { return pinned_; }

 private:
  // Requests in a row from one CPU after which the loop follows: the scheduler moves a program
  // rarely.
  static constexpr size_t kFollowAfter = 16;
  // Requests of others, with fewer than that in a row between them, after which it is free again.
  static constexpr size_t kFreeAfter = 4;

  // Requests for which an answer of must_ask() holds: of the same thread, of any.
  static constexpr size_t kAskThread = 32;
  static constexpr size_t kAskOther = 8;

  std::optional<size_t> pinned_;
  std::optional<size_t> cpu_;  // of the last request
  size_t in_row_ = 0;          // requests from it, alone
  size_t others_ = 0;          // requests that did not come alone from the pinned CPU
  uint32_t thread_ = 0;        // whose CPU was asked for
  size_t since_ = kAskThread;  // requests since then
};

inline bool FollowCpu::must_ask(uint32_t thread) {
  if (++since_ <= (thread == thread_ ? kAskThread : kAskOther)) return false;
  since_ = 0;
  thread_ = thread;
  return true;
}

inline bool FollowCpu::on_request(std::optional<size_t> cpu, bool alone) {
  const auto before = pinned_;
  alone = alone && cpu.has_value();
  in_row_ = !alone ? 0 : cpu == cpu_ ? in_row_ + 1 : 1;
  if (cpu) cpu_ = cpu;
  if (in_row_ >= kFollowAfter) {
    pinned_ = cpu;
    others_ = 0;
  } else if (pinned_ && (!alone || pinned_ != cpu) && ++others_ >= kFreeAfter) {
    pinned_.reset();
    others_ = 0;
  }
  return pinned_ != before;
}

}  // namespace ff::mount
