// The simulated disk over many seeds: every documented fault happens for some seed, and no
// guarantee is violated for any.
#include "platform/sim/sim_disk.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <set>
#include <string>

#include "platform/io/files.h"
#include "platform/io/test_bytes.h"
#include "platform/sim/sim_clock.h"

namespace ff::sim {
namespace {

using io::AccessMode;
using io::code_of;
using io::get;
using io::ok;
using io::put;

constexpr uint64_t kDiskSeeds = 300;

std::string filled(size_t size, char byte) { return std::string(size, byte); }

class SimDiskTest : public testing::Test {
 protected:
  // What `read` gives after `act` and a power loss, and how often, over all seeds.
  template <class Act, class Read>
  std::map<std::string, int> outcomes(Act act, Read read) {
    std::map<std::string, int> seen;
    for (uint64_t seed = 0; seed < kDiskSeeds; ++seed) {
      SimDisk disk(seed, clock_);
      act(disk);
      disk.power_loss();
      ++seen[read(disk)];
    }
    return seen;
  }

  SimClock clock_;
};

std::unique_ptr<io::File> open_rw(SimDisk& disk, const std::string& path) {
  return disk.open(path, {.access = AccessMode::read_write, .create = true}).value();
}

// A file that survives, with this content.
void keep(SimDisk& disk, const std::string& path, std::string_view content) {
  ASSERT_TRUE(ok(put(disk, path, content, true)));
  ASSERT_TRUE(ok(disk.sync_dir(io::parent(path))));
}

TEST_F(SimDiskTest, SyncedContentAndNamesSurvive) {
  const auto seen = outcomes([](SimDisk& disk) { keep(disk, "/file", filled(20000, 'x')); },
                             [](SimDisk& disk) { return get(disk, "/file"); });
  EXPECT_EQ(seen, (std::map<std::string, int>{{filled(20000, 'x'), kDiskSeeds}}));
}

TEST_F(SimDiskTest, UnsyncedContentMaySurviveOrNot) {
  const auto seen = outcomes(
      [](SimDisk& disk) {
        keep(disk, "/file", "old");
        ASSERT_TRUE(ok(open_rw(disk, "/file")->write_at(as_bytes("new"), 0)));
      },
      [](SimDisk& disk) { return get(disk, "/file"); });
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_GT(seen.at("old"), 0);
  EXPECT_GT(seen.at("new"), 0);
}

TEST_F(SimDiskTest, UnsyncedPagesSurviveInAnyCombination) {
  const auto seen = outcomes(
      [](SimDisk& disk) {
        keep(disk, "/file", filled(3 * kPage, '.'));
        ASSERT_TRUE(ok(open_rw(disk, "/file")->write_at(as_bytes(filled(3 * kPage, 'x')), 0)));
      },
      [](SimDisk& disk) {
        const std::string content = get(disk, "/file");
        return std::string{content[0], content[kPage], content[2 * kPage]};
      });
  EXPECT_EQ(seen.size(), 8u);
}

TEST_F(SimDiskTest, WritesTearAtSectors) {
  int torn = 0;
  const auto seen = outcomes(
      [](SimDisk& disk) {
        keep(disk, "/file", filled(kPage, '.'));
        ASSERT_TRUE(ok(open_rw(disk, "/file")->write_at(as_bytes(filled(kPage, 'x')), 0)));
      },
      [](SimDisk& disk) { return get(disk, "/file"); });
  for (const auto& [content, count] : seen) {
    ASSERT_EQ(content.size(), kPage);
    for (uint64_t at = 0; at < kPage; at += kSector) {
      ASSERT_EQ(content.substr(at, kSector), filled(kSector, content[at])) << "inside a sector";
    }
    if (content.find('x') != std::string::npos && content.find('.') != std::string::npos) ++torn;
  }
  EXPECT_GT(torn, 0);
}

TEST_F(SimDiskTest, TheSizeMaySurviveWithoutTheData) {
  const auto seen = outcomes(
      [](SimDisk& disk) {
        keep(disk, "/file", "");
        ASSERT_TRUE(ok(open_rw(disk, "/file")->write_at(as_bytes(filled(2 * kPage, 'x')), 0)));
      },
      [](SimDisk& disk) -> std::string {
        const std::string content = get(disk, "/file");
        if (content.empty()) return "empty";
        const size_t data = content.find_first_not_of('\0');
        return data == std::string::npos            ? "zeros"
               : data == 0 && content.back() == 'x' ? "x"
                                                    : "mixed";
      });
  EXPECT_EQ(seen.size(), 4u);
}

TEST_F(SimDiskTest, TruncatedDataDoesNotComeBack) {
  const auto seen = outcomes(
      [](SimDisk& disk) {
        keep(disk, "/file", filled(kPage, 'a'));
        const auto file = open_rw(disk, "/file");
        ASSERT_TRUE(ok(file->truncate(100)));
        ASSERT_TRUE(ok(file->truncate(200)));
      },
      [](SimDisk& disk) { return get(disk, "/file"); });
  const std::set<std::string> allowed{filled(kPage, 'a'), filled(100, 'a'),
                                      filled(100, 'a') + filled(100, '\0')};
  for (const auto& [content, count] : seen) EXPECT_TRUE(allowed.contains(content));
  EXPECT_EQ(seen.size(), 3u);
}

TEST_F(SimDiskTest, WritesAfterALostTruncationAreLostToo) {
  const auto seen = outcomes(
      [](SimDisk& disk) {
        keep(disk, "/file", filled(100, 'a'));
        const auto file = open_rw(disk, "/file");
        ASSERT_TRUE(ok(file->truncate(0)));
        ASSERT_TRUE(ok(file->write_at(as_bytes(filled(10, 'b')), 0)));
      },
      [](SimDisk& disk) { return get(disk, "/file"); });
  const std::set<std::string> allowed{filled(100, 'a'), "", filled(10, '\0'), filled(10, 'b')};
  for (const auto& [content, count] : seen) EXPECT_TRUE(allowed.contains(content)) << content;
  EXPECT_EQ(seen.size(), allowed.size());
}

TEST_F(SimDiskTest, NamesNeedSyncDir) {
  const auto seen =
      outcomes([](SimDisk& disk) { ASSERT_TRUE(ok(put(disk, "/file", "synced", true))); },
               [](SimDisk& disk) { return get(disk, "/file"); });
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_GT(seen.at("(not_found)"), 0);
  EXPECT_GT(seen.at("synced"), 0);
}

TEST_F(SimDiskTest, RemovalsNeedSyncDir) {
  const auto act = [](SimDisk& disk) {
    keep(disk, "/file", "x");
    ASSERT_TRUE(ok(disk.remove("/file")));
  };
  const auto seen = outcomes(act, [](SimDisk& disk) { return get(disk, "/file"); });
  EXPECT_EQ(seen.size(), 2u);
  const auto synced = outcomes(
      [&](SimDisk& disk) {
        act(disk);
        ASSERT_TRUE(ok(disk.sync_dir("/")));
      },
      [](SimDisk& disk) { return get(disk, "/file"); });
  EXPECT_EQ(synced, (std::map<std::string, int>{{"(not_found)", kDiskSeeds}}));
}

TEST_F(SimDiskTest, ANameCanOutliveItsContent) {
  const auto seen = outcomes(
      [](SimDisk& disk) {
        ASSERT_TRUE(ok(put(disk, "/file", "unsynced")));
        ASSERT_TRUE(ok(disk.sync_dir("/")));
      },
      [](SimDisk& disk) { return get(disk, "/file"); });
  EXPECT_GT(seen.at(""), 0);
  EXPECT_FALSE(seen.contains("(not_found)"));
}

TEST_F(SimDiskTest, AFileInADirectoryWithoutADurableNameIsLost) {
  const auto seen = outcomes(
      [](SimDisk& disk) {
        ASSERT_TRUE(ok(disk.make_dir("/dir", 0755)));
        keep(disk, "/dir/file", "x");
      },
      [](SimDisk& disk) { return get(disk, "/dir/file"); });
  EXPECT_EQ(seen.size(), 2u);
}

TEST_F(SimDiskTest, RenameHappensWhollyOrNotAtAll) {
  const auto seen = outcomes(
      [](SimDisk& disk) {
        ASSERT_TRUE(ok(io::make_dirs(disk, "/a")));
        ASSERT_TRUE(ok(io::make_dirs(disk, "/b")));
        keep(disk, "/a/from", "new");
        keep(disk, "/b/to", "old");
        ASSERT_TRUE(ok(disk.rename("/a/from", "/b/to")));
      },
      [](SimDisk& disk) { return get(disk, "/a/from") + " " + get(disk, "/b/to"); });
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_GT(seen.at("new old"), 0);
  EXPECT_GT(seen.at("(not_found) new"), 0);
}

TEST_F(SimDiskTest, SyncDirTakesAlongWhatItBuildsOn) {
  // The entry of /b comes from /a; syncing /b alone keeps it and does not bring /a's back.
  const auto seen = outcomes(
      [](SimDisk& disk) {
        ASSERT_TRUE(ok(io::make_dirs(disk, "/a")));
        ASSERT_TRUE(ok(io::make_dirs(disk, "/b")));
        ASSERT_TRUE(ok(put(disk, "/a/x", "x", true)));
        ASSERT_TRUE(ok(disk.rename("/a/x", "/b/x")));
        ASSERT_TRUE(ok(disk.sync_dir("/b")));
        ASSERT_TRUE(ok(disk.sync_dir("/a")));
      },
      [](SimDisk& disk) { return get(disk, "/a/x") + " " + get(disk, "/b/x"); });
  EXPECT_EQ(seen, (std::map<std::string, int>{{"(not_found) x", kDiskSeeds}}));
}

TEST_F(SimDiskTest, ChangesToOneNameSurviveInOrder) {
  const auto seen = outcomes(
      [](SimDisk& disk) {
        keep(disk, "/a", "a");
        keep(disk, "/b", "b");
        keep(disk, "/c", "c");
        ASSERT_TRUE(ok(disk.rename("/a", "/c")));
        ASSERT_TRUE(ok(disk.rename("/b", "/c")));
      },
      [](SimDisk& disk) {
        return get(disk, "/a") + " " + get(disk, "/b") + " " + get(disk, "/c");
      });
  const std::set<std::string> allowed{"a b c", "(not_found) b a", "(not_found) (not_found) b"};
  for (const auto& [state, count] : seen) EXPECT_TRUE(allowed.contains(state)) << state;
  EXPECT_EQ(seen.size(), 3u);
}

TEST_F(SimDiskTest, MovedDirectoriesNeverHoldEachOther) {
  // If only the first and the last of these moves survived, /p and /q would lie in each other, out
  // of reach.
  const auto seen = outcomes(
      [](SimDisk& disk) {
        ASSERT_TRUE(ok(io::make_dirs(disk, "/p")));
        ASSERT_TRUE(ok(io::make_dirs(disk, "/q")));
        ASSERT_TRUE(ok(disk.rename("/q", "/p/q")));
        ASSERT_TRUE(ok(disk.rename("/p/q", "/q")));
        ASSERT_TRUE(ok(disk.rename("/p", "/q/p")));
      },
      [](SimDisk& disk) {
        std::string found;
        for (const char* path : {"/p", "/p/q", "/q", "/q/p"}) {
          if (*io::exists(disk, path)) found += std::string(path) + " ";
        }
        return found;
      });
  const std::set<std::string> allowed{"/p /q ", "/p /p/q ", "/q /q/p "};
  for (const auto& [found, count] : seen) EXPECT_TRUE(allowed.contains(found)) << found;
  EXPECT_EQ(seen.size(), 3u);
}

TEST_F(SimDiskTest, TheSameSeedGivesTheSameOutcome) {
  const auto story = [&](uint64_t seed) {
    SimDisk disk(seed, clock_);
    std::string log;
    disk.set_fault(SimOp::write, 0.1, EIO);
    const auto queue = disk.make_queue({.depth = 8});
    const auto file = open_rw(disk, "/file");
    for (int i = 0; i < 8; ++i) {
      queue->write(*file, as_bytes("0123456789"), static_cast<uint64_t>(i) * 5000,
                   [&log, i](auto result) { log += std::to_string(i) + (result ? "+" : "-"); });
    }
    while (queue->in_flight() > 0) queue->run();
    for (int i = 0; i < 20; ++i) {
      (void)put(disk, "/" + std::to_string(i), filled(10000, 'x'));
    }
    disk.power_loss();
    const auto entries = disk.list("/");
    for (const auto& entry : *entries) log += entry.name + get(disk, "/" + entry.name);
    return log;
  };
  std::set<std::string> different;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    EXPECT_EQ(story(seed), story(seed));
    different.insert(story(seed));
  }
  EXPECT_GT(different.size(), 15u);
}

TEST_F(SimDiskTest, HandlesDieWithThePower) {
  SimDisk disk(1, clock_);
  keep(disk, "/file", "text");
  const auto file = open_rw(disk, "/file");
  EXPECT_TRUE(*file->try_lock());
  const auto queue = disk.make_queue({});
  std::vector<std::byte> into(4);
  Result<size_t> result = size_t{0};
  queue->read(*file, into, 0, [&](Result<size_t> read) { result = std::move(read); });
  disk.power_loss();
  while (queue->in_flight() > 0) queue->run();
  ASSERT_FALSE(result.ok());
  EXPECT_TRUE(is_crash(result.error()));
  EXPECT_TRUE(is_crash(file->read_at(into, 0).error()));
  EXPECT_TRUE(is_crash(file->write_at(into, 0).error()));
  EXPECT_TRUE(is_crash(file->sync().error()));
  const auto again = open_rw(disk, "/file");
  EXPECT_TRUE(*again->try_lock());  // the dead handle holds it no more
  EXPECT_EQ(get(disk, "/file"), "text");
}

TEST_F(SimDiskTest, CrashStopsEverythingUntilPowerLoss) {
  SimDisk disk(1, clock_);
  keep(disk, "/file", "text");
  const uint64_t before = disk.mutations();
  disk.crash_at(before + 1);
  EXPECT_TRUE(ok(disk.make_dir("/a", 0755)));
  EXPECT_FALSE(disk.crashed());
  const auto second = disk.make_dir("/b", 0755);
  ASSERT_FALSE(second.ok());
  EXPECT_TRUE(is_crash(second.error()));
  EXPECT_TRUE(disk.crashed());
  EXPECT_TRUE(is_crash(disk.info("/file").error()));
  EXPECT_TRUE(is_crash(disk.open("/file", {}).error()));
  EXPECT_FALSE(is_crash(errno_error(EIO, "/file")));
  disk.power_loss();
  EXPECT_FALSE(disk.crashed());
  EXPECT_EQ(get(disk, "/file"), "text");
  EXPECT_TRUE(ok(disk.make_dir("/b", 0755)));
}

TEST_F(SimDiskTest, MutationsCountWhatChangesTheDisk) {
  SimDisk disk(1, clock_);
  keep(disk, "/file", "text");  // open, write, sync, sync_dir
  EXPECT_EQ(disk.mutations(), 4u);
  EXPECT_EQ(get(disk, "/file"), "text");
  EXPECT_TRUE(ok(disk.list("/")));
  EXPECT_EQ(disk.mutations(), 4u);
  EXPECT_TRUE(ok(disk.rename("/file", "/other")));
  EXPECT_TRUE(ok(disk.set_mtime("/other", 0)));
  EXPECT_EQ(disk.mutations(), 6u);
}

TEST_F(SimDiskTest, KillLosesNothingButHandles) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    SimDisk disk(seed, clock_);
    const auto file = open_rw(disk, "/file");
    ASSERT_TRUE(ok(file->write_at(as_bytes("text"), 0)));
    disk.kill();
    EXPECT_TRUE(is_crash(file->sync().error()));
    EXPECT_EQ(get(disk, "/file"), "text");
  }
}

