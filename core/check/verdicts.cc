// verdicts.cc: names of verdicts and levels, counters since the last run.
#include <algorithm>
#include <array>

#include "check/check.h"

namespace ff::check {

namespace {

constexpr std::array<std::string_view, 5> kVerdicts = {"skipped", "pass", "could-not-run",
                                                       "degraded", "fail"};
constexpr std::array<std::string_view, 3> kLevels = {"quick", "weekly", "burn-in"};

template <class Named, size_t N>
std::optional<Named> named(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Named>(found - names.begin());
}

}  // namespace

std::string_view verdict_name(Verdict verdict) { return kVerdicts[static_cast<size_t>(verdict)]; }
std::optional<Verdict> verdict_of(std::string_view name) { return named<Verdict>(kVerdicts, name); }
std::string_view level_name(Level level) { return kLevels[static_cast<size_t>(level)]; }
std::optional<Level> level_of(std::string_view name) { return named<Level>(kLevels, name); }

Growth growth_of(const Context& context, const Finding& counter) {
  const double now = counter.value.value_or(0);
  const auto before = context.before(counter.name, counter.part);
  if (!before || *before > now) return {.more = now};
  return {.more = now - *before, .since_run = true};
}

}  // namespace ff::check
