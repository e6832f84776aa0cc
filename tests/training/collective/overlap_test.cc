// Inputs and outputs that share memory: in place as NCCL defines it gives the right result, any
// other overlap is refused with both ranges.
#include <gtest/gtest.h>

#include "training/collective/checks.h"
#include "training/collective/multi_node.h"

namespace ff::collective {
namespace {

constexpr uint32_t kRoot = 1;
constexpr uint64_t kCount = 40'001;
constexpr auto kBlock = static_cast<int64_t>(kCount * sizeof(float));

// Where the output starts, in bytes from the start of the input.
struct OverlapCase {
  const char* name;
  Collective kind;
  int64_t (*offset)(int64_t rank);
  bool (*is_allowed)(int64_t rank);
};
bool always(int64_t) { return true; }
bool never(int64_t) { return false; }
bool first(int64_t rank) { return rank == 0; }

const std::vector<OverlapCase> kCases = {
    {"same", Collective::allreduce, [](int64_t) { return int64_t{0}; }, always},
    {"32 bytes later", Collective::allreduce, [](int64_t) { return int64_t{32}; }, never},
    {"4 bytes before", Collective::allreduce, [](int64_t) { return int64_t{-4}; }, never},
    {"last element", Collective::allreduce, [](int64_t) { return kBlock - 4; }, never},
    {"behind", Collective::allreduce, [](int64_t) { return kBlock; }, always},
    {"before", Collective::allreduce, [](int64_t) { return -kBlock; }, always},
    {"same", Collective::reduce, [](int64_t) { return int64_t{0}; }, always},
    {"8 bytes later", Collective::reduce, [](int64_t) { return int64_t{8}; }, never},
    {"same", Collective::broadcast, [](int64_t) { return int64_t{0}; }, always},
    {"8 bytes before", Collective::broadcast, [](int64_t) { return int64_t{-8}; }, never},
    {"own block", Collective::allgather, [](int64_t rank) { return -rank * kBlock; }, always},
    {"same", Collective::allgather, [](int64_t) { return int64_t{0}; }, first},
    {"off by one", Collective::allgather, [](int64_t rank) { return 4 - rank * kBlock; }, never},
    {"behind", Collective::allgather, [](int64_t) { return kBlock; }, always},
    {"own block", Collective::reduce_scatter, [](int64_t rank) { return rank * kBlock; }, always},
    {"same", Collective::reduce_scatter, [](int64_t) { return int64_t{0}; }, first},
    {"off by one", Collective::reduce_scatter, [](int64_t rank) { return rank * kBlock - 4; },
     never},
    {"before", Collective::reduce_scatter, [](int64_t) { return -kBlock; }, always}};

// One case on one rank, whose memory has room on both sides of the input.
void check_case(Communicator& ranks, const OverlapCase& one, ByteSpan memory) {
  const uint32_t rank = ranks.rank(), all = ranks.ranks();
  const CollectiveRequest request{.kind = one.kind, .root = kRoot, .count = kCount};
  const bool has_both = input_bytes(request, rank, all) > 0 && output_bytes(request, rank, all) > 0;
  const Bytes input = input_of(request, rank, all, 7, Values::small);
  std::byte* const in = memory.data() + all * kBlock;
  std::copy(input.begin(), input.end(), in);
  std::byte* const out = in + one.offset(rank);
  const Operation operation{
      .kind = one.kind, .type = request.type, .root = kRoot, .count = kCount, .in = in, .out = out};
  bool all_allowed = true;
  for (uint32_t other = 0; other < all; other++) all_allowed &= one.is_allowed(other);
  if (all_allowed) {
    const auto run = ranks.run(operation);
    ASSERT_TRUE(run.ok()) << run.error().message;
    const Bytes expected = expected_of(request, rank, all, 7, Values::small);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out)) << "rank " << rank;
  } else if (has_both && !one.is_allowed(rank)) {
    const auto started = ranks.start(operation);
    ASSERT_FALSE(started.ok());
    EXPECT_EQ(started.error().code, Errc::usage);
    for (const std::byte* const at : {in, out}) {
      const std::string text = fmt::format("{:#x} to ", reinterpret_cast<uintptr_t>(at));
      EXPECT_TRUE(contains(started.error().message, text)) << started.error().message;
    }
  }
  ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
}

void check_cases(Communicator& ranks) {
  const uint64_t bytes = 3 * ranks.ranks() * static_cast<uint64_t>(kBlock);
  const ByteSpan shared = ranks.allocate(bytes).value();
  Bytes own(bytes);
  for (const OverlapCase& one : kCases) {
    SCOPED_TRACE(fmt::format("{}, output: {}", collective_name(one.kind), one.name));
    check_case(ranks, one, shared);
    check_case(ranks, one, own);
  }
}

TEST(OverlapTest, OnOneHost) { with_ranks(3, check_cases); }

TEST(OverlapTest, BetweenHosts) { with_nodes({.ranks = {2, 1}}, check_cases); }

// Nothing overlaps where a rank has no input or no output, or no element.
TEST(OverlapTest, OnlyMemoryThatIsUsedCounts) {
  const std::array<float, 8> memory = {};
  const auto allowed = [&](const CollectiveRequest& request, uint32_t rank) {
    return check_overlap(request, rank, 3, memory.data(), memory.data() + 1).ok();
  };
  EXPECT_TRUE(allowed({.kind = Collective::allreduce, .count = 0}, 0));
  EXPECT_TRUE(allowed({.kind = Collective::allreduce, .count = 1}, 0));
  EXPECT_FALSE(allowed({.kind = Collective::allreduce, .count = 2}, 0));
  EXPECT_TRUE(allowed({.kind = Collective::reduce, .root = 1, .count = 2}, 0));
  EXPECT_FALSE(allowed({.kind = Collective::reduce, .root = 1, .count = 2}, 1));
  EXPECT_TRUE(allowed({.kind = Collective::broadcast, .root = 1, .count = 2}, 0));
  EXPECT_TRUE(allowed({.kind = Collective::barrier}, 0));
}

}  // namespace
}  // namespace ff::collective
