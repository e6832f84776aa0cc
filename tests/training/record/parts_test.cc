// Packing files and spreading samples: which samples go where, what stays after a failure, and
// resuming.
#include "training/record/parts.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "platform/io/files.h"
#include "platform/sim/sim_disk.h"
#include "training/record/shuffle.h"

namespace ff::record {
namespace {

class RecordParts : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& content) {
    ASSERT_TRUE(io::make_dirs(disk_, io::parent(path)).ok());
    ASSERT_TRUE(io::replace_file(disk_, path, content, "test").ok());
  }
  // 20 files of 100 to 119 bytes.
  void put_tree() {
    for (int i = 0; i < 20; i++) {
      put(fmt::format("in/{}/{:02d}", i % 2 == 0 ? "even" : "odd", i),
          std::string(static_cast<size_t>(100 + i), static_cast<char>('a' + i)));
    }
  }
  Result<WriteResult> pack(const std::string& out, uint64_t part_bytes, WriteOptions options = {}) {
    FF_TRY(auto source, FileSource::list(disk_, {"in"}));
    return write_parts(work_, disk_, source, plan_by_size(source, out, part_bytes), options);
  }
  // The samples of all files that the paths name.
  std::vector<std::string> samples(const std::vector<std::string>& paths) {
    const auto files = record_files(disk_, paths);
    EXPECT_TRUE(files.ok());
    if (!files) return {};
    auto reader = Reader::open(disk_, *files, {});
    EXPECT_TRUE(reader.ok());
    if (!reader) return {};
    std::vector<std::string> all;
    for (uint64_t i = 0; i < (*reader)->samples(); i++) {
      std::string bytes(*(*reader)->bytes_of(i), '\0');
      auto* const place = reinterpret_cast<std::byte*>(bytes.data());
      EXPECT_TRUE((*reader)->read({&i, 1}, {&place, 1}).ok());
      all.push_back(bytes);
    }
    return all;
  }
  size_t count(const std::string& dir) {
    const auto entries = disk_.list(dir);
    return entries ? entries->size() : 0;
  }
  // Names at each level in their order: even/00, even/02, ..., odd/01, ...
  static std::vector<std::string> wanted() {
    std::vector<std::string> all;
    for (int odd = 0; odd < 2; odd++) {
      for (int i = odd; i < 20; i += 2) {
        all.emplace_back(static_cast<size_t>(100 + i), static_cast<char>('a' + i));
      }
    }
    return all;
  }

  SystemClock clock_;
  sim::SimDisk disk_{3, clock_};
  SeededRng rng_{4};
  StopToken stop_{clock_};
  Progress progress_;
  RunContext work_{.rng = rng_, .stop = stop_, .progress = progress_, .threads = 1};
};

TEST_F(RecordParts, OneFile) {
  put_tree();
  ASSERT_TRUE(pack("out.ffr", 1).ok());
  EXPECT_EQ(samples({"out.ffr"}), wanted());
  EXPECT_EQ(progress_.done, progress_.total);
  const auto again = pack("out.ffr", 1);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Errc::refused);
  EXPECT_TRUE(pack("out.ffr", 1, {.replace = true}).ok());
}

TEST_F(RecordParts, PartsHaveAtMostTheirSize) {
  put_tree();
  ASSERT_TRUE(pack("out/", 350).ok());
  EXPECT_EQ(samples({"out"}), wanted());
  EXPECT_EQ(count("out"), 7u);  // three each, and two in the last
  EXPECT_EQ(samples({"out/PART_00000.ffr"}).size(), 3u);
  ASSERT_TRUE(pack("single", 1).ok());
  EXPECT_EQ(count("single"), 20u);
}

// A reader of the directory would take samples twice.
TEST_F(RecordParts, ADirectoryWithOtherRecordsIsRefused) {
  put_tree();
  ASSERT_TRUE(pack("out", 350).ok());
  const auto larger = pack("out", 700, {.replace = true});
  ASSERT_FALSE(larger.ok());
  EXPECT_EQ(larger.error().code, Errc::refused);
  EXPECT_EQ(larger.error().message,
            "out/PART_00004.ffr: is none of the 4 files that would be written, and readers of the "
            "directory would read it, too");
}

TEST_F(RecordParts, ResumeKeepsWhatIsCompleteAndNew) {
  put_tree();
  ASSERT_TRUE(pack("out", 350).ok());
  EXPECT_EQ(pack("out", 350, {.resume = true})->kept, 7u);
  ASSERT_TRUE(disk_.remove("out/PART_00003.ffr").ok());
  put("out/PART_00002.ffr", "unfinished");
  EXPECT_EQ(pack("out", 350, {.resume = true})->kept, 5u);
  EXPECT_EQ(samples({"out"}), wanted());
  put("in/even/00", std::string(100, 'Z'));  // the same length, but changed after its part
  ASSERT_TRUE(disk_.set_mtime("in/even/00", clock_.wall_ns() + 3600 * kSecond).ok());
  EXPECT_EQ(pack("out", 350, {.resume = true})->kept, 6u);
  EXPECT_EQ(samples({"out"}).front(), std::string(100, 'Z'));
}

