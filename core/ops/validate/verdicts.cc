// verdicts.cc: names of verdicts and levels, and counter deltas.
#include <algorithm>
#include <array>
#include <cmath>

#include "ops/validate/check.h"
#include "platform/base/units.h"

namespace ff::validate {

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
std::optional<Verdict> parse_verdict(std::string_view name) {
  return named<Verdict>(kVerdicts, name);
}
std::string_view run_level_name(RunLevel level) { return kLevels[static_cast<size_t>(level)]; }
std::optional<RunLevel> parse_run_level(std::string_view name) {
  return named<RunLevel>(kLevels, name);
}

int64_t Check::deadline_ns(RunLevel level) const {
  constexpr std::array<int64_t, 3> kTimes = {1, 15, 120};
  return cost == CheckCost::load ? quick_ns * kTimes[static_cast<size_t>(level)] : quick_ns;
}

double Check::seconds_at(RunLevel level) const {
  constexpr std::array kTimes = {1.0, 10.0, 300.0};
  return cost == CheckCost::load ? seconds * kTimes[static_cast<size_t>(level)] : seconds;
}

std::string value_text(double value, std::string_view unit) {
  if (unit == "B/s") return format_rate(value);
  if (unit == "B" && value >= 0) return format_size(static_cast<uint64_t>(value));
  constexpr std::array kPrefixes = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  for (; std::abs(value) >= 1000 && prefix + 1 < kPrefixes.size(); prefix++) value /= 1000;
  return fmt::format("{:.3g} {}{}", value, kPrefixes[prefix], unit == "1/s" ? "/s" : unit);
}

CounterDelta counter_delta(const CheckContext& context, const Finding& counter) {
  const double now = counter.value.value_or(0);
  const auto before = context.before(counter.name, counter.part);
  if (!before || *before > now) return {.more = now};
  return {.more = now - *before, .since_run = true};
}

}  // namespace ff::validate
