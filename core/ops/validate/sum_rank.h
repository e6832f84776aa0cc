// One rank of an allreduce among the cores of this host, for the check collective.reduce. The
// operations are part of core/training, which checks do not include: cmd/validate supplies them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/stop.h"

namespace ff::validate {

class SumRank {
 public:
  virtual ~SumRank() = default;
  // Memory that all ranks of the host share; as long as this object lives.
  virtual Result<ByteSpan> allocate(size_t bytes) = 0;
  virtual Result<void> barrier() = 0;
  // The sum over all ranks of `count` floats at `in`, to each rank's `out`.
  virtual Result<void> sum(const float* in, float* out, size_t count) = 0;
};

// `ranks` threads of this process join `job`, one of each number from 0 on.
struct SumRanks {
  uint32_t max = 0;  // of `ranks`
  std::function<Result<std::unique_ptr<SumRank>>(uint32_t rank, uint32_t ranks,
                                                 const std::string& job, const Stop& stop)>
      join = {};
};

}  // namespace ff::validate
