// A save that dies anywhere leaves the old or the new checkpoint, never half of one. Power is cut
// on the simulated disk at every single operation that changes it, over several seeds; real
// processes are killed with SIGKILL before every operation on names.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "platform/base/point_step.h"
#include "training/checkpoint/load/export.h"
#include "training/checkpoint/load/salvage.h"
#include "training/checkpoint/options.h"
#include "training/checkpoint/retention/repair.h"
#include "training/checkpoint/sim_store.h"

namespace ff::checkpoint {
namespace {

constexpr uint64_t kSeeds = 12;
constexpr uint64_t kSeedsOfNewStores = 3;  // their 256 folders are many operations

const Content kOld = {{"a.bin", noise(1, 6000)}, {"b.bin", noise(2, 9000)}};
const Content kNew = {{"a.bin", noise(1, 6000)}, {"b.bin", noise(3, 9000)}};  // a.bin is reused

// The content of a step, loaded and compared.
void expect_content(SimStore& store, uint64_t step, const Content& content) {
  auto ctx = store.context(store.disk);
  const std::string dest = "/out" + std::to_string(ctx.rng.next());
  LoadOptions options;
  options.name = "@" + std::to_string(step);
  options.dest = dest;
  FF_ASSERT_OK(load(ctx, kStore, options));
  for (const auto& [name, bytes] : content) {
    EXPECT_EQ(io::get(store.disk, dest + "/" + name), bytes) << name;
  }
}

// The invariants after a crash during the save of step 2, with an intact step 1.
void check_after_crash(SimStore& store) {
  ASSERT_TRUE(store.sound());
  const auto steps = store.steps();
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.front(), 1U);
  expect_content(store, 1, kOld);
  if (steps.size() == 2) expect_content(store, 2, kNew);
  const auto latest = latest_step(store.disk, store.open(), "default");
  FF_ASSERT_OK(latest);
  EXPECT_TRUE(latest->step == 1 || (latest->step == 2 && steps.size() == 2));
  // The next save works, whatever the crash left.
  FF_ASSERT_OK(store.save(kNew, 2));
  expect_content(store, 2, kNew);
  ASSERT_TRUE(store.sound());
  EXPECT_EQ(latest_step(store.disk, store.open(), "default")->step, 2U);
}

TEST(PowerLoss, SaveAtEveryOperation) {
  for (uint64_t seed = 1; seed <= kSeeds; seed++) {
    for (uint64_t n = seed % kPointStep;; n += kPointStep) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " operation " << n);
      SimStore store(seed * 1000 + n);
      FF_ASSERT_OK(store.save(kOld, 1));
      for (const auto& [name, bytes] : kNew)
        FF_ASSERT_OK(io::put(store.disk, "/in/" + name, bytes));
      store.disk.crash_at(store.disk.mutations() + n);
      const auto saved = store.save(kNew, 2);
      const bool crashed = store.disk.crashed();
      store.disk.power_loss();
      if (saved) {
        // The save was acknowledged: it must survive the power loss.
        ASSERT_EQ(store.steps().size(), 2U);
      }
      check_after_crash(store);
      if (HasFatalFailure() || !crashed) break;
    }
    if (HasFatalFailure()) return;
  }
}

TEST(PowerLoss, FirstSaveOfANewStore) {
  for (uint64_t seed = 1; seed <= kSeedsOfNewStores; seed++) {
    for (uint64_t n = seed % kPointStep;; n += kPointStep) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " operation " << n);
      SimStore store(seed * 1000 + n);
      for (const auto& [name, bytes] : kOld)
        FF_ASSERT_OK(io::put(store.disk, "/in/" + name, bytes));
      store.disk.crash_at(store.disk.mutations() + n);
      (void)store.save(kOld, 1);
      const bool crashed = store.disk.crashed();
      store.disk.power_loss();
      FF_ASSERT_OK(store.save(kOld, 1));
      ASSERT_TRUE(store.sound());
      expect_content(store, 1, kOld);
      if (HasFatalFailure() || !crashed) break;
    }
    if (HasFatalFailure()) return;
  }
}

