// SQLite on a faulty disk: power loss, kill, full disk and I/O error at every operation of a load
// that commits, checkpoints, flushes and reopens. A model lists the possible states of the file,
// and the content must equal one of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/rng.h"
#include "platform/db/database.h"
#include "platform/db/watched_disk.h"
#include "platform/io/test_bytes.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"

namespace ff::db {
namespace {

using io::ok;

constexpr const char* kFaultMigrations[] = {
    "CREATE TABLE rows (key INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT",
    "CREATE INDEX by_value ON rows (value)",
};
constexpr uint64_t kKeys = 12;
constexpr int kCommits = 12;  // of one life
// With such a small WAL about every third commit checkpoints; with such a small cache SQLite writes
// pages to the WAL, and reads them back, before their transaction ends.
constexpr const char* kOften = "PRAGMA wal_autocheckpoint = 20";
constexpr const char* kSmallCache = "PRAGMA cache_size = 2";

using State = std::map<int64_t, std::string>;

struct Mode {
  Synchronous synchronous = Synchronous::full;
  bool power_loss = false;  // else: kill
};

// One database on one simulated disk, and its possible states.
class World {
 public:
  explicit World(uint64_t seed, Synchronous synchronous)
      : sim(seed, clock),
        disk(sim),
        synchronous_(synchronous),
        small_cache_(seed % 2 == 1),
        dice_(seed),
        rng_(seed + 1) {}

  Result<void> open(OnCorrupt on_corrupt = OnCorrupt::refuse) {
    database_.reset();
    const DatabaseOptions options{
        .on_corrupt = on_corrupt, .disk = &disk, .rng = &rng_, .synchronous = synchronous_};
    FF_TRY(Database opened, Database::open("/a.db", kFaultMigrations, clock, options));
    database_.emplace(std::move(opened));
    if (small_cache_) FF_TRY(database_->run(kSmallCache));
    return database_->run(kOften);
  }

  // One transaction of some changes, and sometimes a flush.
  Result<void> step() {
    State next = current_;
    auto done = change(next);
    if (!done) {
      failed_.push_back(next);
      states_.push_back(std::move(next));
      return done;
    }
    failed_.clear();
    if (synchronous_ == Synchronous::full) states_.clear();
    current_ = std::move(next);
    states_.push_back(current_);
    return dice_.below(4) == 0 ? flush() : Result<void>();
  }
  Result<void> flush() {
    FF_TRY(database_->flush());
    states_ = {current_};
    return {};
  }
  // Opens, commits and closes in a loop, until an operation fails.
  Result<void> live() {
    if (!database_) FF_TRY(open());
    for (int i = 0; i < kCommits; ++i) FF_TRY(step());
    database_.reset();
    return {};
  }

  // The machine loses power, or the process dies.
  void die(bool power_loss) {
    power_loss ? sim.power_loss() : sim.kill();
    disk.gone = true;
    database_.reset();
    disk.gone = false;
    disk.lies = false;
    if (power_loss) return;
    states_ = {current_};
    states_.insert(states_.end(), failed_.begin(), failed_.end());
  }

  // Reopens the database; its content must be a possible state, and becomes the only one.
  testing::AssertionResult recover() {
    if (auto opened = open(); !opened) {
      return testing::AssertionFailure() << "open: " << opened.error().message;
    }
    auto found = content();
    if (!found) return testing::AssertionFailure() << found.error().message;
    const auto at = std::ranges::find(states_, *found);
    if (at == states_.end()) {
      return testing::AssertionFailure() << "none of " << states_.size() << " possible states";
    }
    lost_ += static_cast<size_t>(states_.end() - at) - 1;
    current_ = *found;
    states_ = {current_};
    failed_.clear();
    return testing::AssertionSuccess();
  }
  // The content as read through the open database.
  testing::AssertionResult shows_current() {
    auto found = content();
    if (!found) return testing::AssertionFailure() << found.error().message;
    if (*found != current_) return testing::AssertionFailure() << "not the last committed state";
    return testing::AssertionSuccess();
  }

  Result<State> content() {
    FF_TRY(auto check, database_->prepare("PRAGMA integrity_check"));
    FF_TRY(check.step());
    if (check.text(0) != "ok") return fail(Errc::corrupt, "{}", check.text(0));
    FF_TRY(auto select, database_->prepare("SELECT key, value FROM rows"));
    State found;
    while (true) {
      FF_TRY(const bool row, select.step());
      if (!row) return found;
      found[select.integer(0)] = select.text(1);
    }
  }

  bool is_open() const { return database_.has_value(); }
  size_t lost() const { return lost_; }

  sim::SimClock clock;
  sim::SimDisk sim;
  WatchedDisk disk;

