// Rules for hardware faults in the kernel log: words to search for, and their meaning.
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
  const char* words[3];  // all in one line, in this order; unused: null
  Verdict verdict;       // skipped: not about hardware after all
  const char* about;
  const char* hint;
  bool while_starting = true;  // false: ignored in the first minutes after boot, when links come up
};
std::span<const LogRule> log_rules();

// The rule that matches a line; null: none. Xid lines have a parser of their own (xid.h).
const LogRule* find_rule(std::string_view text);

// Collects the findings of a log of any length.
class LogAnalyzer {
 public:
  void add(const KernelLogLine& line);
  uint64_t lines() const { return lines_; }
  // Whether any of the lines looks like a kernel log.
  bool is_kernel_log() const { return timed_ || !matches_.empty() || !xids_.empty(); }
  // One finding for each matching rule, and for each Xid of each GPU: the count and the last line.
  // A check without matching rules passes.
  std::vector<Finding> findings() const;

 private:
  struct RuleMatch {
    uint64_t count = 0;
    std::string last = {};
    void add(const KernelLogLine& line);
    std::string text() const;
  };
  static Finding xid_finding(const XidLine& seen, const RuleMatch& met);

  uint64_t lines_ = 0;
  bool timed_ = false;
  std::map<const LogRule*, RuleMatch> matches_;
  std::map<std::pair<std::string, int>, RuleMatch> xids_;  // by GPU and code
};

// The kernel log since the last run, or a whole saved log.
void check_log(const CheckContext& context);

}  // namespace ff::validate
