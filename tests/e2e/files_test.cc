// The file system of real daemons under faults drawn from a seed: programs change names, write,
// append and read while the metadata service and storage nodes are killed and halted. What they
// were told is linearizable, no content and no record is lost, and fsck finds nothing.
//
// FF_FAULT_RUNS says how many runs, FF_FAULT_SEED the seed of the first; each prints its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "e2e/daemons.h"
#include "lab/scenario/files_load.h"

namespace ff::cmd {
namespace {

using scenario::files_parts::FilesLoad;
using scenario::files_parts::FilesOracle;

constexpr int64_t kFaultsNs = 5 * kSecond;

class FilesTest : public DaemonsTest {
 protected:
  Words placement() const override { return {"--replicas", "2", "--targets-per-disk", "4"}; }
  Words meta_options() const override { return {"--collect-after", "1s"}; }

  static uint64_t number(const char* name, uint64_t usual) {
    const char* const asked = std::getenv(name);
    return asked == nullptr ? usual : std::strtoull(asked, nullptr, 10);
  }
  std::vector<net::Address> servers() { return {net::parse_address(meta()).value()}; }
  // A daemon dies or stands still, and is back after a while.
  void fault(Rng& rng) {
    const size_t which = rng.below(daemons_.size());
    const auto pause = static_cast<int64_t>(rng.below(1500)) * kMillisecond;
    if (rng.below(3) == 0) {
      daemons_[which]->signal(SIGSTOP);
      run_for(pause);
      daemons_[which]->signal(SIGCONT);
      return;
    }
    kill(which);
    run_for(pause);
    which == kMeta ? start_meta() : start(which);
  }
  void run_with(uint64_t seed);
  void expect_whole();
};

void FilesTest::expect_whole() {
  json found;
  until("all that was removed is collected", [&] {
    const auto ran = admin({"fsck", "--orphans-after", "0s", "--json"});
    found = json::parse(ran.out, nullptr, false)["data"];
    return found.is_object() && found["garbage"] == 0 && found["sessions"] == 0;
  });
  for (const json& problem : found["told"]) {
    // What was written to a file that was given up and removed may have arrived late.
    if (problem["kind"] != "orphan-chunks") ADD_FAILURE() << problem.dump();
  }
}

void FilesTest::run_with(uint64_t seed) {
  SeededRng rng(seed);
  FilesOracle oracle;
  oracle.now_ns = [this] { return clock_.steady_ns(); };
  oracle.report_violation = [](const std::string& what) { ADD_FAILURE() << what; };
  client::FileSystem examiner(*context_, servers(), {.arena = {}});
  const auto made = run_task(loop_, make_dirs(examiner, oracle, fmt::format("run{}", seed)));
  ASSERT_TRUE(made.ok()) << made.error().message;
  std::vector<std::unique_ptr<FilesLoad>> loads;
  for (int i = 0; i < 3; i++) {
    loads.push_back(std::make_unique<FilesLoad>(*context_, servers(), oracle));
  }
  const int64_t end_ns = clock_.steady_ns() + kFaultsNs;
  while (clock_.steady_ns() < end_ns && !HasFailure()) {
    run_for(static_cast<int64_t>(rng.below(1000)) * kMillisecond);
    fault(rng);
  }
  until("all chains serve", [&] { return all_serve(); });
  for (const auto& load : loads) load->stop();
  until("programs end",
        [&] { return std::ranges::none_of(loads, [](const auto& load) { return load->busy(); }); });
  const auto log = run_task(loop_, read_log(examiner, oracle));
  for (const auto& load : loads) run_task(loop_, load->close());
  run_task(loop_, examiner.close());
  ASSERT_TRUE(log.ok()) << log.error().message;
  if (const auto wrong = contradiction(oracle, *log)) ADD_FAILURE() << *wrong;
  EXPECT_GT(oracle.changes, 0u);
  expect_whole();
}

TEST_F(FilesTest, HoldWhateverBefallsTheDaemons) {
  const uint64_t first = number("FF_FAULT_SEED", system_seed() >> 16);
  for (uint64_t run = 0; run < number("FF_FAULT_RUNS", 2) && !HasFailure(); run++) {
    SCOPED_TRACE(fmt::format("FF_FAULT_SEED={}", first + run));
    run_with(first + run);
    std::cout << "seed " << first + run << (HasFailure() ? " fails" : " holds") << std::endl;
  }
}

}  // namespace
}  // namespace ff::cmd