TEST_F(SimDiskTest, QueuedWritesMayHappenOrNotWhenTheMachineStops) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < kDiskSeeds; ++seed) {
    SimDisk disk(seed, clock_);
    keep(disk, "/file", "..");
    const auto file = open_rw(disk, "/file");
    const auto queue = disk.make_queue({});
    queue->write(*file, as_bytes("a"), 0, nullptr);
    queue->write(*file, as_bytes("b"), 1, nullptr);
    disk.kill();
    seen.insert(get(disk, "/file"));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"..", "a.", ".b", "ab"}));
}

TEST_F(SimDiskTest, AQueuedSyncCoversOnlyFinishedWrites) {
  const auto seen = outcomes(
      [](SimDisk& disk) {
        keep(disk, "/file", "old");
        const auto file = open_rw(disk, "/file");
        const auto queue = disk.make_queue({});
        queue->write(*file, as_bytes("new"), 0, nullptr);
        queue->sync(*file, nullptr);  // a bug: does not wait for the write
        while (queue->in_flight() > 0) queue->run();
      },
      [](SimDisk& disk) { return get(disk, "/file"); });
  EXPECT_EQ(seen.size(), 2u);
}

TEST_F(SimDiskTest, OperationsFailAsAsked) {
  SimDisk disk(1, clock_);
  const auto file = open_rw(disk, "/file");
  disk.fail_at(disk.mutations() + 1, ENOSPC);
  EXPECT_TRUE(ok(file->write_at(as_bytes("x"), 0)));
  EXPECT_EQ(code_of(file->write_at(as_bytes("x"), 0)), Errc::disk_full);
  EXPECT_TRUE(ok(file->write_at(as_bytes("x"), 0)));
  disk.set_fault(SimOp::name, 1, EACCES);
  EXPECT_EQ(code_of(disk.make_dir("/dir", 0755)), Errc::refused);
  EXPECT_EQ(code_of(disk.info("/dir")), Errc::not_found);
  disk.set_fault(SimOp::name, 0, 0);
  EXPECT_TRUE(ok(disk.make_dir("/dir", 0755)));
  disk.set_fault(SimOp::read, 0.5, EIO);
  int failed = 0;
  for (int i = 0; i < 100; ++i) failed += file->info().ok() ? 0 : 1;
  EXPECT_GT(failed, 20);
  EXPECT_LT(failed, 80);
}

