// Prune: what it deletes and keeps, concurrently with savers, readers and ranks at every point,
// with overdue leases, and with a crash at every point.
#include "training/checkpoint/retention/prune.h"

#include <gtest/gtest.h>

#include "platform/base/point_step.h"
#include "training/checkpoint/fixture.h"
#include "training/checkpoint/retention/maintenance.h"
#include "training/checkpoint/sim_store.h"

namespace ff::checkpoint {
namespace {

// Steps 1 and 2 share "same"; step 1 is forgotten, so its "own" is garbage, `noise(1)`.
void make_garbage(SimStore& sim) {
  for (const uint64_t step : {1, 2}) {
    FF_ASSERT_OK(sim.save({{"own", noise(step, 4000)}, {"same", noise(0, 4000)}}, step));
  }
  FF_ASSERT_OK(sim.verify({.names = {"@2"}}));
  FF_ASSERT_OK(sim.forget({.keep_last = 1, .apply = true}));
  ASSERT_EQ(sim.chunks(), 3u);
  sim.clock.advance(kSecond);
}

// A save that finds the garbage useful.
const Content kReviving{{"fresh", noise(9, 3000)}, {"own", noise(1, 4000)}};

Lease take_lease(Context& context, const Store& store, const std::string& action = "load") {
  return Lease::acquire(context, store, {.action = action, .name = {"default", 2}, .attempt = {}})
      .value();
}

TEST(PruneTest, DeletesUnusedChunks) {
  SimStore sim(1);
  make_garbage(sim);
  const auto young = sim.prune({});
  FF_ASSERT_OK(young);
  EXPECT_EQ(young->chunks_deleted, 0u);
  EXPECT_EQ(young->chunks_recent, 1u);
  EXPECT_EQ(young->bytes_recent, 8192u);
  sim.clock.advance(kHour);
  const auto dry = sim.prune({.dry_run = true});
  FF_ASSERT_OK(dry);
  EXPECT_EQ(dry->chunks_deleted, 1u);
  EXPECT_EQ(dry->bytes_deleted, 8192u);
  EXPECT_EQ(sim.chunks(), 3u);
  EXPECT_EQ(sim.entries("trash"), 0u);
  const auto report = sim.prune({});
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->chunks_deleted, 1u);
  EXPECT_EQ(report->bytes_deleted, 8192u);
  EXPECT_EQ(report->chunks_recent, 0u);
  EXPECT_EQ(report->chunks_deferred, 0u);
  EXPECT_EQ(sim.chunks(), 2u);
  EXPECT_EQ(sim.entries("trash"), 0u);
  EXPECT_TRUE(sim.sound());
}

TEST(PruneTest, ADamagedIndexStopsIt) {
  for (const bool shard : {false, true}) {
    SimStore sim(1);
    make_garbage(sim);
    std::string path = sim.open().index_path({"default", 2});
    if (shard) {
      FF_ASSERT_OK(sim.save({{"r", noise(5, 100)}}, 7, {.world = 2, .attempt = "x"}));
      path = sim.open().shards_dir({"default", 7}) + "/2-x/0.jsonl";
    }
    FF_ASSERT_OK(sim.disk.flip_bit(path, 3000));
    sim.clock.advance(2 * kHour);
    if (shard) FF_ASSERT_OK(sim.disk.set_mtime(path, -1));
    const auto report = sim.prune({});
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, Errc::corrupt);
    EXPECT_NE(report.error().message.find(path), std::string::npos) << report.error().message;
    EXPECT_EQ(sim.chunks(), shard ? 4u : 3u);
    EXPECT_EQ(sim.entries("trash"), 0u);
  }
}

TEST(PruneTest, OneAtATime) {
  SimStore sim(1);
  make_garbage(sim);
  const auto lock = lock_store(sim.disk, sim.open(), "prune");
  FF_ASSERT_OK(lock);
  const auto report = sim.prune({});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, Errc::refused);
  FF_ASSERT_OK(sim.prune({.dry_run = true}));
}

