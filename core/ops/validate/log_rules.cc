// log_rules.cc: matches lines with the rules of log_rule_table.cc, and counts what they found.
#include "ops/validate/log_rules.h"

#include <algorithm>
#include <array>
#include <set>

#include "platform/base/check.h"
#include "platform/base/text.h"

namespace ff::validate {

namespace {

constexpr int64_t kStartingNs = 300 * kSecond;
constexpr int64_t kDayNs = 86'400 * kSecond;

// The rules by the first three bytes of their patterns, which most lines have nowhere: logs have
// hundreds of thousands of lines.
class RuleIndex {
 public:
  RuleIndex() {
    for (const LogRule& rule : log_rules()) {
      for (const char* const pattern : rule.patterns) {
        if (pattern != nullptr) bucket_of(pattern).push_back(&rule);
      }
    }
  }
  // Those that may match, in their order.
  std::set<const LogRule*> candidates(std::string_view text) const {
    std::set<const LogRule*> found;
    for (; text.size() >= kBytes; text.remove_prefix(1)) {
      const auto& bucket = buckets_[hash(text.data())];
      found.insert(bucket.begin(), bucket.end());
    }
    return found;
  }

 private:
  static constexpr size_t kBytes = 3;
  static constexpr size_t kBuckets = 4096;
  static size_t hash(const char* bytes) {
    const auto at = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(bytes[i])); };
    return (at(0) * 961 + at(1) * 31 + at(2)) % kBuckets;
  }
  std::vector<const LogRule*>& bucket_of(std::string_view pattern) {
    FF_CHECK(std::min(pattern.find('*'), pattern.size()) >= kBytes);
    return buckets_[hash(pattern.data())];
  }
  std::array<std::vector<const LogRule*>, kBuckets> buckets_;
};

bool matches_rule(std::string_view text, const LogRule& rule) {
  return std::ranges::any_of(rule.patterns, [&](const char* const pattern) {
    return pattern != nullptr && matches_pattern(text, pattern);
  });
}

// How many errors a line reports: "EDAC MC0: 3 CE memory read error on …" three.
uint64_t errors_of(std::string_view text) {
  const size_t end = text.find(" CE ");
  if (end == text.npos || end == 0) return 1;
  const size_t space = text.rfind(' ', end - 1);
  const size_t begin = space == text.npos ? 0 : space + 1;
  return parse_u64(text.substr(begin, end - begin)).value_or(1);
}

}  // namespace

bool matches_pattern(std::string_view text, std::string_view pattern) {
  while (!pattern.empty()) {
    const std::string_view word = pattern.substr(0, pattern.find('*'));
    const size_t at = text.find(word);
    if (at == text.npos) return false;
    text.remove_prefix(at + word.size());
    pattern.remove_prefix(std::min(word.size() + 1, pattern.size()));
  }
  return true;
}

const LogRule* find_rule(std::string_view text) {
  static const RuleIndex index;
  for (const LogRule* const rule : index.candidates(text)) {
    if (matches_rule(text, *rule)) return rule->verdict == Verdict::skipped ? nullptr : rule;
  }
  return nullptr;
}

void LogAnalyzer::RuleMatch::add(std::string_view text) {
  count++;
  last = text;
}

void LogAnalyzer::RuleMatch::add_error(const KernelLogLine& line, uint64_t errors,
                                       uint64_t normal_a_day) {
  const int64_t now_ns = line.wall_ns.value_or(line.boot_ns.value_or(0));
  times.insert(times.end(), std::min(errors, normal_a_day + 1), now_ns);
  while (now_ns - times.front() > kDayNs) times.pop_front();
  too_many |= times.size() > normal_a_day;
  if (too_many) times.clear();
}

std::string LogAnalyzer::RuleMatch::text() const {
  constexpr size_t kShown = 200;
  std::string line = printable(std::string_view(last).substr(0, kShown));
  return count == 1 ? line : fmt::format("{} times, last: {}", count, line);
}

