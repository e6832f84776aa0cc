// name_history.cc: depth-first search for an order of the calls that explains all answers.
#include "lab/scenario/name_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "platform/base/clock.h"

namespace ff::scenario {

// The state of a search: how many calls of each program are in the order, and what the name refers
// to then.
struct NameHistory::Search {
  const NameHistory& of;
  std::array<size_t, kProgramsMax> next = {};
  uint64_t value = kAbsent;
  std::vector<bool> used;
  std::set<std::string> seen = {};
  std::array<size_t, kProgramsMax> furthest = {};

  const Call* head(size_t program) const {
    const auto& calls = of.calls_[program];
    return next[program] < calls.size() ? &calls[next[program]] : nullptr;
  }
  static size_t sum(const std::array<size_t, kProgramsMax>& counts) {
    size_t all = 0;
    for (const size_t count : counts) all += count;
    return all;
  }
  bool fits(const Call& call) const {
    if (call.before == kAnything || value == kAnything) return true;
    return call.before == kPresent ? value != kAbsent : value == call.before;
  }
  std::string key() const {
    std::string key;
    for (const size_t count : next) key += fmt::format("{} ", count);
    key += fmt::format("{} ", value);
    for (const bool one : used) key += one ? '1' : '0';
    return key;
  }
  // No call that is not in the order yet may have ended before one that comes next begins.
  int64_t first_end() const {
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < kProgramsMax; i++) {
      if (const Call* const call = head(i)) first = std::min(first, call->end_ns);
    }
    return first;
  }
  int64_t last_begin() const {
    int64_t last = INT64_MIN;
    for (size_t i = 0; i < kProgramsMax; i++) {
      if (next[i] > 0) last = std::max(last, of.calls_[i][next[i] - 1].begin_ns);
    }
    return last;
  }
  bool run();
  bool try_uncertainty(int64_t first_ns);
};

bool NameHistory::Search::run() {
  if (!seen.insert(key()).second) return false;
  if (sum(next) > sum(furthest)) furthest = next;
  const int64_t first_ns = first_end();
  if (first_ns == INT64_MAX) return true;
  for (size_t i = 0; i < kProgramsMax; i++) {
    const Call* const call = head(i);
    if (call == nullptr || call->begin_ns > first_ns || !fits(*call)) continue;
    const uint64_t before = value;
    if (call->before != kAnything && call->before != kPresent) value = call->before;
    if (call->after != kSame) value = call->after;
    next[i]++;
    if (run()) return true;
    next[i]--;
    value = before;
  }
  return value != kAnything && try_uncertainty(first_ns);
}

// All have the same effect: the one that ends first is as good as any.
bool NameHistory::Search::try_uncertainty(int64_t first_ns) {
  const int64_t last_ns = last_begin();
  size_t best = used.size();
  for (size_t i = 0; i < used.size(); i++) {
    const Uncertainty& one = of.uncertain_[i];
    if (used[i] || one.begin_ns > first_ns || one.end_ns < last_ns) continue;
    if (best == used.size() || one.end_ns < of.uncertain_[best].end_ns) best = i;
  }
  if (best == used.size()) return false;
  const uint64_t before = value;
  used[best] = true;
  value = kAnything;
  const bool found = run();
  used[best] = false;
  value = before;
  return found;
}

size_t NameHistory::size() const {
  size_t all = 0;
  for (const auto& calls : calls_) all += calls.size();
  return all;
}

std::optional<std::string> NameHistory::contradiction() const {
  Search search{.of = *this, .used = std::vector<bool>(uncertain_.size())};
  if (search.run()) return std::nullopt;
  std::string text;
  for (size_t i = 0; i < kProgramsMax; i++) {
    const size_t at = search.furthest[i];
    for (size_t j = at < 2 ? 0 : at - 2; j < std::min(at + 2, calls_[i].size()); j++) {
      const Call& call = calls_[i][j];
      text += fmt::format("\n  program {} {}: {:.6f} to {:.6f} s, {} -> {}{}", i, call.what,
                          static_cast<double>(call.begin_ns) / kSecond,
                          static_cast<double>(call.end_ns) / kSecond, call.before, call.after,
                          j == at ? "  <" : "");
    }
  }
  return text;
}

}  // namespace ff::scenario