TEST(PruneTest, ARunningLeaseKeepsTheTrash) {
  SimStore sim(1);
  make_garbage(sim);
  auto ctx = sim.context(sim.disk);
  {
    const auto lease = take_lease(ctx, sim.open());
    const auto report = sim.prune({.grace_ns = 0, .wait_ns = 5 * kSecond});
    FF_ASSERT_OK(report);
    EXPECT_EQ(report->chunks_deleted, 0u);
    EXPECT_EQ(report->chunks_deferred, 1u);
    EXPECT_EQ(report->bytes_deferred, 8192u);
    ASSERT_EQ(report->running.size(), 1u);
    EXPECT_EQ(report->running[0].action, "load");
    EXPECT_EQ(sim.entries("trash"), 1u);
  }
  const auto report = sim.prune({.grace_ns = 0});
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->chunks_deleted, 1u);
  EXPECT_EQ(sim.entries("trash"), 0u);
}

TEST(PruneTest, WaitsForALeaseToEnd) {
  SimStore sim(1);
  make_garbage(sim);
  auto ctx = sim.context(sim.disk);
  std::optional<Lease> lease(take_lease(ctx, sim.open()));
  HookDisk disk(sim.disk);
  const int64_t began = sim.clock.steady_ns();
  disk.hook = [&](uint64_t) {
    if (sim.clock.steady_ns() - began >= 30 * kSecond) lease.reset();
  };
  const auto report = sim.prune_on(disk, {.grace_ns = 0, .wait_ns = 60 * kSecond});
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->chunks_deleted, 1u);
  EXPECT_TRUE(report->running.empty());
  EXPECT_LT(sim.clock.steady_ns() - began, 40 * kSecond);
}

TEST(PruneTest, OverdueLeasesAreRemovedWithTheirFolders) {
  SimStore sim(1);
  make_garbage(sim);
  auto ctx = sim.context(sim.disk);
  const auto lease = take_lease(ctx, sim.open(), "save");
  FF_ASSERT_OK(io::put(sim.disk, lease.folder() + "/0", "unfinished"));
  sim.clock.advance(kLeaseTimeoutNs);
  const auto report = sim.prune({.grace_ns = 0});
  FF_ASSERT_OK(report);
  ASSERT_EQ(report->overdue.size(), 1u);
  EXPECT_EQ(report->overdue[0].id, lease.id());
  EXPECT_EQ(report->chunks_deleted, 1u);
  EXPECT_FALSE(*lease.is_held());
  EXPECT_FALSE(*io::exists(sim.disk, lease.folder()));
  EXPECT_EQ(sim.entries("trash"), 0u);
}

// A lease whose time is far in the future, as after the clock of the store was set back.
TEST(PruneTest, ALeaseFromTheFutureEndsAfterItsTimeout) {
  SimStore sim(1);
  make_garbage(sim);
  auto ctx = sim.context(sim.disk);
  const auto lease = take_lease(ctx, sim.open(), "save");
  const std::string path = lease.folder() + std::string(kLeaseSuffix);
  FF_ASSERT_OK(sim.disk.set_mtime(path, sim.clock.wall_ns() + 24 * kHour));
  const uint64_t before = sim.disk.mutations();
  const auto dry = sim.prune({.grace_ns = 0, .dry_run = true});
  FF_ASSERT_OK(dry);
  ASSERT_EQ(dry->ahead.size(), 1u);
  EXPECT_FALSE(dry->ahead[0].corrected);
  EXPECT_GT(sim.disk.info(path)->mtime_ns, sim.clock.wall_ns());
  EXPECT_LE(sim.disk.mutations(), before + 4);  // files made to read the clock
  auto report = sim.prune({.grace_ns = 0});
  FF_ASSERT_OK(report);
  ASSERT_EQ(report->ahead.size(), 1u);
  EXPECT_TRUE(report->ahead[0].corrected);
  EXPECT_EQ(report->ahead[0].lease.ahead_ns, 24 * kHour);
  EXPECT_EQ(report->chunks_deferred, 1u);  // its owner may live, and renews it soon
  sim.clock.advance(kLeaseTimeoutNs);
  report = sim.prune({.grace_ns = 0});
  FF_ASSERT_OK(report);
  EXPECT_TRUE(report->ahead.empty());
  EXPECT_EQ(report->overdue.size(), 1u);
  EXPECT_EQ(report->chunks_deleted, 1u);
}

