// How often a training should save: the optimum between the time that saves take and the work that
// failures undo. J. T. Daly, "A higher order estimate of the optimum checkpoint interval for
// restart dumps", Future Generation Computer Systems 22 (2006); its first term is that of Young
// (1974).
#pragma once

#include <cstdint>

namespace ff::checkpoint {

// All in seconds, greater than 0 (`restart`: 0 or more).
struct FailureModel {
  double save = 0;       // how long a save stops the training
  double mean_time = 0;  // between two failures of the whole job: that of a node / nodes
  double restart = 0;    // from a failure until the training goes on from its last checkpoint
};

struct SaveInterval {
  double seconds = 0;     // of training between two saves
  double save_share = 0;  // share of all time that goes to saves
  double lost_share = 0;  // to saves, restarts and work that is done again; failures are Poisson
};

SaveInterval best_save_interval(const FailureModel& model);
// The same for an interval of the caller's choice.
SaveInterval save_interval(const FailureModel& model, double seconds);

}  // namespace ff::checkpoint
