// The history of one name in a directory, as several programs saw it, and whether it is
// linearizable (Herlihy and Wing, 1990; checked as Wing and Gong, 1993).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ff::scenario {

class NameHistory {
 public:
  static constexpr size_t kProgramsMax = 4;
  static constexpr uint64_t kAbsent = 0;             // no inode
  static constexpr uint64_t kAnything = UINT64_MAX;  // unknown, or not to be checked
  static constexpr uint64_t kPresent = UINT64_MAX - 1;
  static constexpr uint64_t kSame = UINT64_MAX - 2;

  // A call that a program made and that was answered. `before`: what the name referred to (an
  // inode, kAbsent, kPresent, kAnything); `after`: then (an inode, kAbsent, kSame).
  struct Call {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    uint64_t before = kAnything;
    uint64_t after = kSame;
    const char* what = "";
  };
  // The calls of one program must not overlap.
  void add(size_t program, Call call) { calls_[program].push_back(call); }
  // At some time between these, the name may have changed in any way: a call without an answer, or
  // a change that was answered and is lost.
  void add_uncertainty(int64_t begin_ns, int64_t end_ns) {
    uncertain_.push_back({begin_ns, end_ns, false});
  }
  size_t size() const;
  // Nothing: it is linearizable. Otherwise a description of the calls around the contradiction.
  std::optional<std::string> contradiction() const;

 private:
  struct Uncertainty {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    bool used = false;
  };
  struct Search;
  std::vector<Call> calls_[kProgramsMax];
  std::vector<Uncertainty> uncertain_;
};

}  // namespace ff::scenario