TEST_F(RecordParts, AFileThatGrowsWhileItIsPackedIsAnError) {
  put_tree();
  auto source = FileSource::list(disk_, {"in"});
  ASSERT_TRUE(source.ok());
  for (const size_t size : {101U, 99U, 0U}) {
    put("in/even/00", std::string(size, 'a'));
    const auto written =
        write_parts(work_, disk_, *source, plan_by_size(*source, "out.ffr", 1), {});
    ASSERT_FALSE(written.ok()) << size;
    EXPECT_EQ(written.error().code, Errc::stale);
    EXPECT_FALSE(*io::exists(disk_, "out.ffr"));
  }
}

// At each operation: whatever fails, there is no file, or a complete one.
TEST_F(RecordParts, EveryFailureLeavesCompleteFilesOrNone) {
  put_tree();
  for (uint64_t at = 0;; at++) {
    const std::string out = fmt::format("out{}", at);
    const uint64_t failing = disk_.mutations() + at;
    disk_.fail_at(failing, at % 2 == 0 ? ENOSPC : EIO);
    const auto written = pack(out, 350);
    if (disk_.mutations() <= failing) {
      EXPECT_TRUE(written.ok());
      EXPECT_GT(at, 30u);
      break;
    }
    if (written) {
      EXPECT_EQ(samples({out}), wanted()) << at;
    }
    const auto entries = disk_.list(out);
    for (const auto& entry : entries ? *entries : std::vector<io::DirEntry>()) {
      if (!entry.name.ends_with(kSuffix)) continue;
      EXPECT_TRUE(Reader::open(disk_, {out + "/" + entry.name}, {}).ok()) << at << entry.name;
    }
    ASSERT_TRUE(pack(out, 350, {.resume = true}).ok()) << at;
    EXPECT_EQ(samples({out}), wanted()) << at;
  }
}

TEST_F(RecordParts, APowerLossAfterwardsTakesNothing) {
  put_tree();
  ASSERT_TRUE(disk_.sync_dir(".").ok());
  ASSERT_TRUE(pack("out", 350).ok());
  disk_.power_loss();
  EXPECT_EQ(samples({"out"}), wanted());
}

TEST_F(RecordParts, SplitGivesEachFileItsShare) {
  put_tree();
  ASSERT_TRUE(pack("all.ffr", 1).ok());
  auto reader = Reader::open(disk_, {"all.ffr"}, {});
  auto source = RecordSource::of(disk_, **reader);
  ASSERT_TRUE(source.ok());
  const PartPlan plan = plan_by_count(*source, "parts", 6);
  ASSERT_TRUE(write_parts(work_, disk_, *source, plan, {}).ok());
  EXPECT_EQ(samples({"parts"}), wanted());
  for (size_t i = 0; i < 6; i++) EXPECT_EQ(plan.parts[i].samples, i < 2 ? 4u : 3u);
  EXPECT_EQ(plan_by_count(*source, "parts", 100).parts.size(), 20u);
}

TEST(RecordShuffle, EachSampleOnceInAnOrderOfItsOwn) {
  for (const uint64_t samples : {1U, 2U, 3U, 5U, 64U, 1000U, 4097U}) {
    std::map<uint64_t, int> seen;
    const Shuffle order(samples, 9, 0);
    for (uint64_t i = 0; i < samples; i++) seen[order.at(i)]++;
    EXPECT_EQ(seen.size(), samples);
    EXPECT_LT(seen.rbegin()->first, samples);
  }
  // Stored trainings go on in this order: it may never change.
  const Shuffle known(1000, 1, 2);
  EXPECT_EQ(known.at(0), 850u);
  EXPECT_EQ(known.at(1), 475u);
  EXPECT_EQ(known.at(999), 422u);
}

TEST(RecordShuffle, OrdersOfEpochsAndSeedsDiffer) {
  int same = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    same += Shuffle(1000, 1, 0).at(i) == Shuffle(1000, 1, 1).at(i) ? 1 : 0;
    same += Shuffle(1000, 1, 0).at(i) == Shuffle(1000, 2, 0).at(i) ? 1 : 0;
    same += Shuffle(1000, 1, 0).at(i) == i ? 1 : 0;
  }
  EXPECT_LT(same, 30);
}

}  // namespace
}  // namespace ff::record
