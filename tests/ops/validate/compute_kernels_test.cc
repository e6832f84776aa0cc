// Compute kernels with known results; goldens.py computed them independently.
#include "ops/validate/compute_kernels.h"

#include <gtest/gtest.h>

#include <set>

namespace ff::validate {
namespace {

TEST(ComputeKernels, GiveTheirKnownResultsAgainAndAgain) {
  KernelMemory memory;
  for (int round = 0; round < 3; round++) {
    for (const ComputeKernel& kernel : compute_kernels())
      EXPECT_EQ(kernel.run(memory), kernel.golden) << kernel.name;
  }
}

TEST(ComputeKernels, WorkOnMemoryOfTheirOwn) {
  KernelMemory one, other;
  for (const ComputeKernel& kernel : compute_kernels()) {
    EXPECT_EQ(kernel.run(one), kernel.run(other)) << kernel.name;
    EXPECT_GT(kernel.work, 0) << kernel.name;
  }
}

}  // namespace
}  // namespace ff::validate