TEST_F(SimDiskTest, AFailedWriteMayHaveWrittenAPrefix) {
  std::set<size_t> sizes;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SimDisk disk(seed, clock_);
    const auto file = open_rw(disk, "/file");
    disk.fail_at(disk.mutations(), EIO);
    EXPECT_FALSE(file->write_at(as_bytes("0123456789"), 0).ok());
    const std::string content = get(disk, "/file");
    EXPECT_EQ(content, std::string("0123456789").substr(0, content.size()));
    sizes.insert(content.size());
  }
  EXPECT_GT(sizes.size(), 5u);
}

TEST_F(SimDiskTest, AfterAFailedSyncSuccessMeansNothing) {
  const auto seen = outcomes(
      [](SimDisk& disk) {
        keep(disk, "/file", "old");
        const auto file = open_rw(disk, "/file");
        ASSERT_TRUE(ok(file->write_at(as_bytes("new"), 0)));
        disk.fail_at(disk.mutations(), EIO);
        EXPECT_FALSE(file->sync().ok());
        EXPECT_TRUE(ok(file->sync()));
      },
      [](SimDisk& disk) { return get(disk, "/file"); });
  EXPECT_GT(seen.at("old"), 0);
}

TEST_F(SimDiskTest, FillsUpAndGivesBack) {
  SimDisk disk(1, clock_);
  disk.set_capacity(100 * kPage);
  EXPECT_EQ(disk.space("/")->total, 100 * kPage);
  const uint64_t free = disk.space("/")->free;
  {
    const auto file = open_rw(disk, "/file");
    EXPECT_EQ(code_of(file->write_at(as_bytes(filled(200 * kPage, 'x')), 0)), Errc::disk_full);
    EXPECT_EQ(disk.space("/")->free, 0u);
    EXPECT_EQ(file->info()->size, free - kPage);  // one block for the file itself
    EXPECT_TRUE(ok(file->write_at(as_bytes(filled(kPage, 'y')), 0)));  // in place
    EXPECT_EQ(code_of(disk.make_dir("/dir", 0755)), Errc::disk_full);
    EXPECT_EQ(code_of(put(disk, "/other", "")), Errc::disk_full);
    EXPECT_TRUE(ok(file->truncate(10 * kPage)));
    EXPECT_TRUE(ok(file->reserve(0, 20 * kPage)));
    EXPECT_EQ(disk.space("/")->free, free - 21 * kPage);
    EXPECT_EQ(code_of(file->reserve(0, 200 * kPage)), Errc::disk_full);
    ASSERT_TRUE(ok(put(disk, "/other", filled(free - 22 * kPage, 'x'))));
    EXPECT_EQ(disk.space("/")->free, 0u);
    EXPECT_TRUE(ok(file->write_at(as_bytes(filled(20 * kPage, 'z')), 0)));  // was set aside
    EXPECT_TRUE(ok(disk.remove("/file")));
    EXPECT_EQ(disk.space("/")->free, 0u);  // still open
  }
  EXPECT_EQ(disk.space("/")->free, 21 * kPage);
  EXPECT_TRUE(ok(disk.remove("/other")));
  EXPECT_EQ(disk.space("/")->free, free);
}

