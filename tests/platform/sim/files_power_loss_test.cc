// The durability guarantees of io/files.h, with a power loss at every operation and many seeds.
#include <gtest/gtest.h>

#include <set>

#include "platform/io/files.h"
#include "platform/io/test_bytes.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"

namespace ff::sim {
namespace {

constexpr uint64_t kFilesSeeds = 200;

TEST(FilesPowerLossTest, ReplaceFileLeavesTheOldOrTheNew) {
  const std::string before(9000, 'o');
  const std::string after(13000, 'n');
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < kFilesSeeds; ++seed) {
    bool finished = false;
    for (uint64_t operation = 0; !finished; ++operation) {
      SCOPED_TRACE(fmt::format("seed {} operation {}", seed, operation));
      SimClock clock;
      SimDisk disk(seed, clock);
      ASSERT_TRUE(io::ok(io::replace_file(disk, "/file", before, "a")));
      disk.crash_at(disk.mutations() + operation);
      finished = io::replace_file(disk, "/file", after, "b").ok();
      disk.power_loss();
      const std::string content = io::get(disk, "/file");
      ASSERT_TRUE(content == after || (content == before && !finished))
          << content.size() << " bytes";
      seen.insert(content);
      // And the next attempt is not disturbed by what was left.
      ASSERT_TRUE(io::ok(io::replace_file(disk, "/file", after, "b")));
      ASSERT_EQ(io::get(disk, "/file"), after);
    }
  }
  EXPECT_EQ(seen.size(), 2u);
}

TEST(FilesPowerLossTest, ReplaceFileSurvivesFailures) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    bool finished = false;
    for (uint64_t operation = 0; !finished; ++operation) {
      SCOPED_TRACE(fmt::format("seed {} operation {}", seed, operation));
      SimClock clock;
      SimDisk disk(seed, clock);
      ASSERT_TRUE(io::ok(io::replace_file(disk, "/file", "old", "a")));
      disk.fail_at(disk.mutations() + operation, EIO);
      finished = io::replace_file(disk, "/file", "new", "b").ok();
      const std::string content = io::get(disk, "/file");
      ASSERT_TRUE(content == "new" || (content == "old" && !finished)) << content;
      ASSERT_EQ(disk.list("/")->size(), 1u) << "a temporary file was left";
    }
  }
}

TEST(FilesPowerLossTest, MadeDirectoriesSurvive) {
  for (uint64_t seed = 0; seed < kFilesSeeds; ++seed) {
    SCOPED_TRACE(seed);
    SimClock clock;
    SimDisk disk(seed, clock);
    ASSERT_TRUE(io::ok(io::make_dirs(disk, "/a/b/c")));
    disk.power_loss();
    EXPECT_TRUE(*io::exists(disk, "/a/b/c"));
  }
}

}  // namespace
}  // namespace ff::sim
