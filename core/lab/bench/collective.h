// Collective operations, timed and checked as nccl-tests do: sizes and counts mean what they mean
// there (its doc/PERFORMANCE.md), and a result counts only if every element is right.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "training/collective/communicator.h"

namespace ff::bench {

struct CollectiveLoad {
  collective::Collective kind = collective::Collective::allreduce;
  simd::DataType type = simd::DataType::f32;
  simd::ReduceOp op = simd::ReduceOp::sum;
  uint32_t root = 0;
  uint64_t bytes = 0;  // of the larger of a rank's input and output; rounded down to whole elements
  bool in_place = false;
  unsigned warm_ups = 1;
  unsigned iterations = 20;
  bool check = true;
  // What sums of floats were rounded to on their way; then an element is wrong when it is further
  // off than that explains.
  simd::Wire wire = simd::Wire::none;
};

struct CollectiveFigures {
  uint64_t bytes = 0;  // as rounded
  uint64_t count = 0;  // elements that a rank gives (or gets, where that is less)
  double seconds = 0;  // of an iteration, mean of all ranks
  double p50_seconds = 0, p99_seconds = 0;  // of this rank's iterations
  double algorithm_rate = 0;                // bytes a second
  double bus_rate = 0;                      // what a ring of wires would have moved
  double memory_rate = 0;                   // bytes read and written by all ranks, a second
  uint64_t wrong = 0;                       // elements, of all ranks
  // Of a checked run, against the sum in float: the largest error, and the root of the mean square,
  // both by the largest magnitude of the sum. Zero where nothing is rounded on the way.
  double worst_error = 0, mean_error = 0;
  std::string digest = {};  // of rank 0's result of a checked run (XXH128)
};

// One rank's buffers, for sizes up to a maximum. All ranks do the same.
class CollectiveBench {
 public:
  static Result<CollectiveBench> make(collective::Communicator& ranks, Clock& clock,
                                      uint64_t bytes_max);
  Result<CollectiveFigures> run(const CollectiveLoad& load);

 private:
  CollectiveBench(collective::Communicator& ranks, Clock& clock) : ranks_(ranks), clock_(clock) {}
  struct Checked {
    uint64_t wrong = 0;
    double worst = 0;    // error
    double squares = 0;  // sum of errors' squares
    double largest = 0;  // magnitude of what is right
    uint64_t elements = 0;
  };
  Result<void> look(const collective::Operation& operation, const CollectiveLoad& load,
                    CollectiveFigures& figures);
  bool is_fine(const CollectiveLoad& load) const;
  Checked check(const collective::Operation& operation, simd::Wire wire) const;
  static void compare(simd::DataType type, simd::Wire wire, uint32_t ranks, uint64_t count,
                      std::array<const void*, 2> arrays, Checked& checked);
  Result<double> over_ranks(double value, simd::ReduceOp op);

  collective::Communicator& ranks_;
  Clock& clock_;
  ByteSpan in_, out_;
};

}  // namespace ff::bench
