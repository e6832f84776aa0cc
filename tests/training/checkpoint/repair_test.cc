// Repair: damaged and missing chunks come back from another store, from the files that were saved,
// or from a file that verify has moved aside; and the whole way from damage to an intact store.
#include "training/checkpoint/retention/repair.h"

#include <gtest/gtest.h>

#include "training/checkpoint/options.h"
#include "training/checkpoint/retention/forget.h"
#include "training/checkpoint/sim_store.h"

namespace ff::checkpoint {
namespace {

class RepairTest : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    // Small tensors that share a chunk, one of several chunks, and a plain file.
    write_whole(path("in/model.safetensors"),
                make_safetensors({{"a", "U8", {3000}, noise(1, 3000)},
                                  {"b", "U8", {5000}, noise(2, 5000)},
                                  {"big", "U8", {9'000'000}, noise(3, 9'000'000)}}));
    write_whole(path("in/notes"), noise(4, 30'000));
    FF_ASSERT_OK(save({path("in")}, step_one()));
  }
  static SaveOptions step_one() {
    SaveOptions options;
    options.step = 1;
    return options;
  }
  Result<RepairReport> repair_from(const std::vector<std::string>& sources) {
    auto ctx = context();
    return repair(ctx, store(), {.name = "@1", .sources = sources, .ff_version = "1"});
  }
  void expect_intact() {
    auto ctx = context();
    const auto report = verify(ctx, store(), everything());
    FF_ASSERT_OK(report);
    EXPECT_TRUE(report->damage.empty()) << report->damage.front().where;
    fs::remove_all(path("out"));
    FF_ASSERT_OK(load(load_to("@1", path("out"))));
    EXPECT_TRUE(tree_of(path("out/in")) == tree_of(path("in")));
  }
  void damage_all() {
    for (const auto& chunk : chunk_files()) flip_bit(chunk, 8 * 4096 + 3);
  }
};

TEST_F(RepairTest, FromTheFiles) {
  const size_t chunks = chunk_files().size();
  damage_all();
  fs::remove(chunk_files().front());
  // Other files give nothing, and store nothing.
  write_whole(path("other"), noise(50, 20'000));
  const auto nothing = repair_from({path("other")});
  FF_ASSERT_OK(nothing);
  EXPECT_EQ(nothing->damaged, chunks);
  EXPECT_EQ(nothing->repaired, 0u);
  EXPECT_EQ(nothing->left.size(), chunks);
  EXPECT_TRUE(chunk_files().empty());
  // The files may be elsewhere and have other names.
  fs::create_directory(path("moved"));
  fs::copy(path("in/model.safetensors"), path("moved/m.safetensors"));
  const auto part = repair_from({path("moved")});
  FF_ASSERT_OK(part);
  EXPECT_EQ(part->left.size(), 1u);
  const auto whole = repair_from({path("other"), path("in/notes")});
  FF_ASSERT_OK(whole);
  EXPECT_EQ(whole->damaged, 1u);
  EXPECT_EQ(whole->repaired, 1u);
  EXPECT_TRUE(whole->left.empty());
  expect_intact();
  const auto again = repair_from({path("other")});
  FF_ASSERT_OK(again);
  EXPECT_EQ(again->damaged, 0u);
  EXPECT_TRUE(fs::is_empty(store() + "/tmp"));
}

TEST_F(RepairTest, FromFilesThatWereSavedAsPlainBytes) {
  fs::remove_all(store());
  SaveOptions options = step_one();
  options.opaque = {"*"};
  FF_ASSERT_OK(save({path("in")}, options));
  damage_all();
  const auto report = repair_from({path("in")});
  FF_ASSERT_OK(report);
  EXPECT_TRUE(report->left.empty());
  expect_intact();
}

TEST_F(RepairTest, FromAnotherStore) {
  fs::copy(store(), path("backup"), fs::copy_options::recursive);
  damage_all();
  // A copy that is damaged in another place.
  const std::string chunk = chunk_files().front().lexically_relative(store());
  flip_bit(path("backup/" + chunk), 8 * 4096);
  const auto part = repair_from({path("backup")});
  FF_ASSERT_OK(part);
  EXPECT_EQ(part->left.size(), 1u);
  flip_bit(path("backup/" + chunk), 8 * 4096);
  const auto whole = repair_from({path("backup")});
  FF_ASSERT_OK(whole);
  EXPECT_TRUE(whole->left.empty());
  expect_intact();
}

TEST_F(RepairTest, AStoreWithOtherDigestsIsRefused) {
  auto ctx = context();
  SaveOptions options = step_one();
  options.digest = simd::DigestKind::sha256;
  FF_ASSERT_OK(ff::checkpoint::save(ctx, path("backup"), {{path("in")}, {}}, options));
  damage_all();
  const auto report = repair_from({path("backup")});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, Errc::refused);
  EXPECT_NE(report.error().message.find("sha256"), std::string::npos) << report.error().message;
}

TEST_F(RepairTest, ADamagedIndexCannotBeRepaired) {
  flip_bit(index_path(), 8 * 400);
  const auto report = repair_from({path("in")});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, Errc::corrupt);
  EXPECT_NE(report.error().hint.find("salvage"), std::string::npos);
  EXPECT_EQ(repair_from({path("missing")}).error().code, Errc::corrupt);
}

// From damage to an intact store, by each way that a user has.
TEST_F(RepairTest, ADamagedRunIsNotStuck) {
  auto ctx = context();
  flip_bit(chunk_files().back(), 8 * 4200);
  const auto found = verify(ctx, store(), everything());
  FF_ASSERT_OK(found);
  ASSERT_EQ(found->damage.size(), 1u);
  EXPECT_EQ(load(load_to("@1", path("out"))).error().code, Errc::corrupt);
  // A new save of the same files has all chunks, and the old checkpoint has them again.
  SaveOptions options;
  options.step = 2;
  const auto saved = save({path("in")}, options);
  FF_ASSERT_OK(saved);
  EXPECT_EQ(saved->chunks_new, 1u);
  expect_intact();
  // Or the run goes, and no other run waits for it.
  flip_bit(chunk_files().back(), 8 * 4200);
  FF_ASSERT_OK(verify(ctx, store(), everything()));
  options.run = "other";
  options.opaque = {"*"};  // other chunks
  for (const uint64_t step : {1u, 2u}) {
    write_whole(path("file"), noise(60 + step, 1000));
    options.step = step;
    FF_ASSERT_OK(save({path("file")}, options));
  }
  ForgetOptions rules;
  rules.keep_last = 1;
  rules.apply = true;
  const auto forgotten = forget(ctx, store(), rules);
  FF_ASSERT_OK(forgotten);
  EXPECT_EQ(forgotten->forgotten, (std::vector<StepName>{{"other", 1}}));
  EXPECT_EQ(forgotten->blocked.size(), 1u);
  ForgetOptions whole;
  whole.runs = {"default"};
  whole.whole_runs = true;
  whole.apply = true;
  FF_ASSERT_OK(forget(ctx, store(), whole));
  EXPECT_EQ(list_runs(disk_, Store::open(disk_, store()).value()).value(),
            std::vector<std::string>{"other"});
}

// A chunk file that was moved aside and can be read after all is used again. And a power loss at
// any point of a repair leaves what was intact.
TEST(RepairInSimulation, FilesMovedAsideAreTriedFirst) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save({{"a", noise(1, 5000)}, {"b", noise(2, 5000)}}, 1));
  const auto chunk = sim.chunks_of(1).at(0);
  const auto store = sim.open();
  FF_ASSERT_OK(sim.disk.rename(store.chunk_path(chunk), store.set_aside_path(chunk)));
  auto ctx = sim.context(sim.disk);
  const auto report = repair(ctx, kStore, {.name = "@1", .sources = {"/in/b"}, .ff_version = {}});
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->repaired, 1u);
  EXPECT_TRUE(sim.sound());
}