// The same of chunks, shards and leftovers.
TEST(PruneTest, FilesFromTheFutureAgeFromNowOn) {
  SimStore sim(1);
  make_garbage(sim);
  const auto store = sim.open();
  FF_ASSERT_OK(sim.save({{"r0", noise(50, 100)}}, 7, {.world = 2, .attempt = "a"}));
  FF_ASSERT_OK(io::make_dirs(sim.disk, kStore + "/tmp/0123"));
  const int64_t future = sim.clock.wall_ns() + 24 * kHour;
  const auto dirs = sim.disk.list(store.chunks_dir()).value();
  for (const auto& dir : dirs) {
    const auto files = sim.disk.list(io::join(store.chunks_dir(), dir.name)).value();
    for (const auto& file : files) {
      FF_ASSERT_OK(
          sim.disk.set_mtime(io::join(io::join(store.chunks_dir(), dir.name), file.name), future));
    }
  }
  FF_ASSERT_OK(sim.disk.set_mtime(store.shards_dir({"default", 7}) + "/2-a/0.jsonl", future));
  FF_ASSERT_OK(sim.disk.set_mtime(kStore + "/tmp/0123", future));
  auto report = sim.prune({});
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->chunks_recent, 1u);
  EXPECT_TRUE(report->abandoned.empty());
  sim.clock.advance(kHour);
  report = sim.prune({});
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->abandoned.size(), 1u);
  EXPECT_FALSE(*io::exists(sim.disk, kStore + "/tmp/0123"));
  sim.clock.advance(kHour);
  FF_ASSERT_OK(sim.prune({}));
  EXPECT_EQ(sim.chunks(), 2u);
  EXPECT_TRUE(sim.sound());
}

TEST(PruneTest, UsedChunksInTheTrashAreRestored) {
  SimStore sim(1);
  make_garbage(sim);
  const auto store = sim.open();
  const auto chunk = sim.chunks_of(2).at(0);
  FF_ASSERT_OK(sim.disk.rename(store.chunk_path(chunk), store.trash_path(chunk)));
  const auto report = sim.prune({.grace_ns = 0});
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->chunks_restored, 1u);
  EXPECT_EQ(report->chunks_deleted, 1u);
  EXPECT_EQ(sim.chunks(), 2u);
  EXPECT_TRUE(sim.sound());
}