Finding LogAnalyzer::rule_finding(const LogRule& rule, const RuleMatch& met) {
  Finding finding{.name = rule.name,
                  .part = rule.about,
                  .verdict = rule.verdict,
                  .found = met.text(),
                  .value = static_cast<double>(met.count),
                  .expected = "none",
                  .source = fmt::format("{}, in the kernel's log", rule.source),
                  .hint = rule.hint};
  if (rule.normal_a_day == 0) return finding;
  finding.expected = fmt::format("at most {} in 24 h", rule.normal_a_day);
  if (!met.too_many) finding.verdict = Verdict::pass;
  return finding;
}

Finding LogAnalyzer::xid_finding(const XidLine& seen, const RuleMatch& met) {
  const Xid* const known = find_xid(seen.code);
  Finding finding{.name = "log.xid", .part = seen.device, .verdict = met.verdict};
  finding.value = static_cast<double>(met.count);
  finding.expected = "none";
  if (known == nullptr) {
    finding.found = fmt::format("Xid {}: {}", seen.code, met.text());
    finding.source = "NVIDIA's driver";
    finding.hint = "ff does not know this code: see NVIDIA's catalogue of Xids.";
    return finding;
  }
  finding.found = fmt::format("Xid {}, {}: {}", seen.code, known->about, met.text());
  finding.source = fmt::format("NVIDIA: {}; paper: {}",
                               *known->immediate == '\0' ? "no action" : known->immediate,
                               xid_class_name(known->of));
  finding.hint = xid_hint(*known);
  return finding;
}

void LogAnalyzer::add_rule(const LogRule& rule, const KernelLogLine& line) {
  const bool starting = line.boot_ns && *line.boot_ns < kStartingNs;
  if (starting && !rule.while_starting) return;
  RuleMatch& match = matches_[&rule];
  const bool is_nameless = line.text.starts_with("NVRM: fallen off the bus") ||
                           line.text.starts_with("NVRM: system has fallen off");
  const bool follows = is_nameless && !probed_gpu_.empty();
  match.add(follows ? fmt::format("{} … {}", probed_gpu_, line.text) : line.text);
  if (rule.normal_a_day > 0) match.add_error(line, errors_of(line.text), rule.normal_a_day);
}

void LogAnalyzer::add(const KernelLogLine& line) {
  if (line.text.empty()) return;
  lines_++;
  timed_ |= line.has_time();
  // When the driver probes a GPU that is gone, it names it in the first of three lines.
  constexpr std::string_view kProbed = "NVRM: The NVIDIA GPU ";
  const size_t probed = line.text.find(kProbed);
  if (probed != line.text.npos) {
    const size_t end = line.text.find_first_of(" \\", probed + kProbed.size());
    probed_gpu_ = line.text.substr(probed, end == line.text.npos ? end : end - probed);
  }
  if (const auto xid = parse_xid(line.text)) {
    RuleMatch& match = xids_[{xid->device, xid->code}];
    match.add(line.text);
    const Xid* const known = find_xid(xid->code);
    const Verdict verdict = known ? xid_verdict(*known, xid->message) : Verdict::degraded;
    // Xid 154 is a state: the last one counts.
    constexpr int kRecovery = 154;
    match.verdict = xid->code == kRecovery ? verdict : std::max(match.verdict, verdict);
  } else if (const LogRule* const rule = find_rule(line.text)) {
    add_rule(*rule, line);
  }
  if (line.text.find("NVRM: ") == line.text.npos) probed_gpu_.clear();
}

std::vector<Finding> LogAnalyzer::findings() const {
  std::vector<Finding> findings;
  std::set<std::string_view> met;
  for (const auto& [rule, match] : matches_) {
    met.insert(rule->name);
    findings.push_back(rule_finding(*rule, match));
  }
  for (const auto& [seen, match] : xids_) {
    met.insert("log.xid");
    findings.push_back(xid_finding({.device = seen.first, .code = seen.second}, match));
  }
  std::set<std::string_view> names{"log.xid"};
  for (const LogRule& rule : log_rules()) names.insert(rule.name);
  for (const std::string_view name : names) {
    if (met.contains(name)) continue;
    findings.push_back({.name = std::string(name),
                        .verdict = Verdict::pass,
                        .found = fmt::format("nothing in {} lines", lines_),
                        .value = 0,
                        .expected = "none",
                        .source = "the kernel's log"});
  }
  std::ranges::stable_sort(findings, {}, &Finding::name);
  return findings;
}

}  // namespace ff::validate