TEST_F(SimDiskTest, PunchingGivesSpaceBackAndIsDurableAfterASync) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    SimDisk disk(seed, clock_);
    disk.set_capacity(100 * kPage);
    keep(disk, "/file", filled(40 * kPage, 'x'));
    const uint64_t free = disk.space("/")->free;
    const auto file = open_rw(disk, "/file");
    ASSERT_TRUE(ok(file->reserve(30 * kPage, 20 * kPage)));
    EXPECT_EQ(disk.space("/")->free, free - 10 * kPage);
    ASSERT_TRUE(ok(file->punch_hole(10 * kPage, 30 * kPage)));
    EXPECT_EQ(disk.space("/")->free, free + 20 * kPage);
    const bool synced = seed % 2 == 0;
    if (synced) {
      ASSERT_TRUE(ok(file->sync()));
    }
    disk.power_loss();
    const std::string left = get(disk, "/file");
    ASSERT_EQ(left.size(), 40 * kPage);
    EXPECT_EQ(left.substr(0, 10 * kPage), filled(10 * kPage, 'x'));
    for (const char c : left.substr(10 * kPage)) ASSERT_TRUE(c == 0 || (c == 'x' && !synced));
  }
}

TEST_F(SimDiskTest, SpaceIsCountedAfreshAfterPowerLoss) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    SimDisk disk(seed, clock_);
    disk.set_capacity(100 * kPage);
    keep(disk, "/kept", filled(10 * kPage, 'x'));
    const auto open = open_rw(disk, "/gone");
    ASSERT_TRUE(ok(open->write_at(as_bytes(filled(10 * kPage, 'x')), 0)));
    ASSERT_TRUE(ok(disk.remove("/gone")));
    ASSERT_TRUE(ok(open_rw(disk, "/kept")->reserve(0, 30 * kPage)));  // not durable
    ASSERT_TRUE(ok(disk.link("/kept", "/second")));
    ASSERT_TRUE(ok(disk.sync_dir("/")));
    disk.power_loss();
    EXPECT_EQ(disk.space("/")->free, (100 - 1 - 11) * kPage);
    ASSERT_TRUE(ok(disk.remove("/kept")));
    EXPECT_EQ(disk.space("/")->free, (100 - 1 - 11) * kPage);
    ASSERT_TRUE(ok(disk.remove("/second")));
    EXPECT_EQ(disk.space("/")->free, 99 * kPage);
  }
}