TEST(PruneTest, AbandonedAttemptsAreRemoved) {
  SimStore sim(1);
  make_garbage(sim);
  FF_ASSERT_OK(sim.save({{"r0", noise(50, 100)}}, 7, {.world = 3, .attempt = "a/1"}));
  FF_ASSERT_OK(sim.save({{"r2", noise(51, 100)}}, 7, {.rank = 2, .world = 3, .attempt = "a/1"}));
  FF_ASSERT_OK(sim.prune({.grace_ns = kHour}));
  EXPECT_EQ(sim.chunks(), 5u);  // the shards are young, what they name stays
  sim.clock.advance(kHour);
  auto ctx = sim.context(sim.disk);
  {
    const auto rank = Lease::acquire(ctx, sim.open(), {"save", {"default", 7}, "a/1"});
    FF_ASSERT_OK(rank);  // the last rank is at work
    const auto report = sim.prune({});
    FF_ASSERT_OK(report);
    EXPECT_TRUE(report->abandoned.empty());
  }
  const auto report = sim.prune({});
  FF_ASSERT_OK(report);
  ASSERT_EQ(report->abandoned.size(), 1u);
  EXPECT_EQ(report->abandoned[0].name, (StepName{"default", 7}));
  EXPECT_EQ(report->abandoned[0].attempt, "a/1");
  EXPECT_EQ(report->abandoned[0].world, 3u);
  EXPECT_EQ(report->abandoned[0].present, (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(sim.chunks(), 2u);
  sim.clock.advance(kHour);
  FF_ASSERT_OK(sim.prune({}));
  EXPECT_FALSE(*io::exists(sim.disk, sim.open().step_dir({"default", 7})));
}

TEST(PruneTest, ShardsBesideTheirCommitAreRemovedSilently) {
  SimStore sim(1);
  make_garbage(sim);
  const auto store = sim.open();
  const std::string shards = store.shards_dir({"default", 7});
  FF_ASSERT_OK(sim.save({{"r0", noise(50, 100)}}, 7, {.world = 2, .attempt = "a"}));
  const std::string shard = io::get(sim.disk, shards + "/2-a/0.jsonl");
  FF_ASSERT_OK(sim.save({{"r1", noise(51, 100)}}, 7, {.rank = 1, .world = 2, .attempt = "a"}));
  ASSERT_FALSE(*io::exists(sim.disk, shards));
  // As after a crash right after the commit.
  FF_ASSERT_OK(io::make_dirs(sim.disk, shards + "/2-a"));
  FF_ASSERT_OK(io::put(sim.disk, shards + "/2-a/0.jsonl", shard));
  sim.clock.advance(2 * kHour);
  const auto report = sim.prune({});
  FF_ASSERT_OK(report);
  EXPECT_TRUE(report->abandoned.empty());
  EXPECT_FALSE(*io::exists(sim.disk, shards));
  EXPECT_EQ(sim.chunks(), 4u);
  EXPECT_TRUE(sim.sound());
}

TEST(PruneTest, OldLeftoversAreRemoved) {
  SimStore sim(1);
  make_garbage(sim);
  const auto store = sim.open();
  FF_ASSERT_OK(io::make_dirs(sim.disk, kStore + "/tmp/0123"));
  FF_ASSERT_OK(io::put(sim.disk, kStore + "/tmp/0123/5", "x"));
  FF_ASSERT_OK(io::put(sim.disk, kStore + "/tmp/77.probe", ""));
  FF_ASSERT_OK(io::put(sim.disk, store.latest_path("default") + ".1.tmp", "x"));
  FF_ASSERT_OK(io::put(sim.disk, store.verified_path({"default", 2}) + ".2.tmp", "x"));
  FF_ASSERT_OK(io::put(sim.disk, kStore + "/ff-store.json.3.tmp", "x"));
  FF_ASSERT_OK(io::make_dirs(sim.disk, kStore + "/trash/9.step"));
  FF_ASSERT_OK(io::put(sim.disk, kStore + "/trash/9.step/index.jsonl", "x"));
  FF_ASSERT_OK(io::make_dirs(sim.disk, store.step_dir({"other", 5})));
  // Nothing younger than the lease timeout is removed, whatever the grace period.
  auto report = sim.prune({.grace_ns = 0});
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->leftovers, 1u);
  EXPECT_EQ(sim.entries("trash"), 0u);
  sim.clock.advance(kHour);
  report = sim.prune({});
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->leftovers, 6u);
  EXPECT_EQ(sim.disk.list(kStore + "/tmp")->size(), 2u);  // locks
  EXPECT_EQ(sim.entries("runs/default"), 2u);
  EXPECT_EQ(sim.entries("runs/default/2"), 2u);
  EXPECT_EQ(sim.disk.list(kStore)->size(), 5u);
  sim.clock.advance(kHour);
  FF_ASSERT_OK(sim.prune({}));
  EXPECT_EQ(sim.entries("runs"), 1u);
  EXPECT_TRUE(sim.sound());
}

TEST(PruneTest, AReadOnlyStoreIsRefused) {
  SimStore sim(1);
  make_garbage(sim);
  sim.disk.set_read_only(true);
  EXPECT_EQ(sim.prune({.grace_ns = 0}).error().code, Errc::refused);
}

// Two actions, one of them whole between any two steps of the other.
class InterleavingTest : public testing::Test {
 protected:
  using Action = std::function<void(SimStore&, io::Disk&)>;
  using Setup = std::function<void(SimStore&)>;

  // `inner` once at each point of `outer`; then everything there must verify, and again when a
  // last prune has cleared up.
  void interleave(const Setup& setup, const Action& outer, const Action& inner) {
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
      ASSERT_TRUE(sim.sound());
      FF_ASSERT_OK(sim.prune({.grace_ns = 0}));
      ASSERT_EQ(sim.entries("trash"), 0u);
      ASSERT_TRUE(sim.sound());
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
  }

  static void prune_now(SimStore& sim, io::Disk& disk) {
    EXPECT_TRUE(io::ok(sim.prune_on(disk, {.grace_ns = 0})));
  }
  static void save_reviving(SimStore& sim, io::Disk& disk) {
    EXPECT_TRUE(io::ok(sim.save_on(disk, kReviving, 5)));
  }
};

TEST_F(InterleavingTest, APruneAtAnyPointOfASave) {
  interleave(make_garbage, save_reviving, prune_now);
}

TEST_F(InterleavingTest, ASaveAtAnyPointOfAPrune) {
  interleave(make_garbage, prune_now, save_reviving);
}