TEST(RepairInSimulation, APowerLossAtEveryOperation) {
  const Content content{{"a", noise(1, 5000)}, {"b", noise(2, 5000)}, {"c", noise(3, 5000)}};
  bool finished = false;
  for (uint64_t n = 0; !finished; n++) {
    SCOPED_TRACE(n);
    SimStore sim(n);
    FF_ASSERT_OK(sim.save(content, 1));
    const auto chunk = sim.chunks_of(1).at(1);
    FF_ASSERT_OK(sim.disk.flip_bit(sim.open().chunk_path(chunk), 8 * 5000));
    sim.disk.crash_at(sim.disk.mutations() + n);
    auto ctx = sim.context(sim.disk);
    const RepairOptions options{.name = "@1", .sources = {"/in/a", "/in/b"}, .ff_version = {}};
    finished = repair(ctx, kStore, options).ok();
    sim.disk.power_loss();
    sim.disk.crash_at(UINT64_MAX);
    const auto left = sim.verify_all();
    FF_ASSERT_OK(left);
    EXPECT_LE(left->bad_chunks.size(), finished ? 0u : 1u);
    for (const auto& [name, bytes] : content) {
      FF_ASSERT_OK(io::put(sim.disk, "/in/" + name, bytes));
    }
    FF_ASSERT_OK(repair(ctx, kStore, options));
    EXPECT_TRUE(sim.sound());
  }
}

}  // namespace
}  // namespace ff::checkpoint