 private:
  Result<void> change(State& next) {
    FF_TRY(auto transaction, database_->begin());
    const uint64_t changes = 1 + dice_.below(3);
    for (uint64_t i = 0; i < changes; ++i) {
      const auto key = static_cast<int64_t>(dice_.below(kKeys));
      if (i > 0 && dice_.below(4) == 0) {
        next.erase(key);
        FF_TRY(auto erase, database_->prepare("DELETE FROM rows WHERE key = ?"));
        erase.bind(key);
        FF_TRY(erase.run());
        continue;
      }
      const std::string value = fmt::format("{:<{}}", dice_.next(), 20 + dice_.below(4000));
      next[key] = value;
      FF_TRY(auto put, database_->prepare("INSERT OR REPLACE INTO rows VALUES (?, ?)"));
      put.bind(key, as_bytes(value));
      FF_TRY(put.run());
    }
    return transaction.commit();
  }

  const Synchronous synchronous_;
  const bool small_cache_;
  SeededRng dice_;
  SeededRng rng_;
  std::optional<Database> database_;
  State current_;
  std::vector<State> states_ = {{}};  // what a power loss may leave
  // The states that the failed transactions since the last commit would have produced: a failed
  // transaction may be completely in the WAL.
  std::vector<State> failed_;
  size_t lost_ = 0;  // what deaths undid: commits, or what was not yet one
};

class CrashTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(
    All, CrashTest,
    testing::Values(Mode{Synchronous::full, true}, Mode{Synchronous::full, false},
                    Mode{Synchronous::normal, true}, Mode{Synchronous::normal, false}),
    [](const auto& at) {
      return fmt::format("{}{}", at.param.power_loss ? "PowerLoss" : "Kill",
                         at.param.synchronous == Synchronous::full ? "Full" : "Normal");
    });

// Injects the fault at every operation, starting with the first one of the first open.
TEST_P(CrashTest, AtEveryOperation) {
  size_t lost = 0;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    bool finished = false;
    for (uint64_t operation = 0; !finished; ++operation) {
      SCOPED_TRACE(fmt::format("seed {} operation {}", seed, operation));
      ASSERT_LT(operation, 2000u);
      World world(seed, GetParam().synchronous);
      world.sim.crash_at(operation);
      finished = world.live().ok();
      world.die(GetParam().power_loss);
      ASSERT_TRUE(world.recover());
      // The recovered state, and commits on top of it, must be as durable as the first ones.
      ASSERT_TRUE(ok(world.step()));
      world.die(true);
      ASSERT_TRUE(world.recover());
      lost += world.lost();
    }
  }
  EXPECT_GT(lost, 50u);  // the disk did lose things
}

// Many runs on one file; each ends with a random fault at a random operation.
TEST(CrashesTest, OneAfterTheOther) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SeededRng rng(seed);
    World world(seed, seed % 2 == 0 ? Synchronous::full : Synchronous::normal);
    for (int life = 0; life < 6; ++life) {
      SCOPED_TRACE(fmt::format("seed {} life {}", seed, life));
      world.sim.crash_at(world.sim.mutations() + rng.below(300));
      (void)world.live();
      world.die(rng.below(3) > 0);
      ASSERT_TRUE(world.recover());
    }
  }
}

TEST(FaultTest, EveryOperationFailsOnce) {
  for (const int err : {ENOSPC, EIO}) {
    for (const auto synchronous : {Synchronous::full, Synchronous::normal}) {
      bool finished = false;
      for (uint64_t operation = 0; !finished; ++operation) {
        SCOPED_TRACE(fmt::format("{} {} operation {}", err,
                                 synchronous == Synchronous::full ? "full" : "normal", operation));
        ASSERT_LT(operation, 2000u);
        World world(operation, synchronous);
        world.sim.fail_at(operation, err);
        auto lived = world.live();
        // An error of a checkpoint does not fail the transaction; a later commit repeats the
        // checkpoint.
        finished = lived.ok() && world.sim.mutations() <= operation;
        if (finished) break;
        if (!lived) {
          const Error& error = lived.error();
          ASSERT_EQ(error.code, err == ENOSPC ? Errc::disk_full : Errc::failed) << error.message;
          // The message of the disk, with the path.
          ASSERT_NE(error.message.find(errno_error(err, "").message), std::string::npos)
              << error.message;
          ASSERT_NE(error.message.find("/"), std::string::npos) << error.message;
          const bool sync_failed = world.disk.last_was_sync();
          if (world.is_open()) {
            ASSERT_TRUE(world.shows_current());
            ASSERT_EQ(world.step().ok(), !sync_failed);
            ASSERT_EQ(world.flush().ok(), !sync_failed);
            ASSERT_TRUE(world.shows_current());
          }
        }
        world.die(operation % 2 == 0);
        ASSERT_TRUE(world.recover());
      }
    }
  }
}

