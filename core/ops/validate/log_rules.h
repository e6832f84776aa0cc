// What lines of the kernel's log say of the hardware: words to look for, and what they mean.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/validate/check.h"
#include "ops/validate/kernel_log.h"
#include "ops/validate/xid.h"

namespace ff::validate {

struct LogRule {
  const char* name;      // of the check: "log.mce"
  const char* words[3];  // all in one line, in this order; null behind the last
  Verdict verdict;       // skipped: says nothing of hardware after all
  const char* about;
  const char* hint;
  bool while_starting = true;  // false: no trouble in the first minutes, as links come up
};
std::span<const LogRule> log_rules();

// The rule of a line; null: it says nothing of hardware. Lines of Xid have a reader of their own
// (xid.h).
const LogRule* find_rule(std::string_view text);

// What lines of a log say, however many there are.
class LogJudge {
 public:
  void add(const LogLine& line);
  uint64_t lines() const { return lines_; }
  // Whether anything of what was added can have come from a kernel.
  bool saw_a_log() const { return timed_ || !met_.empty() || !xids_.empty(); }
  // One finding for each rule, and for each Xid of each GPU, that was met: how often, and the last
  // line. A check whose rules none has met passes.
  std::vector<Finding> findings() const;

 private:
  struct Met {
    uint64_t count = 0;
    std::string last = {};
    void add(const LogLine& line);
    std::string told() const;
  };
  static Finding of_xid(const XidLine& seen, const Met& met);

  uint64_t lines_ = 0;
  bool timed_ = false;
  std::map<const LogRule*, Met> met_;
  std::map<std::pair<std::string, int>, Met> xids_;  // by GPU and code
};

// The kernel's log since the last run, or a saved one, whole.
void check_log(const Context& context);

}  // namespace ff::validate
