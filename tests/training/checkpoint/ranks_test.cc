// One checkpoint of several ranks exists when all shards of one attempt exist, and only then.
#include <thread>

#include "training/checkpoint/fixture.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/options.h"

namespace ff::checkpoint {
namespace {

class RanksTest : public CheckpointTest {
 protected:
  std::string shard(uint32_t rank) { return "rank" + std::to_string(rank) + ".safetensors"; }
  std::string content(uint32_t rank, uint64_t seed = 0) {
    return make_safetensors({{"shared", "U8", {1000}, noise(50, 1000)},
                             {"w", "F32", {2, 4}, noise(seed + rank + 1, 32)},
                             {"big", "U8", {300, 5000}, noise(rank + 20, 1'500'000)}});
  }
  SaveOptions options(uint32_t rank, uint32_t world, const std::string& attempt = "a") {
    SaveOptions options;
    options.step = 7;
    options.rank = rank;
    options.world = world;
    options.attempt = attempt;
    options.splits = {{"w", 1}, {"big", 0}};
    return options;
  }
  Result<SaveReport> save_rank(uint32_t rank, uint32_t world, const std::string& attempt = "a",
                               uint64_t seed = 0) {
    write_whole(path(shard(rank)), content(rank, seed));
    return save({path(shard(rank))}, options(rank, world, attempt));
  }
  StepInfo info() {
    return step_info(disk_, Store::open(disk_, store()).value(), {"default", 7}).value();
  }
};

TEST_F(RanksTest, TheLastOneCommits) {
  EXPECT_EQ(save_rank(2, 3)->outcome, SaveOutcome::waiting);
  EXPECT_EQ(save_rank(0, 3)->outcome, SaveOutcome::waiting);
  EXPECT_FALSE(info().committed);
  ASSERT_EQ(info().attempts.size(), 1U);
  EXPECT_EQ(info().attempts[0].missing, std::vector<uint32_t>{1});
  const auto unfinished = load(load_to("default@7", path("out")));
  ASSERT_FALSE(unfinished.ok());
  EXPECT_NE(unfinished.error().message.find("incomplete"), std::string::npos);
  EXPECT_EQ(save_rank(1, 3)->outcome, SaveOutcome::committed);
  EXPECT_TRUE(info().committed);
  EXPECT_EQ(info().summary->header.world, 3U);
  EXPECT_FALSE(fs::exists(store() + "/runs/default/7/shards"));
  FF_ASSERT_OK(load(load_to("default@7", path("out"))));
  for (uint32_t rank = 0; rank < 3; rank++) {
    EXPECT_EQ(read_whole(path("out/" + shard(rank))), content(rank));
  }
}

TEST_F(RanksTest, AttemptsDoNotMix) {
  EXPECT_EQ(save_rank(0, 2, "first")->outcome, SaveOutcome::waiting);
  EXPECT_EQ(save_rank(1, 2, "second")->outcome, SaveOutcome::waiting);
  EXPECT_FALSE(info().committed);
  EXPECT_EQ(info().attempts.size(), 2U);
  EXPECT_EQ(save_rank(0, 2, "second")->outcome, SaveOutcome::committed);
}

TEST_F(RanksTest, ALateRankOfACommittedAttempt) {
  FF_ASSERT_OK(save_rank(0, 2));
  FF_ASSERT_OK(save_rank(1, 2));
  EXPECT_EQ(save_rank(0, 2)->outcome, SaveOutcome::committed);
  const auto differs = save_rank(0, 2, "a", 77);
  ASSERT_FALSE(differs.ok());
  EXPECT_EQ(differs.error().code, Errc::refused);
}

TEST_F(RanksTest, AllAtOnce) {
  constexpr uint32_t kWorld = 6;
  for (uint32_t rank = 0; rank < kWorld; rank++) write_whole(path(shard(rank)), content(rank));
  for (int round = 0; round < 5; round++) {
    SCOPED_TRACE(round);
    fs::remove_all(store() + "/runs");
    fs::create_directories(path("store"));
    std::vector<Result<SaveReport>> results(kWorld, Error{});
    {
      std::vector<std::jthread> threads;
      for (uint32_t rank = 0; rank < kWorld; rank++) {
        threads.emplace_back([&, rank] {
          io::SystemDisk disk;
          SeededRng rng(1000 * static_cast<uint64_t>(round) + rank);
          Progress progress;
          Context ctx{disk, clock_, rng, stop_, progress, 1};
          results[rank] =
              ff::checkpoint::save(ctx, store(), {{path(shard(rank))}, {}}, options(rank, kWorld));
        });
      }
    }
    for (const auto& result : results) FF_ASSERT_OK(result);
    EXPECT_TRUE(info().committed);
    fs::remove_all(path("out"));
    FF_ASSERT_OK(load(load_to("default@7", path("out"))));
    for (uint32_t rank = 0; rank < kWorld; rank++) {
      EXPECT_EQ(read_whole(path("out/" + shard(rank))), content(rank));
    }
  }
}

TEST_F(RanksTest, SameNamesGetRankFolders) {
  for (uint32_t rank = 0; rank < 2; rank++) {
    write_whole(path("model.safetensors"), content(rank));
    FF_ASSERT_OK(save({path("model.safetensors")}, options(rank, 2)));
  }
  FF_ASSERT_OK(load(load_to("default@7", path("all"))));
  EXPECT_EQ(read_whole(path("all/rank-00001/model.safetensors")), content(1));
  LoadOptions one = load_to("default@7", path("one"));
  one.rank = 1;
  FF_ASSERT_OK(load(one));
  EXPECT_EQ(read_whole(path("one/model.safetensors")), content(1));
}

TEST_F(RanksTest, BadOptions) {
  write_whole(path("f"), "1");
  const auto expect_usage = [&](SaveOptions bad, std::string_view words) {
    const auto result = save({path("f")}, bad);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Errc::usage);
    EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
  };
  expect_usage(options(2, 2), "rank 2");
  auto no_attempt = options(0, 2);
  no_attempt.attempt.clear();
  expect_usage(no_attempt, "no attempt id");
  auto no_step = options(0, 2);
  no_step.step.reset();
  expect_usage(no_step, "--step");
}

TEST_F(RanksTest, SlicesThatDoNotFitAreRefused) {
  FF_ASSERT_OK(save_rank(0, 2));
  write_whole(path(shard(1)), make_safetensors({{"w", "F32", {2, 5}, noise(9, 40)},
                                                {"big", "U8", {300, 5000}, noise(9, 1'500'000)}}));
  const auto result = save({path(shard(1))}, options(1, 2));
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("'w'"), std::string::npos) << result.error().message;
  EXPECT_FALSE(info().committed);
}

}  // namespace
}  // namespace ff::checkpoint
