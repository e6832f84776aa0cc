// Watches a directory on the simulated disk and clock: which files count as finished, are saved
// once, or are skipped.
#include "training/checkpoint/save/watch.h"

#include "training/checkpoint/sim_store.h"

namespace ff::checkpoint {
namespace {

// A clock that runs a callback each time the watch sleeps.
class BusyClock final : public Clock {
 public:
  explicit BusyClock(sim::SimClock& below) : below_(below) {}
  std::function<void(int)> each;  // how often it slept before
  int64_t wall_ns() override { return below_.wall_ns(); }
  int64_t steady_ns() override { return below_.steady_ns(); }
  void sleep_ns(int64_t ns) override {
    below_.sleep_ns(ns);
    if (each) each(slept_++);
  }

 private:
  sim::SimClock& below_;
  int slept_ = 0;
};

class WatchTest : public testing::Test {
 protected:
  WatchTest() {
    FF_CHECK(io::make_dirs(store_.disk, "/watched").ok());
    options_.dir = "/watched";
  }

  void put(const std::string& name, const std::string& content) {
    FF_ASSERT_OK(io::put(store_.disk, "/watched/" + name, content));
  }

  // Runs until `each` asks to stop (or all is settled with `once`); what was told is in told_.
  Result<void> run(std::function<void(int)> each = {}) {
    clock_.each = std::move(each);
    SeededRng rng(9);
    Context ctx{store_.disk, clock_, rng, stop_, store_.progress, 1};
    return watch(
        ctx, kStore, options_, [&] { return std::exchange(moved_, {}); },
        [&](const std::string& path, const Result<SaveReport>& saved) -> Result<void> {
          told_.push_back(path + (saved ? " " + saved->name.text() : " failed"));
          return {};
        });
  }

  SimStore store_{3};
  BusyClock clock_{store_.clock};
  StopToken stop_{clock_};
  WatchOptions options_;
  std::vector<std::string> moved_;
  std::vector<std::string> told_;
};

TEST_F(WatchTest, AFileIsSavedOnceItNoLongerChanges) {
  options_.once = true;
  put("model-40.bin", "half");
  const int64_t began = store_.clock.steady_ns();
  int64_t changed = 0;
  FF_ASSERT_OK(run([&](int slept) {
    if (slept == 45) {  // still being written: the wait starts over
      put("model-40.bin", "whole");
      changed = store_.clock.steady_ns();
    }
  }));
  EXPECT_EQ(told_, std::vector<std::string>{"/watched/model-40.bin default@40"});
  EXPECT_GT(changed, began);
  EXPECT_GE(store_.clock.steady_ns() - changed, options_.settle_ns);
}

TEST_F(WatchTest, ARenamedFileIsSavedAtOnce) {
  put("a-1.bin", "content");
  moved_ = {"a-1.bin"};
  const auto ended = run([&](int) { stop_.request(); });
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, Errc::interrupted);
  EXPECT_EQ(told_, std::vector<std::string>{"/watched/a-1.bin default@1"});
}

TEST_F(WatchTest, NothingIsSavedTwice) {
  options_.once = true;
  put("a-1.bin", "one");
  FF_ASSERT_OK(run());
  put("b-2.bin", "two");
  FF_ASSERT_OK(run());  // another watch: a-1 is in the store already
  EXPECT_EQ(told_,
            (std::vector<std::string>{"/watched/a-1.bin default@1", "/watched/b-2.bin default@2"}));
}

TEST_F(WatchTest, UnfinishedNamesAreSkipped) {
  options_.once = true;
  put("a.tmp", "1");
  put("b.part", "2");
  put(".hidden", "3");
  FF_ASSERT_OK(run());
  EXPECT_TRUE(told_.empty());
}

TEST_F(WatchTest, SafetensorsMustParse) {
  options_.once = true;
  const std::string whole = make_safetensors({{"t", "U8", {100}, noise(1, 100)}});
  put("m-3.safetensors", whole.substr(0, whole.size() - 10));
  FF_ASSERT_OK(run());
  EXPECT_TRUE(told_.empty());
  put("m-3.safetensors", whole);
  FF_ASSERT_OK(run());
  EXPECT_EQ(told_, std::vector<std::string>{"/watched/m-3.safetensors default@3"});
}

TEST_F(WatchTest, DirectoriesAndFailures) {
  options_.once = true;
  FF_ASSERT_OK(store_.disk.make_dir("/watched/checkpoint-8", 0755));
  put("checkpoint-8/weights.bin", "w");
  put("x-8.bin", "another step 8");
  const auto ended = run();
  ASSERT_FALSE(ended.ok());  // with --once the first error is the outcome
  EXPECT_EQ(ended.error().code, Errc::refused);
  EXPECT_EQ(told_, (std::vector<std::string>{"/watched/checkpoint-8 default@8",
                                             "/watched/x-8.bin failed"}));
}

TEST(StepInName, TheNumberAtTheEnd) {
  EXPECT_EQ(step_from_name("model-1000.safetensors"), 1000U);
  EXPECT_EQ(step_from_name("step_7"), 7U);
  EXPECT_EQ(step_from_name("42.pt"), 42U);
  EXPECT_EQ(step_from_name("model.safetensors"), std::nullopt);
  EXPECT_EQ(step_from_name("v2-final"), std::nullopt);
  EXPECT_EQ(step_from_name("99999999999999999999"), std::nullopt);
}

}  // namespace
}  // namespace ff::checkpoint
