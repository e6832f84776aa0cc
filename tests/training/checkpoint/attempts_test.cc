// Two attempts save one step at the same time: the first that is complete is the checkpoint, the
// other is told so, and `latest` is there at every moment.
#include <set>
#include <thread>

#include "platform/base/point_step.h"
#include "training/checkpoint/options.h"
#include "training/checkpoint/sim_store.h"

namespace ff::checkpoint {
namespace {

constexpr uint32_t kRanks = 2;

// Its files have names of their own, as the inputs of all savers are in one folder.
Content content_of(const std::string& attempt, uint32_t rank) {
  return {{fmt::format("{}{}", attempt, rank), noise(attempt == "a" ? rank : 100 + rank, 4000)}};
}

SaveOptions options_of(const std::string& attempt, uint32_t rank, bool replace = false) {
  SaveOptions options;
  options.rank = rank;
  options.world = kRanks;
  options.attempt = attempt;
  options.replace = replace;
  return options;
}

// The attempt that committed step 7.
std::string committed_by(SimStore& sim) {
  const auto summary = read_summary(sim.disk, sim.open().index_path({"default", 7}));
  return summary ? summary->header.attempt : std::string("none");
}

class AttemptsTest : public testing::Test {
 protected:
  // `inner` once at each point of `outer`; `check` looks at what came of it.
  using Action = std::function<void(SimStore&, io::Disk&)>;
  void interleave(const std::function<void(SimStore&)>& setup, const Action& outer,
                  const Action& inner, const std::function<void(SimStore&)>& check) {
    bool reached = true;
    for (uint64_t at = 0; reached; at += kPointStep) {
      SCOPED_TRACE(fmt::format("at {}", at));
      SimStore sim(at);
      setup(sim);
      HookDisk disk(sim.disk);
      reached = false;
      disk.hook = [&](uint64_t number) {
        if (number != at) return;
        reached = true;
        inner(sim, sim.disk);
      };
      outer(sim, disk);
      if (!reached) inner(sim, sim.disk);
      check(sim);
      ASSERT_TRUE(sim.sound());
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
  }
};

// The last rank of each attempt, one at any point of the other: one commits, one is refused.
TEST_F(AttemptsTest, TheLoserIsTold) {
  std::optional<Result<SaveReport>> a;
  std::optional<Result<SaveReport>> b;
  interleave(
      [](SimStore& sim) {
        for (const char* attempt : {"a", "b"}) {
          const auto first = sim.save(content_of(attempt, 0), 7, options_of(attempt, 0));
          FF_ASSERT_OK(first);
          EXPECT_EQ(first->outcome, SaveOutcome::waiting);
        }
      },
      [&](SimStore& sim, io::Disk& disk) {
        a.emplace(sim.save_on(disk, content_of("a", 1), 7, options_of("a", 1)));
      },
      [&](SimStore& sim, io::Disk& disk) {
        b.emplace(sim.save_on(disk, content_of("b", 1), 7, options_of("b", 1)));
      },
      [&](SimStore& sim) {
        const bool a_won = committed_by(sim) == "a";
        const auto& won = a_won ? *a : *b;
        const auto& lost = a_won ? *b : *a;
        FF_ASSERT_OK(won);
        EXPECT_EQ(won->outcome, SaveOutcome::committed);
        ASSERT_FALSE(lost.ok());
        EXPECT_EQ(lost.error().code, Errc::refused);
        EXPECT_NE(
            lost.error().message.find(fmt::format("attempt '{}' has committed", committed_by(sim))),
            std::string::npos)
            << lost.error().message;
      });
}

// The whole other attempt at any point of a rank: a rank that does not commit is told, unless its
// attempt still waits for others.
TEST_F(AttemptsTest, AWholeAttemptAtAnyPoint) {
  std::optional<Result<SaveReport>> first;
  std::optional<Result<SaveReport>> last;
  bool other_before_last = false;
  interleave([](SimStore&) {},
             [&](SimStore& sim, io::Disk& disk) {
               first.emplace(sim.save_on(disk, content_of("a", 0), 7, options_of("a", 0)));
               other_before_last = committed_by(sim) == "b";
               last.emplace(sim.save_on(disk, content_of("a", 1), 7, options_of("a", 1)));
             },
             [&](SimStore& sim, io::Disk& disk) {
               for (const uint32_t rank : {0u, 1u}) {  // refused if "a" is complete
                 (void)sim.save_on(disk, content_of("b", rank), 7, options_of("b", rank));
               }
             },
             [&](SimStore& sim) {
               if (committed_by(sim) == "a") {
                 EXPECT_TRUE(first->ok() && (*first)->outcome == SaveOutcome::waiting);
                 ASSERT_TRUE(last->ok()) << last->error().message;
                 EXPECT_EQ((*last)->outcome, SaveOutcome::committed);
                 return;
               }
               ASSERT_EQ(committed_by(sim), "b");
               EXPECT_FALSE(last->ok());
               if (!first->ok()) {
                 EXPECT_TRUE(other_before_last);
                 EXPECT_EQ(first->error().code, Errc::refused) << first->error().message;
               }
             });
}

// Both replace: each that completes is the checkpoint for a while, and none fails.
TEST_F(AttemptsTest, ReplacingAttemptsBothCommit) {
  interleave(
      [](SimStore& sim) {
        FF_ASSERT_OK(sim.save({{"old", noise(9, 4000)}}, 7));
        for (const char* attempt : {"a", "b"}) {
          FF_ASSERT_OK(sim.save(content_of(attempt, 0), 7, options_of(attempt, 0, true)));
        }
      },
      [](SimStore& sim, io::Disk& disk) {
        const auto saved = sim.save_on(disk, content_of("a", 1), 7, options_of("a", 1, true));
        FF_ASSERT_OK(saved);
        EXPECT_EQ(saved->outcome, SaveOutcome::committed);
      },
      [](SimStore& sim, io::Disk& disk) {
        const auto saved = sim.save_on(disk, content_of("b", 1), 7, options_of("b", 1, true));
        FF_ASSERT_OK(saved);
        EXPECT_EQ(saved->outcome, SaveOutcome::committed);
      },
      [](SimStore& sim) { EXPECT_NE(committed_by(sim), "none"); });
}

// An attempt replaces its own step: it waits for all ranks again.
TEST_F(AttemptsTest, AnAttemptReplacesItsOwnStep) {
  SimStore sim(1);
  for (const uint32_t rank : {0u, 1u}) {
    FF_ASSERT_OK(sim.save(content_of("a", rank), 7, options_of("a", rank)));
  }
  for (const uint32_t rank : {1u, 0u}) {
    const auto saved = sim.save(content_of("b", rank), 7, options_of("a", rank, true));
    FF_ASSERT_OK(saved);
    EXPECT_EQ(saved->outcome, rank == 1 ? SaveOutcome::waiting : SaveOutcome::committed);
  }
  EXPECT_TRUE(sim.sound());
  EXPECT_FALSE(*io::exists(sim.disk, sim.open().shards_dir({"default", 7})));
}

// The shards of another attempt stay when one commits.
TEST_F(AttemptsTest, ACommitRemovesOnlyItsOwnShards) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(content_of("b", 0), 7, options_of("b", 0)));
  for (const uint32_t rank : {0u, 1u}) {
    FF_ASSERT_OK(sim.save(content_of("a", rank), 7, options_of("a", rank)));
  }
  EXPECT_TRUE(*io::exists(sim.disk, sim.open().shards_dir({"default", 7}) + "/2-b/0.jsonl"));
  EXPECT_FALSE(*io::exists(sim.disk, sim.open().shards_dir({"default", 7}) + "/2-a"));
  const auto lost = sim.save(content_of("b", 1), 7, options_of("b", 1));
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(exit_code(lost.error().code), 5);
  // The same content is no loss.
  const auto same = sim.save(content_of("a", 1), 7, options_of("c", 1));
  FF_ASSERT_OK(same);
  EXPECT_EQ(same->outcome, SaveOutcome::already_there);
}

// `latest` names a checkpoint at every point of a replacement; at the end, the highest step.
TEST_F(AttemptsTest, LatestIsNeverAbsent) {
  SimStore sim(1);
  for (const uint64_t step : {1000u, 2000u}) {
    FF_ASSERT_OK(sim.save({{"a", noise(step, 4000)}}, step));
  }
  const auto store = sim.open();
  for (const uint64_t step : {2000u, 1000u}) {
    HookDisk disk(sim.disk);
    disk.hook = [&](uint64_t at) {
      const auto mark = read_latest(sim.disk, store, "default");
      ASSERT_TRUE(mark.has_value()) << at;
      EXPECT_EQ(mark->step, 2000u);
      EXPECT_EQ(latest_step(sim.disk, store, "default")->step, 2000u);
    };
    FF_ASSERT_OK(sim.save_on(disk, {{"a", noise(step + 1, 4000)}}, step, {.replace = true}));
    EXPECT_EQ(latest_step(sim.disk, store, "default")->step, 2000u);
    const auto summary = read_summary(sim.disk, store.index_path({"default", 2000}));
    EXPECT_EQ(read_latest(sim.disk, store, "default")->index_digest, summary->end.index.hex());
  }
  // A lower step that is saved later.
  FF_ASSERT_OK(sim.save({{"a", noise(5, 4000)}}, 1500));
  EXPECT_EQ(latest_step(sim.disk, store, "default")->step, 2000u);
  EXPECT_EQ(read_latest(sim.disk, store, "default")->step, 2000u);
  EXPECT_TRUE(sim.sound());
}

// Two savers of different steps, one at any point of the other: `latest` names the higher one.
TEST_F(AttemptsTest, LatestOfTwoSaversNamesTheHigher) {
  for (const bool outer_higher : {false, true}) {
    interleave(
        [](SimStore& sim) {
          FF_ASSERT_OK(sim.save({{"a", noise(1, 4000)}}, 1));
        },
        [&](SimStore& sim, io::Disk& disk) {
          FF_ASSERT_OK(sim.save_on(disk, {{"a", noise(2, 4000)}}, outer_higher ? 3 : 2));
        },
        [&](SimStore& sim, io::Disk& disk) {
          FF_ASSERT_OK(sim.save_on(disk, {{"b", noise(3, 4000)}}, outer_higher ? 2 : 3));
        },
        [](SimStore& sim) { EXPECT_EQ(read_latest(sim.disk, sim.open(), "default")->step, 3u); });
  }
}

}  // namespace
}  // namespace ff::checkpoint