TEST(FaultTest, FullDiskAtEveryBlock) {
  for (const auto synchronous : {Synchronous::full, Synchronous::normal}) {
    bool finished = false;
    size_t full = 0;
    for (uint64_t blocks = 0; !finished; ++blocks) {
      SCOPED_TRACE(fmt::format("{} blocks", blocks));
      ASSERT_LT(blocks, 200u);
      World world(blocks, synchronous);
      world.sim.set_capacity(blocks * sim::kPage);
      const auto lived = world.live();
      finished = lived.ok();
      if (!finished) {
        ++full;
        ASSERT_EQ(lived.error().code, Errc::disk_full) << lived.error().message;
        ASSERT_FALSE(lived.error().hint.empty());
        if (world.is_open()) {
          ASSERT_TRUE(world.shows_current());
        }
        world.sim.set_capacity(uint64_t{1} << 40);
        if (!world.is_open()) {
          ASSERT_TRUE(ok(world.open()));
        }
        ASSERT_TRUE(ok(world.step()));
        ASSERT_TRUE(world.shows_current());
      }
      world.die(true);
      ASSERT_TRUE(world.recover());
    }
    EXPECT_GT(full, 10u);
  }
}

// A disk whose syncs succeed without effect. Any data may be lost; the code must not crash, must
// report detected damage as corrupt, and must be able to recreate the file.
TEST(LyingDiskTest, OpensOrIsCorrupt) {
  size_t opened = 0;
  size_t corrupt = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    World world(seed, seed % 2 == 0 ? Synchronous::full : Synchronous::normal);
    SeededRng rng(seed);
    ASSERT_TRUE(ok(world.open()));
    ASSERT_TRUE(ok(world.step()));
    world.disk.lies = true;
    world.sim.crash_at(world.sim.mutations() + rng.below(200));
    (void)world.live();
    world.die(true);
    auto reopened = world.open();
    const auto content = reopened ? world.content() : Result<State>(reopened.error());
    if (content) {
      ++opened;
    } else {
      ++corrupt;
      ASSERT_EQ(content.error().code, Errc::corrupt) << content.error().message;
    }
    if (!reopened) {
      ASSERT_TRUE(ok(world.open(OnCorrupt::recreate)));
    }
    ASSERT_TRUE(ok(world.flush()));
  }
  EXPECT_GT(opened, 20u);
  EXPECT_GT(corrupt, 20u);
}

// A corrupt file that open() renames keeps its content and its WAL.
TEST(CrashesTest, NothingIsDeletedWhileItMovesAside) {
  const std::string content(10'000, 'x');
  for (uint64_t seed = 0; seed < 20; ++seed) {
    bool finished = false;
    for (uint64_t operation = 0; !finished; ++operation) {
      SCOPED_TRACE(fmt::format("seed {} operation {}", seed, operation));
      ASSERT_LT(operation, 300u);
      World world(seed, Synchronous::full);
      ASSERT_TRUE(ok(io::put(world.sim, "/a.db", content, true)));
      ASSERT_TRUE(ok(io::put(world.sim, "/a.db-wal", "its log", true)));
      ASSERT_TRUE(ok(world.sim.sync_dir("/")));
      world.sim.crash_at(world.sim.mutations() + operation);
      finished = world.open(OnCorrupt::recreate).ok();
      world.die(true);
      ASSERT_TRUE(ok(world.open(OnCorrupt::recreate)));
      int files = 0;
      int logs = 0;
      const auto entries = world.sim.list("/");
      for (const auto& entry : *entries) {
        const std::string found = io::get(world.sim, "/" + entry.name);
        files += found == content ? 1 : 0;
        logs += found == "its log" ? 1 : 0;
      }
      ASSERT_EQ(files, 1);
      ASSERT_EQ(logs, 1);
    }
  }
}

TEST(DeterminismTest, SameSeedSameOperations) {
  const auto trace_of = [](uint64_t seed) {
    World world(seed, Synchronous::normal);
    world.sim.crash_at(150);
    (void)world.live();
    world.die(true);
    EXPECT_TRUE(world.recover());
    EXPECT_TRUE(ok(world.live()));
    return world.disk.trace;
  };
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const auto first = trace_of(seed);
    EXPECT_GT(first.size(), 100u);
    EXPECT_EQ(first, trace_of(seed));
    EXPECT_NE(first, trace_of(seed + 100));
  }
}

}  // namespace
}  // namespace ff::db
