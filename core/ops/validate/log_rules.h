// Rules for hardware faults in the kernel log: words to search for, and their meaning.
#pragma once

#include <cstdint>
#include <deque>
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

// One kind of fault, with all that drivers write about it.
struct LogRule {
  const char* name;    // its class, and the check that reports it: "log.mce"
  Verdict verdict;     // skipped: no fault, whatever later rules say
  const char* about;   // "uncorrected memory error"
  const char* source;  // who writes or documents the words: "drivers/edac" (of Linux), "NVIDIA"
  const char* hint;    // what the operator does
  // Words of one line, in this order, with '*' for anything between them: "nvme*QID* timeout".
  // Unused: null.
  const char* patterns[12];
  // So many in 24 hours are normal: corrected errors. The default of mcelog for a DIMM is 10.
  uint64_t normal_a_day = 0;
  bool while_starting = true;  // false: ignored in the first minutes after boot, when links come up
};
std::span<const LogRule> log_rules();

// The first rule that matches a line; null: none. Xid lines have a parser of their own (xid.h).
const LogRule* find_rule(std::string_view text);
// Whether the words of a pattern are in the text, in their order.
bool matches_pattern(std::string_view text, std::string_view pattern);

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
    std::deque<int64_t> times = {};   // of errors in the last 24 hours, if some are normal
    bool too_many = false;            // more than are normal
    Verdict verdict = Verdict::pass;  // of Xids
    void add(std::string_view text);
    void add_error(const KernelLogLine& line, uint64_t errors, uint64_t normal_a_day);
    std::string text() const;
  };
  void add_rule(const LogRule& rule, const KernelLogLine& line);
  static Finding rule_finding(const LogRule& rule, const RuleMatch& met);
  static Finding xid_finding(const XidLine& seen, const RuleMatch& met);

  uint64_t lines_ = 0;
  bool timed_ = false;
  std::string probed_gpu_;  // "NVRM: The NVIDIA GPU 0000:41:00.0": later lines say what it has
  std::map<const LogRule*, RuleMatch> matches_;
  std::map<std::pair<std::string, int>, RuleMatch> xids_;  // by GPU and code
};

// The kernel log since the last run, or a whole saved log.
void check_log(const CheckContext& context);

}  // namespace ff::validate
