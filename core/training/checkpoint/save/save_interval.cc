// save_interval.cc: Daly's equations 20 (expected time) and 37 (optimum).
#include "training/checkpoint/save/save_interval.h"

#include <cmath>

namespace ff::checkpoint {

SaveInterval best_save_interval(const FailureModel& model) {
  const double ratio = model.save / (2 * model.mean_time);
  const double seconds = ratio < 1 ? std::sqrt(2 * model.save * model.mean_time) *
                                             (1 + std::sqrt(ratio) / 3 + ratio / 9) -
                                         model.save
                                   : model.mean_time;
  return save_interval(model, seconds);
}

SaveInterval save_interval(const FailureModel& model, double seconds) {
  const double mean = model.mean_time;
  // Expected time for an interval of training and its save, with all failures in it.
  const double expected =
      mean * std::exp(model.restart / mean) * std::expm1((seconds + model.save) / mean);
  return {.seconds = seconds,
          .save_share = model.save / expected,
          .lost_share = 1 - seconds / expected};
}

}  // namespace ff::checkpoint