TEST_F(InterleavingTest, TwoSavesThatBothCreateTheStore) {
  const auto nothing = [](SimStore&) {};
  const auto save_first = [](SimStore& sim, io::Disk& disk) {
    EXPECT_TRUE(io::ok(sim.save_on(disk, {{"own", noise(1, 4000)}}, 1)));
  };
  interleave(nothing, save_first, save_reviving);
  const auto look = [](SimStore& sim, io::Disk& disk) {
    const auto store = Store::open(disk, kStore);
    if (store) return;
    EXPECT_EQ(store.error().code, Errc::not_found) << store.error().message;
    save_reviving(sim, sim.disk);
  };
  interleave(nothing, look, save_first);
}

TEST_F(InterleavingTest, APruneAtEveryPointOfASave) {
  SimStore sim(1);
  make_garbage(sim);
  HookDisk disk(sim.disk);
  disk.hook = [&](uint64_t) { prune_now(sim, sim.disk); };
  save_reviving(sim, disk);
  EXPECT_EQ(sim.steps(), (std::vector<uint64_t>{2, 5}));
  EXPECT_TRUE(sim.sound());
}

// The saver pauses beyond the timeout of its lease, a prune runs, the saver continues.
TEST_F(InterleavingTest, ASaverThatSleptTooLong) {
  size_t lost = 0;
  for (const bool replace : {false, true}) {
    interleave(
        make_garbage,
        [&](SimStore& sim, io::Disk& disk) {
          const uint64_t step = replace ? 2 : 5;
          const auto saved = sim.save_on(disk, kReviving, step, {.replace = replace});
          const auto steps = sim.steps();
          if (saved) {
            EXPECT_EQ(steps.back(), step);
          } else if (saved.error().message.find("removed its lease") != std::string::npos) {
            lost += steps == std::vector<uint64_t>{2} ? 1 : 0;  // else only `latest` is missing
          } else {
            ADD_FAILURE() << saved.error().message;
          }
        },
        [](SimStore& sim, io::Disk& disk) {
          sim.clock.advance(kLeaseTimeoutNs);
          prune_now(sim, disk);
        });
  }
  EXPECT_GT(lost, 20 / kPointStep);
}

// Another lease becomes overdue while the prune waits for leases.
TEST_F(InterleavingTest, ALeaseEndsOrBecomesOverdueDuringTheWait) {
  interleave(
      make_garbage,
      [&](SimStore& sim, io::Disk& disk) {
        const auto saved = sim.save_on(disk, kReviving, 5);
        if (!saved) {
          EXPECT_NE(saved.error().message.find("removed its lease"), std::string::npos)
              << saved.error().message;
        }
      },
      [](SimStore& sim, io::Disk& disk) {
        EXPECT_TRUE(
            io::ok(sim.prune_on(disk, {.grace_ns = 0, .wait_ns = kLeaseTimeoutNs + 60 * kSecond})));
      });
}

TEST_F(InterleavingTest, RanksThatComeLate) {
  auto rank_saves = [](uint32_t rank) {
    return [rank](SimStore& sim, io::Disk& disk) {
      const Content content{{fmt::format("r{}", rank), noise(1, 4000)}, {"mine", noise(rank, 500)}};
      EXPECT_TRUE(
          io::ok(sim.save_on(disk, content, 7, {.rank = rank, .world = 2, .attempt = "a"})));
    };
  };
  auto one_rank_saved = [&](SimStore& sim) {
    make_garbage(sim);
    rank_saves(0)(sim, sim.disk);
    sim.clock.advance(2 * kHour);  // its shard is as good as abandoned
  };
  interleave(one_rank_saved, rank_saves(1), prune_now);
  interleave(one_rank_saved, prune_now, rank_saves(1));
}

TEST_F(InterleavingTest, AForgetAtAnyPointOfAPrune) {
  auto forget_two = [](SimStore& sim, io::Disk& disk) {
    EXPECT_TRUE(io::ok(sim.forget_on(disk, {.keep_last = 1, .apply = true})));
  };
  auto more_steps = [](SimStore& sim) {
    make_garbage(sim);
    FF_ASSERT_OK(sim.save({{"own", noise(3, 4000)}}, 3));
    FF_ASSERT_OK(sim.verify({.names = {"@3"}}));
  };
  interleave(more_steps, prune_now, forget_two);
  interleave(more_steps, forget_two, prune_now);
}