TEST(PowerLoss, ReplaceKeepsTheOldOrTheNew) {
  for (uint64_t seed = 1; seed <= kSeeds; seed++) {
    for (uint64_t n = seed % kPointStep;; n += kPointStep) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " operation " << n);
      SimStore store(seed * 1000 + n);
      FF_ASSERT_OK(store.save(kOld, 1));
      for (const auto& [name, bytes] : kNew)
        FF_ASSERT_OK(io::put(store.disk, "/in/" + name, bytes));
      store.clock.advance(kSecond);
      store.disk.crash_at(store.disk.mutations() + n);
      SaveOptions replace;
      replace.replace = true;
      (void)store.save(kNew, 1, replace);
      const bool crashed = store.disk.crashed();
      store.disk.power_loss();
      ASSERT_TRUE(store.sound());
      ASSERT_EQ(store.steps(), std::vector<uint64_t>{1});
      auto ctx = store.context(store.disk);
      LoadOptions options;
      options.name = "@1";
      options.dest = "/out";
      FF_ASSERT_OK(load(ctx, kStore, options));
      const auto b = io::get(store.disk, "/out/b.bin");
      EXPECT_TRUE(b == kOld.at("b.bin") || b == kNew.at("b.bin"));
      if (HasFatalFailure() || !crashed) break;
    }
    if (HasFatalFailure()) return;
  }
}

// Any failing operation ends a save with an error and damages nothing.
TEST(DiskErrors, SaveAtEveryOperation) {
  for (uint64_t n = 0;; n += kPointStep) {
    SCOPED_TRACE(testing::Message() << "operation " << n);
    SimStore store(5000 + n);
    FF_ASSERT_OK(store.save(kOld, 1));
    for (const auto& [name, bytes] : kNew) FF_ASSERT_OK(io::put(store.disk, "/in/" + name, bytes));
    const uint64_t before = store.disk.mutations();
    store.disk.fail_at(before + n, EIO);
    const auto saved = store.save(kNew, 2);
    if (store.disk.mutations() <= before + n) break;  // past the last operation
    if (saved) {
      ASSERT_EQ(store.steps().size(), 2U);
    }
    check_after_crash(store);
    if (HasFatalFailure()) return;
  }
}

// Every action but a save, on a disk that fails once.
using OtherAction = std::function<Result<void>(Context&)>;
const std::map<std::string, OtherAction> kOtherActions = {
    {"load",
     [](Context& ctx) -> Result<void> {
       FF_TRY(load(ctx, kStore, load_to("@1", "/out")));
       return {};
     }},
    {"salvage",
     [](Context& ctx) -> Result<void> {
       FF_TRY(salvage(ctx, kStore, {.name = "@1", .dest = "/out"}));
       return {};
     }},
    {"verify",
     [](Context& ctx) -> Result<void> {
       FF_TRY(verify(ctx, kStore, everything()));
       return {};
     }},
    {"forget",
     [](Context& ctx) -> Result<void> {
       FF_TRY(forget(ctx, kStore, {.keep_last = 1, .runs = {"other"}, .apply = true}));
       return {};
     }},
    {"forget a run",
     [](Context& ctx) -> Result<void> {
       FF_TRY(forget(ctx, kStore, {.runs = {"other"}, .whole_runs = true, .apply = true}));
       return {};
     }},
    {"prune", [](Context& ctx) -> Result<void> {
       FF_TRY(prune(ctx, kStore, without_grace()));
       return {};
     }}};

