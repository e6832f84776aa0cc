// One rank of an allreduce between the cores of this host, for the check collective.reduce. The
// collective operations are part of core/training, which checks do not include: cmd/validate
// supplies them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/stop_token.h"

namespace ff::validate {

class AllreduceRank {
 public:
  virtual ~AllreduceRank() = default;
  // Memory shared by all ranks of the host; valid as long as this object.
  virtual Result<ByteSpan> allocate(size_t bytes) = 0;
  virtual Result<void> barrier() = 0;
  // Writes the sum over all ranks of `count` floats at `in` to `out` of each rank.
  virtual Result<void> allreduce(const float* in, float* out, size_t count) = 0;
};

// Creates the ranks: each of `ranks` threads of this process joins `job` with its rank, from 0.
struct AllreduceRanks {
  uint32_t max = 0;  // maximum of `ranks`
  std::function<Result<std::unique_ptr<AllreduceRank>>(
      uint32_t rank, uint32_t ranks, const std::string& job, const StopToken& stop)>
      join = {};
};

}  // namespace ff::validate