// A saver beside the prune, and a crash of the machine or of the pruner at every point.
class PruneCrashTest : public testing::TestWithParam<bool> {};

TEST_P(PruneCrashTest, LeavesWholeCheckpointsAtEveryPoint) {
  const bool power_loss = GetParam();
  for (uint64_t seed = 0; seed < 5; seed++) {
    bool finished = false;
    for (uint64_t operation = seed % kPointStep; !finished; operation += kPointStep) {
      SCOPED_TRACE(fmt::format("seed {} operation {}", seed, operation));
      ASSERT_LT(operation, 1000u);
      SimStore sim(seed);
      make_garbage(sim);
      FF_ASSERT_OK(sim.save({{"r0", noise(50, 100)}}, 7, {.world = 2, .attempt = "a"}));
      const auto in_trash = sim.chunks_of(2).at(0);
      FF_ASSERT_OK(
          sim.disk.rename(sim.open().chunk_path(in_trash), sim.open().trash_path(in_trash)));
      sim.disk.crash_at(sim.disk.mutations() + operation);
      finished = sim.prune({.grace_ns = 0}).ok();
      power_loss ? sim.disk.power_loss() : sim.disk.kill();
      sim.disk.crash_at(UINT64_MAX);
      ASSERT_TRUE(sim.sound());
      ASSERT_EQ(sim.steps(), (std::vector<uint64_t>{2}));
      // The next save and the next prune work.
      FF_ASSERT_OK(sim.save(kReviving, 5));
      ASSERT_TRUE(sim.sound());
      sim.clock.advance(kLeaseTimeoutNs);
      FF_ASSERT_OK(sim.prune({.grace_ns = 0}));
      ASSERT_EQ(sim.chunks(), 4u);
      ASSERT_EQ(sim.entries("trash"), 0u);
      ASSERT_TRUE(sim.sound());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PruneCrashTest, testing::Values(false, true),
                         [](const auto& at) { return at.param ? "PowerLoss" : "Kill"; });

// A whole prune right after a forget has moved its first step, then a power loss that may undo the
// move: it must not have cost the chunks of that step.
TEST(PruneTest, PowerLossAmidForgetAndPrune) {
  size_t undone = 0;
  for (uint64_t seed = 0; seed < 100; seed += kPointStep) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    SimStore sim(seed);
    for (const uint64_t step : {1, 2}) {
      FF_ASSERT_OK(sim.save({{"own", noise(step, 4000)}}, step));
    }
    FF_ASSERT_OK(sim.verify({.names = {"@2"}}));
    HookDisk disk(sim.disk);
    bool lost = false;
    disk.hook = [&](uint64_t) {
      if (lost || sim.steps().size() == 2) return;
      lost = true;
      EXPECT_TRUE(io::ok(sim.prune({.grace_ns = 0})));
      EXPECT_EQ(sim.chunks(), 1u);
      sim.disk.power_loss();
      sim.disk.crash_at(sim.disk.mutations());  // the forget ended with the machine
    };
    (void)sim.forget_on(disk, {.keep_last = 1, .apply = true});
    ASSERT_TRUE(lost);
    sim.disk.kill();
    sim.disk.crash_at(UINT64_MAX);
    undone += sim.chunks() == 2 ? 1 : 0;
    ASSERT_TRUE(sim.sound());
  }
  EXPECT_GT(undone, 5 / kPointStep);  // the disk did undo things
}

// A save detects before the commit that another program has deleted its chunk.
TEST(PruneTest, AMissingChunkFailsTheSave) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(kReviving, 1));
  const auto fresh = sim.chunks_of(1).at(0);
  const std::string path = sim.open().chunk_path(fresh);
  FF_ASSERT_OK(sim.save({{"own", noise(1, 4000)}}, 1, {.replace = true}));
  HookDisk disk(sim.disk);
  disk.hook = [&](uint64_t) { (void)sim.disk.remove(path); };
  const auto saved = sim.save_on(disk, kReviving, 2);
  ASSERT_FALSE(saved.ok());
  EXPECT_NE(saved.error().message.find(fresh.hex()), std::string::npos) << saved.error().message;
  EXPECT_EQ(sim.steps(), (std::vector<uint64_t>{1}));
  EXPECT_TRUE(sim.sound());
}

}  // namespace
}  // namespace ff::checkpoint
