// Kernels whose results are known: goldens.py has made them by other means.
#include "ops/validate/kernels.h"

#include <gtest/gtest.h>

#include <set>

namespace ff::validate {
namespace {

TEST(Kernels, GiveTheirKnownResultsAgainAndAgain) {
  KernelMemory memory;
  for (int round = 0; round < 3; round++) {
    for (const Kernel& kernel : kernels())
      EXPECT_EQ(kernel.run(memory), kernel.golden) << kernel.name;
  }
}

TEST(Kernels, WorkOnMemoryOfTheirOwn) {
  KernelMemory one, other;
  for (const Kernel& kernel : kernels()) {
    EXPECT_EQ(kernel.run(one), kernel.run(other)) << kernel.name;
    EXPECT_GT(kernel.work, 0) << kernel.name;
  }
}

}  // namespace
}  // namespace ff::validate
