// Chunks of operations on devices: together they cover inputs and outputs once, on every rank, and
// the ranks agree on their sizes.
#include "training/cuda/chunk_plan.h"

#include <gtest/gtest.h>

#include <array>

#include "training/collective/checks.h"

namespace ff::cuda {
namespace {

constexpr uint64_t kPlanChunkBytes = 4096;
constexpr std::array<uint64_t, 7> kPlanCounts = {0, 1, 63, 1024, 1025, 4096, 10'007};

// Marks the bytes that copies touch on the device.
void mark(std::vector<int>& touched, const std::vector<DeviceCopy>& copies) {
  for (const DeviceCopy& copy : copies) {
    ASSERT_LE(copy.device_at + copy.bytes, touched.size());
    EXPECT_LE(copy.staging_at + copy.bytes, kPlanChunkBytes);
    for (uint64_t i = 0; i < copy.bytes; i++) touched[copy.device_at + i]++;
  }
}

void check_plan(const collective::CollectiveRequest& request, uint32_t ranks) {
  for (uint32_t rank = 0; rank < ranks; rank++) {
    const collective::Operation operation{
        .kind = request.kind, .type = request.type, .root = request.root, .count = request.count};
    // As if they were not in place.
    collective::Operation apart = operation;
    apart.out = &apart;
    const ChunkPlan plan(apart, rank, ranks, kPlanChunkBytes);
    std::vector<int> in(input_bytes(request, rank, ranks));
    std::vector<int> out(output_bytes(request, rank, ranks));
    uint64_t elements = 0;
    for (uint64_t i = 0; i < plan.chunks(); i++) {
      const PlannedChunk chunk = plan.chunk(i);
      mark(in, chunk.from_device);
      mark(out, chunk.to_device);
      elements += chunk.count;
      EXPECT_TRUE(chunk.count > 0 || request.count == 0);
      EXPECT_EQ(chunk.count, ChunkPlan(operation, 0, ranks, kPlanChunkBytes).chunk(i).count);
    }
    EXPECT_EQ(elements, request.count);
    EXPECT_EQ(in, std::vector<int>(in.size(), 1)) << text_of(request) << ", rank " << rank;
    EXPECT_EQ(out, std::vector<int>(out.size(), 1)) << text_of(request) << ", rank " << rank;
  }
}

TEST(ChunkPlanTest, CoversEveryByteOnce) {
  for (const auto kind : collective::kKinds) {
    for (const auto type : {simd::DataType::u8, simd::DataType::bf16, simd::DataType::f64}) {
      for (const uint64_t count : kPlanCounts) {
        for (const uint32_t ranks : {1u, 2u, 3u, 7u}) {
          check_plan({.kind = kind, .type = type, .root = ranks - 1, .count = count}, ranks);
        }
      }
    }
  }
}

TEST(ChunkPlanTest, ManyRanksOfFewBytes) {
  const collective::Operation operation{
      .kind = collective::Collective::allgather, .type = simd::DataType::f64, .count = 5};
  const ChunkPlan plan(operation, 3, 512, kPlanChunkBytes);  // one element of each rank
  EXPECT_EQ(plan.chunks(), 5u);
  EXPECT_EQ(plan.chunk(4).to_device.size(), 512u);
}

TEST(ChunkPlanTest, TheRootOfABroadcastInPlaceCopiesNothingBack) {
  int memory = 0;
  const collective::Operation operation{.kind = collective::Collective::broadcast,
                                        .root = 1,
                                        .count = 1,
                                        .in = &memory,
                                        .out = &memory};
  EXPECT_TRUE(ChunkPlan(operation, 1, 2, kPlanChunkBytes).chunk(0).to_device.empty());
  EXPECT_TRUE(ChunkPlan(operation, 0, 2, kPlanChunkBytes).chunk(0).from_device.empty());
  EXPECT_EQ(ChunkPlan(operation, 0, 2, kPlanChunkBytes).chunk(0).to_device.size(), 1u);
}

}  // namespace
}  // namespace ff::cuda