// An operation that changes the disk fails: the action ends with an error or did all, nothing is
// damaged, no part of a destination is there, and the same action then works.
TEST(DiskErrors, OtherActionsAtEveryOperation) {
  for (const auto& [name, action] : kOtherActions) {
    for (const int error : {EIO, ENOSPC, EROFS}) {
      for (uint64_t n = 0;; n += kPointStep) {
        SCOPED_TRACE(fmt::format("{} with error {} at operation {}", name, error, n));
        SimStore store(n);
        FF_ASSERT_OK(store.save(kOld, 1));
        for (const uint64_t step : {1u, 2u}) {
          FF_ASSERT_OK(store.save({{"x", noise(step + 70, 3000)}}, step, {.run = "other"}));
        }
        FF_ASSERT_OK(store.save({{"y", noise(80, 3000)}}, 9));
        FF_ASSERT_OK(store.save({{"y", noise(81, 3000)}}, 9, {.replace = true}));
        const uint64_t before = store.disk.mutations();
        store.disk.fail_at(before + n, error);
        auto ctx = store.context(store.disk);
        const auto done = action(ctx);
        if (store.disk.mutations() <= before + n) break;
        const bool there = *io::exists(store.disk, "/out");
        if (there) {
          for (const auto& [file, bytes] : kOld)
            EXPECT_EQ(io::get(store.disk, "/out/" + file), bytes);
          FF_ASSERT_OK(io::remove_tree(store.disk, "/out"));
        }
        EXPECT_TRUE(done.ok() || !done.error().message.empty());
        ASSERT_TRUE(store.sound());
        expect_content(store, 1, kOld);
        const auto again = action(ctx);
        EXPECT_TRUE(again.ok() || again.error().code == Errc::not_found) << again.error().message;
        ASSERT_TRUE(store.sound());
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// A store on a device that fails every read, as a broken disk does: errors, and no change.
TEST(DiskErrors, AStoreThatCannotBeRead) {
  for (const double share : {1.0, 0.3}) {
    for (uint64_t seed = 0; seed < 20; seed++) {
      SCOPED_TRACE(fmt::format("{} of the reads, seed {}", share, seed));
      SimStore store(seed);
      FF_ASSERT_OK(store.save(kOld, 1));
      FF_ASSERT_OK(store.save(kNew, 2));
      auto ctx = store.context(store.disk);
      for (const auto& [name, action] : kOtherActions) {
        if (name == "forget" || name == "forget a run") continue;  // there is no such run
        store.disk.set_fault(sim::SimOp::read, share, EIO);
        (void)action(ctx);
        store.disk.set_fault(sim::SimOp::read, 0, 0);
        FF_ASSERT_OK(io::remove_tree(store.disk, "/out"));
      }
      store.disk.set_fault(sim::SimOp::read, share, EIO);
      (void)forget(ctx, kStore, {.keep_last = 1, .apply = true});
      store.disk.set_fault(sim::SimOp::read, 0, 0);
      // What verify has moved aside after a read error can be read, so it is used again.
      for (const uint64_t step : store.steps()) {
        FF_ASSERT_OK(repair(ctx, kStore,
                            {.name = fmt::format("@{}", step), .sources = {}, .ff_version = {}}));
      }
      ASSERT_TRUE(store.sound());
      EXPECT_EQ(store.steps().back(), 2u);
      expect_content(store, 2, kNew);
    }
  }
}

// The wall clock jumps between any two operations of a save: only ages and `created` depend on it.
TEST(ClockSteps, DuringASave) {
  for (const int64_t jump : {-24 * kHour, -kSecond, 24 * kHour}) {
    for (uint64_t at = 0;; at += kPointStep) {
      SCOPED_TRACE(fmt::format("{} s at {}", jump / kSecond, at));
      SimStore store(at);
      FF_ASSERT_OK(store.save(kOld, 1));
      HookDisk disk(store.disk);
      bool reached = false;
      disk.hook = [&](uint64_t number) {
        if (number != at) return;
        reached = true;
        store.clock.set_wall(store.clock.wall_ns() + jump);
        const auto pruned = store.prune({.grace_ns = 0});
        EXPECT_TRUE(pruned.ok()) << pruned.error().message;
      };
      const auto saved = store.save_on(disk, kNew, 2);
      // A jump ahead makes its lease overdue; it may say so, and nothing is damaged.
      if (!saved) {
        EXPECT_GT(jump, 0);
        EXPECT_NE(saved.error().message.find("removed its lease"), std::string::npos)
            << saved.error().message;
      }
      ASSERT_TRUE(store.sound());
      expect_content(store, 1, kOld);
      if (!reached) break;
      if (saved) expect_content(store, 2, kNew);
    }
  }
}

// The disk is full at every point: a clear error, no loss, and the space is released.
TEST(DiskFull, SaveAtEveryOperation) {
  for (uint64_t n = 0;; n += kPointStep) {
    SCOPED_TRACE(testing::Message() << "operation " << n);
    SimStore store(7000 + n);
    FF_ASSERT_OK(store.save(kOld, 1));
    for (const auto& [name, bytes] : kNew) FF_ASSERT_OK(io::put(store.disk, "/in/" + name, bytes));
    const uint64_t before = store.disk.mutations();
    store.disk.fail_at(before + n, ENOSPC);
    const auto saved = store.save(kNew, 2);
    if (store.disk.mutations() <= before + n) break;
    if (!saved) {
      EXPECT_EQ(saved.error().code, Errc::disk_full) << saved.error().message;
    }
    // The operation that failed may be the removal of the lease itself.
    EXPECT_LE(store.entries("tmp"), 1U);
    check_after_crash(store);
    if (HasFatalFailure()) return;
  }
}

class KillTest : public CheckpointTest {
 protected:
  // Runs `action` in a child on a disk that sends SIGKILL to its own process before operation n.
  // True when the child was killed.
  template <class Action>
  bool killed_at(uint64_t n, Action action) {
    const pid_t child = fork();
    if (child == 0) {
      HookDisk killer(disk_);
      killer.hook = [n](uint64_t step) {
        if (step == n) raise(SIGKILL);
      };
      Context ctx{.disk = killer,
                  .clock = clock_,
                  .rng = rng_,
                  .stop = stop_,
                  .progress = progress_,
                  .threads = 2};
      _exit(action(ctx) ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
    }
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }
};

TEST_F(KillTest, SaveBeforeEveryOperation) {
  save_file("model.bin", noise(1, 50'000), 1);
  const std::string changed = noise(1, 20'000) + noise(2, 30'000);
  write_whole(path("model.bin"), changed);
  SaveOptions options;
  options.step = 2;
  for (uint64_t n = 0;; n += kPointStep) {
    SCOPED_TRACE(testing::Message() << "operation " << n);
    rng_ = SeededRng(100 + n);
    const bool killed = killed_at(n, [&](Context& ctx) {
      return ff::checkpoint::save(ctx, store(), {.paths = {path("model.bin")}, .stream = {}},
                                  options)
          .ok();
    });
    auto ctx = context();
    const auto report = verify(ctx, store(), everything());
    FF_ASSERT_OK(report);
    ASSERT_TRUE(report->damage.empty()) << report->damage.front().where;
    const auto latest = latest_step(disk_, Store::open(disk_, store()).value(), "default");
    FF_ASSERT_OK(latest);
    fs::remove_all(path("out"));
    FF_ASSERT_OK(load(load_to(latest->text(), path("out"))));
    const std::string loaded = read_whole(path("out/model.bin"));
    EXPECT_EQ(loaded, latest->step == 1 ? noise(1, 50'000) : changed);
    if (!killed) break;
    // The next operation starts from the old state again.
    fs::remove_all(store() + "/runs/default/2");
    fs::remove(store() + "/runs/default/latest");
  }
}

// The same for reshard, export and salvage: all of a destination, or nothing.
TEST_F(KillTest, OtherReadersBeforeEveryOperation) {
  for (const uint32_t rank : {0u, 1u}) {
    const std::string file = path(fmt::format("r{}.safetensors", rank));
    write_whole(file, make_safetensors({{"w", "U8", {2, 5000}, noise(rank, 10'000)}}));
    SaveOptions options;
    options.step = 1;
    options.rank = rank;
    options.world = 2;
    options.attempt = "a";
    options.splits = {{.pattern = "w", .dimension = 0}};
    FF_ASSERT_OK(save({file}, options));
  }
  const std::map<std::string, std::function<bool(Context&)>> actions = {
      {"reshard",
       [&](Context& ctx) {
         LoadOptions options = load_to("@1", path("out"));
         options.reshard = 4;
         return ff::checkpoint::load(ctx, store(), options).ok();
       }},
      {"export",
       [&](Context& ctx) {
         ExportOptions options;
         options.name = "@1";
         options.out = path("out");
         return export_safetensors(ctx, store(), options).ok();
       }},
      {"salvage", [&](Context& ctx) {
         return salvage(ctx, store(), {.name = "@1", .dest = path("out")}).ok();
       }}};
  uint64_t seed = 0;
  for (const auto& [name, action] : actions) {
    seed += 1000;  // no name twice: those that are killed leave unfinished files
    auto ctx = context();
    ASSERT_TRUE(action(ctx)) << name;
    const bool is_file = fs::is_regular_file(path("out"));
    const auto content_of_out = [&] {
      return is_file ? std::map<std::string, std::string>{{"", read_whole(path("out"))}}
                     : tree_of(path("out"));
    };
    const auto whole = content_of_out();
    fs::remove_all(path("out"));
    for (uint64_t n = 0;; n += kPointStep) {
      SCOPED_TRACE(fmt::format("{} operation {}", name, n));
      rng_ = SeededRng(seed + n);
      const bool killed = killed_at(n, action);
      EXPECT_TRUE(!fs::exists(path("out")) || content_of_out() == whole);
      fs::remove_all(path("out"));
      if (!killed) break;
    }
    const auto report = verify(ctx, store(), everything());
    FF_ASSERT_OK(report);
    EXPECT_TRUE(report->damage.empty());
  }
}

TEST_F(KillTest, LoadBeforeEveryOperation) {
  save_file("model.bin", noise(1, 50'000), 1);
  for (uint64_t n = 0;; n += kPointStep) {
    SCOPED_TRACE(testing::Message() << "operation " << n);
    rng_ = SeededRng(100 + n);
    const LoadOptions options = load_to("@1", path("out"));
    const bool killed = killed_at(
        n, [&](Context& ctx) { return ff::checkpoint::load(ctx, store(), options).ok(); });
    if (fs::exists(path("out"))) {
      EXPECT_EQ(read_whole(path("out/model.bin")), noise(1, 50'000));
    }
    fs::remove_all(path("out"));
    if (!killed) break;
  }
}

}  // namespace
}  // namespace ff::checkpoint
