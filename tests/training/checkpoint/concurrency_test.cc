// Concurrent savers, loaders and pruners on one store, with real threads and files: every
// acknowledged save verifies in the end. And a full disk.
#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "training/checkpoint/fixture.h"
#include "training/checkpoint/load/verify.h"
#include "training/checkpoint/options.h"
#include "training/checkpoint/retention/forget.h"
#include "training/checkpoint/retention/prune.h"

namespace ff::checkpoint {
namespace {

constexpr int kSavers = 3;
constexpr uint64_t kStepsEach = 12;

// One actor with seams of its own; stores are shared by their path only, as between processes.
struct Actor {
  explicit Actor(uint64_t seed) : rng(seed) {}
  Context context() { return {disk, clock, rng, stop, progress, 1}; }
  io::SystemDisk disk;
  SystemClock clock;
  SeededRng rng;
  StopToken stop{clock};
  Progress progress;
};

class ConcurrencyTest : public CheckpointTest {};

TEST_F(ConcurrencyTest, SaversForgettersPrunersAndLoaders) {
  const uint64_t seed = system_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::atomic<int> savers{kSavers};
  std::vector<std::jthread> threads;
  std::mutex mutex;
  std::vector<std::string> problems;
  const auto problem = [&](const Error& error) {
    const std::lock_guard lock(mutex);
    problems.push_back(error.message);
  };
  // Savers share most of their content, so that they reuse each other's chunks.
  for (int s = 0; s < kSavers; s++) {
    threads.emplace_back([&, s] {
      Actor actor(seed + static_cast<uint64_t>(s));
      const std::string dir = path("in" + std::to_string(s));
      for (uint64_t step = 1; step <= kStepsEach; step++) {
        for (uint64_t f = 0; f < 6; f++) {
          write_whole(fs::path(dir) / ("f" + std::to_string(f)), noise((step + f) % 9, 30'000));
        }
        SaveOptions options;
        options.run = "run" + std::to_string(s);
        options.step = step;
        auto ctx = actor.context();
        const auto saved = ff::checkpoint::save(ctx, store(), {{dir}, {}}, options);
        if (!saved) problem(saved.error());
      }
      savers--;
    });
  }
  threads.emplace_back([&] {  // forgets and prunes without grace period, as fast as it can
    Actor actor(seed + 100);
    while (savers > 0) {
      auto ctx = actor.context();
      ForgetOptions forgetting;
      forgetting.keep_last = 2;
      forgetting.apply = true;
      (void)forget(ctx, store(), forgetting);
      auto pruned = prune(ctx, store(), without_grace());
      if (!pruned && pruned.error().code != Errc::not_found) problem(pruned.error());
    }
  });
  threads.emplace_back([&] {  // loads the newest step, which may be forgotten meanwhile
    Actor actor(seed + 200);
    for (int i = 0; savers > 0; i++) {
      auto ctx = actor.context();
      const std::string dest = path("out" + std::to_string(i));
      const auto loaded = ff::checkpoint::load(ctx, store(), load_to("run0", dest));
      EXPECT_EQ(loaded.ok(), fs::exists(dest));
      fs::remove_all(dest);
    }
  });
  threads.clear();
  for (const auto& text : problems) ADD_FAILURE() << text;
  auto ctx = context();
  FF_ASSERT_OK(prune(ctx, store(), without_grace()));
  const auto report = verify(ctx, store(), everything());
  FF_ASSERT_OK(report);
  EXPECT_TRUE(report->damage.empty()) << report->damage.front().where;
  EXPECT_GE(report->intact.size(), size_t{kSavers});
  EXPECT_TRUE(fs::is_empty(store() + "/trash"));
}

TEST_F(ConcurrencyTest, TwoSaversOfOneStep) {
  for (int round = 0; round < 10; round++) {
    SCOPED_TRACE(round);
    std::vector<Result<SaveReport>> results(2, Error{});
    {
      std::vector<std::jthread> threads;
      for (size_t s = 0; s < 2; s++) {
        const std::string dir = path(std::to_string(s));
        write_whole(fs::path(dir) / "f", noise(static_cast<uint64_t>(round) * 2 + s, 20'000));
        threads.emplace_back([&, s, dir] {
          Actor actor(static_cast<uint64_t>(round) * 10 + s);
          SaveOptions options;
          options.step = static_cast<uint64_t>(round);
          auto ctx = actor.context();
          results[s] = ff::checkpoint::save(ctx, store(), {{dir + "/f"}, {}}, options);
        });
      }
    }
    ASSERT_NE(results[0].ok(), results[1].ok());
    const size_t winner = results[0].ok() ? 0 : 1;
    EXPECT_EQ(results[1 - winner].error().code, Errc::refused);
    fs::remove_all(path("out"));
    FF_ASSERT_OK(load(load_to("default", path("out"))));
    EXPECT_EQ(read_whole(path("out/f")), noise(static_cast<uint64_t>(round) * 2 + winner, 20'000));
  }
}

// Two attempts of two ranks at once: exactly one is the checkpoint, and the other has a rank that
// was refused; no other error.
TEST_F(ConcurrencyTest, TwoAttemptsOfOneStep) {
  constexpr size_t kRanksEach = 2;
  for (uint64_t round = 0; round < 20; round++) {
    SCOPED_TRACE(round);
    const bool replace = round % 4 == 3;  // of a step that exists
    std::vector<Result<SaveReport>> results(2 * kRanksEach, Error{});
    const uint64_t step = replace ? round - 1 : round;
    {
      std::vector<std::jthread> threads;
      for (size_t s = 0; s < 2 * kRanksEach; s++) {
        const std::string dir = path(fmt::format("{}", s));
        write_whole(fs::path(dir) / "f", noise(round * 10 + s, 20'000));
        threads.emplace_back([&, s, dir] {
          Actor actor(round * 10 + s);
          SaveOptions options;
          options.step = step;
          options.rank = static_cast<uint32_t>(s % kRanksEach);
          options.world = kRanksEach;
          options.attempt = fmt::format("{}-{}", round, s / kRanksEach);
          options.replace = replace;
          auto ctx = actor.context();
          results[s] = ff::checkpoint::save(ctx, store(), {{dir + "/f"}, {}}, options);
        });
      }
    }
    std::array<size_t, 2> committed{};
    std::array<size_t, 2> refused{};
    for (size_t s = 0; s < results.size(); s++) {
      const auto& result = results[s];
      if (!result) {
        EXPECT_EQ(result.error().code, Errc::refused) << result.error().message;
        refused[s / kRanksEach]++;
      } else if (result->outcome != SaveOutcome::waiting) {
        committed[s / kRanksEach]++;
      }
    }
    if (replace) {
      EXPECT_GT(committed[0], 0u);
      EXPECT_GT(committed[1], 0u);
      continue;
    }
    const size_t won = committed[0] > 0 ? 0 : 1;
    EXPECT_GT(committed[won], 0u);
    EXPECT_EQ(committed[1 - won], 0u);
    EXPECT_GT(refused[1 - won], 0u);
  }
  auto ctx = context();
  const auto report = verify(ctx, store(), everything());
  FF_ASSERT_OK(report);
  EXPECT_TRUE(report->damage.empty()) << report->damage.front().where;
}

class FullDiskTest : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    fs::create_directories(path("small"));
    mounted_ = ::mount("tmpfs", path("small").c_str(), "tmpfs", 0, "size=24m") == 0;
  }
  void TearDown() override {
    if (mounted_) ::umount2(path("small").c_str(), MNT_DETACH);
    CheckpointTest::TearDown();
  }
  uint64_t free_bytes() { return disk_.space(path("small"))->free; }
  bool mounted_ = false;
};

TEST_F(FullDiskTest, SaveAndLoadReleaseTheSpace) {
  if (!mounted_) GTEST_SKIP() << "mounting a small tmpfs needs root";
  const std::string small_store = path("small/store");
  auto ctx = context();
  write_whole(path("first"), noise(1, 6'000'000));
  FF_ASSERT_OK(ff::checkpoint::save(ctx, small_store, {{path("first")}, {}}, {}));
  write_whole(path("huge"), noise(2, 40'000'000));
  const auto full = ff::checkpoint::save(ctx, small_store, {{path("huge")}, {}}, {});
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, Errc::disk_full) << full.error().message;
  EXPECT_NE(full.error().message.find("small"), std::string::npos) << full.error().message;
  // Finished chunks stay for the next attempt, and a prune deletes them.
  FF_ASSERT_OK(prune(ctx, small_store, without_grace()));
  EXPECT_GT(free_bytes(), 16'000'000U);
  const auto report = verify(ctx, small_store, everything());
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->intact.size(), 1U);

  FF_ASSERT_OK(ff::checkpoint::save(ctx, store(), {{path("huge")}, {}}, {}));
  const uint64_t before = free_bytes();
  const auto loaded = load(load_to("default", path("small/out")));
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Errc::disk_full) << loaded.error().message;
  EXPECT_FALSE(fs::exists(path("small/out")));
  EXPECT_EQ(free_bytes(), before);
}

}  // namespace
}  // namespace ff::checkpoint