TEST_F(SimDiskTest, ReadOnly) {
  SimDisk disk(1, clock_);
  keep(disk, "/file", "text");
  const auto file = open_rw(disk, "/file");
  disk.set_read_only(true);
  EXPECT_EQ(get(disk, "/file"), "text");
  EXPECT_EQ(code_of(file->write_at(as_bytes("x"), 0)), Errc::refused);
  EXPECT_EQ(code_of(disk.open("/file", {.access = AccessMode::write})), Errc::refused);
  EXPECT_EQ(code_of(disk.remove("/file")), Errc::refused);
  EXPECT_EQ(code_of(disk.make_dir("/dir", 0755)), Errc::refused);
  EXPECT_EQ(get(disk, "/file"), "text");
}

TEST_F(SimDiskTest, FlippedBitsStay) {
  SimDisk disk(1, clock_);
  keep(disk, "/file", "aaaa");
  ASSERT_TRUE(ok(disk.flip_bit("/file", 8 + 1)));
  EXPECT_EQ(get(disk, "/file"), "acaa");
  disk.power_loss();
  EXPECT_EQ(get(disk, "/file"), "acaa");
  ASSERT_TRUE(ok(disk.flip_bit("/file", 8 + 1)));
  EXPECT_EQ(get(disk, "/file"), "aaaa");
  EXPECT_FALSE(disk.flip_bit("/file", 32).ok());
  EXPECT_EQ(code_of(disk.flip_bit("/none", 0)), Errc::not_found);
}

