// Times and verifies collective operations like nccl-tests, with the same meaning of sizes and
// bandwidths (its doc/PERFORMANCE.md). A result counts only if every element is correct.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "training/collective/communicator.h"

namespace ff::bench {

struct CollectiveLoad {
  collective::Collective kind = collective::Collective::allreduce;
  // Instead of `kind`: each rank sends to the next one, and receives from the one before.
  bool is_sendrecv = false;
  simd::DataType type = simd::DataType::f32;
  simd::ReduceOp op = simd::ReduceOp::sum;
  uint32_t root = 0;
  uint64_t bytes = 0;  // larger of a rank's input and output; rounded down to whole elements
  bool in_place = false;
  unsigned warm_ups = 1;
  unsigned iterations = 20;
  bool check = true;
  // The data type on the network; an element is wrong if it differs by more than its rounding.
  simd::WireType wire = simd::WireType::none;
};

struct CollectiveResult {
  uint64_t bytes = 0;                       // after rounding
  uint64_t count = 0;                       // elements per rank: the smaller of input and output
  double seconds = 0;                       // per iteration, mean of all ranks
  double p50_seconds = 0, p99_seconds = 0;  // per iteration, of this rank
  double algorithm_rate = 0;                // algbw, bytes per second
  double bus_rate = 0;                      // busbw, bytes per second
  double memory_rate = 0;                   // bytes read and written by all ranks per second
  uint64_t wrong = 0;                       // wrong elements of all ranks
  // Checked runs: maximum and RMS error compared with the sum in float, relative to the largest
  // magnitude of the sum. Zero if the network type does not round.
  double worst_error = 0, mean_error = 0;
  std::string digest = {};  // XXH128 of rank 0's result, checked runs only
};

// Whether the operation may write its output over its input.
bool works_in_place(const CollectiveLoad& load);
// Bytes that all ranks read and write, at least.
uint64_t traffic_of(const CollectiveLoad& load, uint64_t count, uint32_t ranks);

// One rank's buffers, for sizes up to a maximum. All ranks make the same calls.
class CollectiveBench {
 public:
  static Result<CollectiveBench> make(collective::Communicator& ranks, Clock& clock,
                                      uint64_t bytes_max);
  Result<CollectiveResult> run(const CollectiveLoad& load);

 private:
  CollectiveBench(collective::Communicator& ranks, Clock& clock) : ranks_(ranks), clock_(clock) {}
  struct Checked {
    uint64_t wrong = 0;
    double worst = 0;    // maximum error
    double squares = 0;  // sum of squared errors
    double largest = 0;  // maximum magnitude of the correct result
    uint64_t elements = 0;
  };
  Result<void> execute(const collective::Operation& operation, const CollectiveLoad& load);
  uint64_t result_bytes(const CollectiveLoad& load, const CollectiveResult& figures) const;
  struct Source {
    uint32_t rank = 0;   // whose input it is
    uint64_t first = 0;  // element there
    uint64_t count = 0;  // that follow one another there
  };
  std::optional<Source> source_of(const collective::Operation& operation,
                                  const CollectiveLoad& load, uint64_t at) const;
  Result<void> verify(const collective::Operation& operation, const CollectiveLoad& load,
                      CollectiveResult& figures);
  bool has_rounding(const CollectiveLoad& load) const;
  Checked check(const collective::Operation& operation, const CollectiveLoad& load,
                simd::WireType wire) const;
  static void compare(simd::DataType type, simd::WireType wire, uint32_t ranks, uint64_t count,
                      std::array<const void*, 2> arrays, Checked& checked);
  Result<double> reduce_over_ranks(double value, simd::ReduceOp op);

  collective::Communicator& ranks_;
  Clock& clock_;
  ByteSpan in_, out_;
};

}  // namespace ff::bench
