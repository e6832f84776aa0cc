// The checks of `ff bench kv`: a store that keeps the rules of transactions passes and is empty
// afterwards; one that breaks a rule is refused, with the rule.
#include "lab/bench/kv_load.h"

#include <gtest/gtest.h>

#include <map>

#include "platform/base/gate.h"
#include "platform/base/stop_token.h"
#include "platform/base/system_loop.h"
#include "platform/kv/memory_engine.h"
#include "platform/kv/record_checksum.h"

namespace ff::bench {
namespace {

// A map that detects no conflict.
class NaiveEngine final : public kv::Engine {
 public:
  explicit NaiveEngine(Loop& loop) : loop_(loop) {}

  Task<Result<void>> run(kv::TxnFunction function, int64_t) override {
    Transaction txn(*this);
    FF_CO_TRY(co_await function(txn));
    for (const auto& [key, value] : txn.writes()) {
      if (value) {
        map_[key] = kv::with_checksum(key, *value);
      } else {
        map_.erase(key);
      }
    }
    co_return Result<void>();
  }
  Task<Result<void>> view(kv::TxnFunction function, int64_t) override {
    Transaction txn(*this);
    co_return co_await function(txn);
  }

 private:
  class Transaction final : public kv::Txn {
   public:
    explicit Transaction(NaiveEngine& engine) : Txn(kv::kNoLimit), engine_(engine) {}

   private:
    Task<Result<std::optional<std::string>>> fetch(std::string key, bool) override {
      std::optional<std::string> value;
      const auto found = engine_.map_.find(key);
      if (found != engine_.map_.end()) value = found->second;
      YieldWait others_first(engine_.loop_);
      FF_CO_TRY(co_await others_first);
      co_return value;
    }
    Task<Result<std::vector<kv::Entry>>> fetch_range(kv::Range range, std::string) override {
      std::vector<kv::Entry> entries;
      for (auto at = engine_.map_.lower_bound(range.begin);
           at != engine_.map_.end() && at->first < range.end && entries.size() < range.limit;
           ++at) {
        entries.push_back({at->first, at->second});
      }
      co_return entries;
    }

    NaiveEngine& engine_;
  };

  Loop& loop_;
  std::map<std::string, std::string> map_;
};

class KvLoadTest : public testing::Test {
 protected:
  SystemClock clock_;
  SystemLoop loop_{clock_};
  SeededRng rng_{1};
  kv::MemoryStore store_;
  kv::MemoryEngine engine_{store_, loop_, rng_, {.delay_max_ns = 1000, .conflict = 0.1}};
};

TEST_F(KvLoadTest, AStoreThatKeepsTheRules) {
  EXPECT_TRUE(run_task(loop_, check_kv_empty(engine_, INT64_MAX)).ok());
  const auto checked = run_task(loop_, check_kv_contract(engine_, loop_, INT64_MAX));
  ASSERT_TRUE(checked.ok()) << checked.error().message;
  EXPECT_TRUE(run_task(loop_, check_kv_empty(engine_, INT64_MAX)).ok());
  const StopToken stop(clock_);
  const KvLoad load{.files = 200, .in_flight = 8, .existing = 120};
  const auto phases = run_task(loop_, run_kv_load(engine_, loop_, stop, load));
  ASSERT_TRUE(phases.ok()) << phases.error().message;
  ASSERT_EQ(phases->size(), 3u);
  EXPECT_EQ(phases->at(0).phase, "fill");
  EXPECT_EQ(phases->at(1).phase, "create");
  EXPECT_EQ(phases->at(2).operations, 200u);  // each found its file
  const auto used = run_task(loop_, check_kv_empty(engine_, INT64_MAX));
  ASSERT_FALSE(used.ok());
  EXPECT_EQ(used.error().code, Errc::exists);
  EXPECT_TRUE(run_task(loop_, clear_kv(engine_, loop_, INT64_MAX, load)).ok());
  EXPECT_TRUE(run_task(loop_, check_kv_empty(engine_, INT64_MAX)).ok());
}

TEST_F(KvLoadTest, AStoreThatLosesUpdates) {
  NaiveEngine naive(loop_);
  const auto checked = run_task(loop_, check_kv_contract(naive, loop_, INT64_MAX));
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, Errc::fault);
  EXPECT_NE(checked.error().message.find("increments"), std::string::npos)
      << checked.error().message;
}

}  // namespace
}  // namespace ff::bench