TEST_F(SimDiskTest, ASparseTebibyteCostsNothing) {
  SimDisk disk(1, clock_);
  const auto file = open_rw(disk, "/file");
  const uint64_t size = uint64_t{1} << 40;
  ASSERT_TRUE(ok(file->truncate(size)));
  ASSERT_TRUE(ok(file->write_at(as_bytes("end"), size - 3)));
  ASSERT_TRUE(ok(file->sync()));
  ASSERT_TRUE(ok(disk.sync_dir("/")));
  disk.power_loss();
  EXPECT_EQ(disk.info("/file")->size, size);
  EXPECT_EQ(disk.info("/file")->allocated, kPage);
  const auto again = open_rw(disk, "/file");
  EXPECT_EQ(again->next_data(0)->begin, size - kPage);
  EXPECT_EQ(again->next_data(0)->end, size);
  ASSERT_TRUE(ok(again->truncate(0)));
  EXPECT_EQ(disk.info("/file")->allocated, 0u);
}

TEST_F(SimDiskTest, TimesComeFromTheClock) {
  SimDisk disk(1, clock_);
  ASSERT_TRUE(ok(put(disk, "/file", "a")));
  EXPECT_EQ(disk.info("/file")->mtime_ns, SimClock::kStartNs);
  clock_.advance(1000);
  ASSERT_TRUE(ok(open_rw(disk, "/file")->write_at(as_bytes("b"), 0)));
  EXPECT_EQ(disk.info("/file")->mtime_ns, SimClock::kStartNs + 1000);
  clock_.advance(1000);
  ASSERT_TRUE(ok(disk.set_mtime("/file", -1)));
  EXPECT_EQ(disk.info("/file")->mtime_ns, SimClock::kStartNs + 2000);
}

}  // namespace
}  // namespace ff::sim
