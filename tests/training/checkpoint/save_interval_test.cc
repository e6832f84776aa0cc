// The interval of saves: values of the paper's equations, and that it is the optimum, also against
// simulated failures.
#include "training/checkpoint/save/save_interval.h"

#include <gtest/gtest.h>

#include <cmath>

#include "platform/base/rng.h"

namespace ff::checkpoint {
namespace {

TEST(SaveIntervalTest, KnownValues) {
  // By hand: sqrt(2 * 300 * 86400) = 7200; ratio 300 / 172800.
  const SaveInterval daily = best_save_interval({.save = 300, .mean_time = 86400, .restart = 600});
  EXPECT_NEAR(daily.seconds, 7200 * (1 + std::sqrt(1.0 / 576) / 3 + 1.0 / 576 / 9) - 300, 1e-6);
  EXPECT_NEAR(daily.seconds, 7001.4, 0.1);
  EXPECT_NEAR(daily.lost_share, 0.0874, 0.0005);
  // A save that takes longer than two mean times.
  EXPECT_EQ(best_save_interval({.save = 300, .mean_time = 100}).seconds, 100);
}

TEST(SaveIntervalTest, OtherIntervalsLoseMore) {
  for (const double save : {0.1, 5.0, 60.0, 900.0}) {
    for (const double mean : {3600.0, 86400.0, 1e7}) {
      const FailureModel model{.save = save, .mean_time = mean, .restart = 120};
      const SaveInterval best = best_save_interval(model);
      EXPECT_GT(best.lost_share, best.save_share);
      for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
        EXPECT_GT(save_interval(model, factor * best.seconds).lost_share, best.lost_share)
            << save << " " << mean << " " << factor;
      }
    }
  }
}

// A training with failures at random times loses the share that is foretold.
TEST(SaveIntervalTest, AgreesWithSimulatedFailures) {
  const FailureModel model{.save = 60, .mean_time = 4000, .restart = 100};
  const SaveInterval plan = best_save_interval(model);
  SeededRng rng(1);
  const auto until_failure = [&] { return -model.mean_time * std::log(1 - rng.uniform01()); };
  const int intervals = 20'000;
  double time = 0;
  double left = until_failure();
  for (int i = 0; i < intervals; i++) {
    double wanted = plan.seconds + model.save;
    while (left < wanted) {  // again from the start of the interval, after a restart
      time += left;
      left = until_failure();
      wanted = model.restart + plan.seconds + model.save;
    }
    time += wanted;
    left -= wanted;
  }
  EXPECT_NEAR(1 - intervals * plan.seconds / time, plan.lost_share, 0.01);
}

}  // namespace
}  // namespace ff::checkpoint
