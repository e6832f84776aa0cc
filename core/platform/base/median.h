// The median of measured values, robust against outliers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ff {

// For an even count, the mean of the two middle values; for no values, 0.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace ff
