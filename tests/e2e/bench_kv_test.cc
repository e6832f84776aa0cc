// ff bench kv on an SQLite store: what it reports, that it leaves an empty store, and that it
// refuses a store that a cluster may use.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/child.h"

namespace ff::cmd {
namespace {

test::ProcessResult bench_kv(std::vector<std::string> words) {
  words.insert(words.begin(), {"bench", "kv"});
  return test::run_ff(std::move(words));
}

TEST(BenchKv, ChecksAndMeasuresAStoreTwice) {
  const test::TempDir dir;
  for (int i = 0; i < 2; i++) {
    const auto ran =
        bench_kv({"--dir", dir / "kv", "--files", "300", "--in-flight", "16", "--json"});
    ASSERT_EQ(ran.exit, 0) << ran.err;
    const auto data = nlohmann::json::parse(ran.out)["data"];
    EXPECT_EQ(data["conforms"], true);
    ASSERT_EQ(data["phases"].size(), 2u);
    EXPECT_GT(data["phases"][0]["per_second"], 0);
  }
}

TEST(BenchKv, AFilledStoreIsKeptToSeeItsSize) {
  const test::TempDir dir;
  const std::vector<std::string> words = {"--dir", dir / "kv",   "--files", "100",    "--in-flight",
                                          "16",    "--existing", "130",     "--keep", "--json"};
  const auto ran = bench_kv(words);
  ASSERT_EQ(ran.exit, 0) << ran.err;
  const auto data = nlohmann::json::parse(ran.out)["data"];
  EXPECT_EQ(data["kept"], true);
  ASSERT_EQ(data["phases"].size(), 3u);
  EXPECT_EQ(data["phases"][0]["phase"], "fill");
  const auto again = bench_kv(words);
  EXPECT_NE(again.exit, 0);
  EXPECT_EQ(nlohmann::json::parse(again.out)["error"]["code"], "exists") << again.out;
}

TEST(BenchKv, MistakesAreNamed) {
  EXPECT_EQ(bench_kv({}).exit, 2);  // no --dir
  EXPECT_EQ(bench_kv({"--dir", "/nowhere", "--files", "0"}).exit, 2);
  EXPECT_EQ(bench_kv({"--dir", "/nowhere", "--in-flight", "5000"}).exit, 2);
  EXPECT_EQ(bench_kv({"--engine", "postgres://a"}).exit, 2);
}

}  // namespace
}  // namespace ff::cmd
