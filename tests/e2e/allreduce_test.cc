// ff allreduce as it is typed: the table that readers of nccl-tests expect, right results of every
// kind, what is refused, and ranks that are lost.
#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "e2e/child.h"

namespace ff::cmd {
namespace {

using Words = std::vector<std::string>;

Words bench_words(Words words) {
  words.insert(words.begin(), {"allreduce", "bench"});
  return words;
}
test::ProcessResult bench(Words words) { return test::run_ff(bench_words(std::move(words))); }

// A row as programs read it: words between spaces, lines with '#' left out.
struct Row {
  std::vector<std::string> words;
  uint64_t size() const { return std::stoull(words[0]); }
  uint64_t count() const { return std::stoull(words[1]); }
};
std::vector<Row> rows_of(const std::string& out) {
  std::vector<Row> rows;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Row& row = rows.emplace_back();
    for (std::string word; words >> word;) row.words.push_back(word);
  }
  return rows;
}

TEST(AllreduceBench, MistakesAreNamed) {
  struct Case {
    Words words;
    std::string said;
  };
  const Case cases[] = {
      {{"--nproc", "0"}, "--nproc 0: 1 to 64"},
      {{"--nproc", "65"}, "--nproc 65: 1 to 64"},
      {{"-b", "8M", "-e", "4M"}, "--maxbytes 4.00MiB: at least --minbytes (8.00MiB)"},
      {{"-f", "1"}, "--stepfactor 1: 2 or more"},
      {{"-i", "0"}, "--stepbytes 0"},
      {{"-n", "0"}, "--iters 0"},
      {{"--nproc", "2", "--root", "2"}, "--root 2: must be below the number of ranks (2)"},
      {{"-d", "complex"}, "complex"},
      {{"-o", "xor"}, "xor"},
      {{"--collective", "all_to_all"}, "all_to_all"},
      {{"--deadline", "0"}, "--deadline"},
      {{"-g", "2"}, "--ngpus 2: each rank is a process"},
      {{"-t", "0"}, "--nthreads 0: each rank is a process"},
  };
  for (const Case& one : cases) {
    const auto ran = bench(one.words);
    EXPECT_EQ(ran.exit, 2) << one.words[0] << ": " << ran.err;
    EXPECT_NE(ran.err.find(one.said), std::string::npos) << one.words[0] << ": " << ran.err;
    EXPECT_EQ(ran.out, "") << one.words[0];
  }
}

// The command of ff-training(7) for torchrun, on one machine and small: Debian 12's PyTorch must
// know its options.
TEST(AllreduceBench, RunsUnderTorchrunAsThePageSays) {
  if (::access("/usr/bin/torchrun", X_OK) != 0)
    GTEST_SKIP() << "no torchrun: install python3-torch";
  const std::string page = test::read_file(FF_SOURCE_DIR "/man/ff-training.7");
  const size_t begin = page.find("\ntorchrun ");
  ASSERT_NE(begin, std::string::npos);
  std::string line = page.substr(begin + 1, page.find("#", begin) - begin - 1);
  for (const auto& [from, to] : {std::pair{"\\e\n", " "},
                                 {"\\-", "-"},
                                 {"--nnodes 4", "--nnodes 1"},
                                 {"--nproc_per_node 8", "--nproc_per_node 2"},
                                 {"node1:29500", "127.0.0.1:0"},
                                 {" ff ", " " FF_BINARY " "},
                                 {"-b 186M -e 186M", "-b 1K -e 1K"}}) {
    ASSERT_NE(line.find(from), std::string::npos) << from << " in " << line;
    for (size_t at = 0; (at = line.find(from, at)) != std::string::npos; at += strlen(to)) {
      line.replace(at, strlen(from), to);
    }
  }
  test::Child ran(test::Launch{.argv = {"sh", "-c", "exec " + line}});
  EXPECT_EQ(ran.finish(), 0) << line << ran.out << ran.err;
  EXPECT_NE(ran.out.find("# Out of bounds values : 0 OK"), std::string::npos) << ran.out << ran.err;
}

TEST(AllreduceBench, TheTableIsThatOfNcclTests) {
  const auto ran =
      bench({"--nproc", "3", "-b", "4", "-e", "1M", "-f", "16", "-n", "3", "-g", "1", "-t", "1"});
  ASSERT_EQ(ran.exit, 0) << ran.err << ran.out;
  for (const char* const line :
       {"#                                                              out-of-place               "
        "        in-place          \n",
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong     "
        "time   algbw   busbw  #wrong \n",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             "
        "(us)  (GB/s)  (GB/s)       \n",
        "# Out of bounds values : 0 OK\n", "# Avg bus bandwidth    : "}) {
    EXPECT_NE(ran.out.find(line), std::string::npos) << line << " in\n" << ran.out;
  }
  const auto rows = rows_of(ran.out);
  ASSERT_EQ(rows.size(), 5u) << ran.out;  // 4, 64, 1K, 16K, 256K
  uint64_t size = 4;
  for (const Row& row : rows) {
    ASSERT_EQ(row.words.size(), 13u) << ran.out;
    EXPECT_EQ(row.size(), size);
    EXPECT_EQ(row.count(), size / 4);
    EXPECT_EQ(row.words[2], "float");
    EXPECT_EQ(row.words[3], "sum");
    EXPECT_EQ(row.words[4], "-1");
    const double us = std::stod(row.words[5]), algbw = std::stod(row.words[6]),
                 busbw = std::stod(row.words[7]);
    EXPECT_NEAR(algbw, static_cast<double>(size) / us / 1e3, 0.01 + algbw * 0.01);
    EXPECT_NEAR(busbw, algbw * 4 / 3, 0.011 + busbw * 0.01);
    EXPECT_EQ(row.words[8], "0");
    EXPECT_EQ(row.words[12], "0");
    size *= 16;
  }
}

TEST(AllreduceBench, EveryTypeOperationAndKindIsRight) {
  const auto all =
      bench({"--nproc", "4", "-b", "4104", "-e", "4104", "-n", "1", "-d", "all", "-o", "all"});
  ASSERT_EQ(all.exit, 0) << all.err << all.out;
  EXPECT_EQ(rows_of(all.out).size(), 9u * 5);
  for (const std::string kind : {"all_reduce", "all_gather", "broadcast", "reduce",
                                 "reduce_scatter", "alltoall", "gather", "scatter", "sendrecv"}) {
    const auto ran = bench({"--nproc", "3", "--collective", kind, "-b", "3000", "-e", "1000K", "-f",
                            "300", "-n", "2", "-r", "2", "-d", "bfloat16"});
    ASSERT_EQ(ran.exit, 0) << ran.err << ran.out;
    for (const Row& row : rows_of(ran.out)) {
      const bool in_place = kind != "alltoall" && kind != "sendrecv";
      EXPECT_EQ(row.words[8], "0") << ran.out;
      EXPECT_EQ(row.words[12], in_place ? "0" : "N/A") << ran.out;
    }
    EXPECT_NE(ran.out.find("# Collective test starting: " + kind + "_perf\n"), std::string::npos);
  }
}

TEST(AllreduceBench, JsonHasTheSame) {
  const auto ran = bench({"--nproc", "2", "-b", "1K", "-e", "1K", "-n", "2", "--json"});
  ASSERT_EQ(ran.exit, 0) << ran.err;
  for (const char* const part :
       {R"("rows":[{"bytes":1024,"count":256,"type":"float")", R"("redop":"sum")",
        R"("out_of_place":{"seconds":)", R"("p99_seconds":)", R"("in_place":{)", R"("wrong":0)"}) {
    EXPECT_NE(ran.out.find(part), std::string::npos) << part << " in " << ran.out;
  }
}

// A bench that goes on and on, with its ranks: the first is rank 0.
class LongBench {
 public:
  explicit LongBench(const std::string& iterations)
      : mark_(iterations),
        child_({.argv = Words{FF_BINARY, "allreduce", "bench", "--nproc", "3", "-b", "8M", "-e",
                              "8M", "-n", iterations, "--deadline", "5s"}}) {}
  // All ranks run, and the first row is being measured.
  bool started() {
    return child_.wait_for_out("#wrong") &&
           test::eventually([&] { return test::processes(mark_).size() == 3; });
  }
  pid_t other_rank() const {
    for (const pid_t pid : test::processes(mark_)) {
      if (pid != child_.pid()) return pid;
    }
    return 0;
  }
  bool all_gone() {
    return test::eventually([&] { return test::processes(mark_).empty(); });
  }
  test::Child& child() { return child_; }

 private:
  const std::string mark_;
  test::Child child_;
};

TEST(AllreduceBench, ARankThatIsKilledIsNamed) {
  LongBench bench("100000007");
  ASSERT_TRUE(bench.started()) << bench.child().err;
  const pid_t victim = bench.other_rank();
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGKILL);
  EXPECT_EQ(bench.child().finish(), 1);
  const std::string process = "(process " + std::to_string(victim) + ") is gone";
  EXPECT_NE(bench.child().err.find(process), std::string::npos) << bench.child().err;
  EXPECT_TRUE(bench.all_gone());
}

TEST(AllreduceBench, WithoutARankTheOthersGoOn) {
  const std::string mark = "65552";
  test::Child child({.argv = Words{FF_BINARY, "allreduce", "bench", "--nproc", "3", "-b", mark,
                                   "-e", "1M", "-i", mark, "-n", "300", "--on-failure", "shrink"}});
  std::set<pid_t> ranks;
  ASSERT_TRUE(test::eventually([&] {
    ranks = test::processes(mark);
    return ranks.size() == 3;
  }));
  ranks.erase(child.pid());
  ASSERT_TRUE(child.wait_for_out("#wrong")) << child.err;
  const pid_t victim = *ranks.begin();
  ::kill(victim, SIGKILL);
  EXPECT_EQ(child.finish(), 0) << child.err;
  const std::string process = "(process " + std::to_string(victim) + ") is gone";
  EXPECT_NE(child.out.find(process), std::string::npos) << child.out;
  EXPECT_NE(child.out.find(": 2 ranks go on\n"), std::string::npos) << child.out;
  EXPECT_NE(child.out.find("# Out of bounds values : 0 OK"), std::string::npos) << child.out;
  EXPECT_EQ(rows_of(child.out).size(), 1024u * 1024 / 65552) << child.out;
}

TEST(AllreduceBench, ARankThatStandsStillIsNamedAtTheDeadline) {
  LongBench bench("100000009");
  ASSERT_TRUE(bench.started()) << bench.child().err;
  const pid_t victim = bench.other_rank();
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGSTOP);
  EXPECT_EQ(bench.child().finish(), 6);
  const std::string process = "(process " + std::to_string(victim) + ")";
  EXPECT_NE(bench.child().err.find(process), std::string::npos) << bench.child().err;
  EXPECT_TRUE(bench.all_gone());
}

TEST(AllreduceBench, ItStopsWhenItIsTold) {
  LongBench bench("100000037");
  ASSERT_TRUE(bench.started()) << bench.child().err;
  bench.child().signal(SIGINT);
  EXPECT_EQ(bench.child().finish(), 130);
  EXPECT_TRUE(bench.all_gone());
}

TEST(AllreduceBench, LargeSizesAreHeldAgainstWhatMemoryGives) {
  const auto ran = bench({"--nproc", "2", "-b", "64M", "-e", "64M", "-n", "1", "--simd", "sse2"});
  ASSERT_EQ(ran.exit, 0) << ran.err << ran.out;
  EXPECT_NE(ran.out.find("# Memory traffic       : "), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find(", sse2\n"), std::string::npos) << ran.out;
}

class AllreduceRun : public testing::Test {
 protected:
  test::ProcessResult run(Words words) {
    words.insert(words.begin(), {"allreduce", "run"});
    return test::run_ff(std::move(words));
  }
  // `count` floats; each rank's own.
  void write_floats(const std::string& name, size_t count, float first) {
    std::vector<float> floats(count);
    for (size_t i = 0; i < count; i++) floats[i] = first + static_cast<float>(i % 1000);
    test::write_file(dir_ / name, {reinterpret_cast<const char*>(floats.data()), count * 4});
  }
  std::vector<float> floats_of(const std::string& name, size_t from = 0) {
    const std::string bytes = test::read_file(dir_ / name);
    std::vector<float> floats((bytes.size() - from) / 4);
    std::memcpy(floats.data(), bytes.data() + from, floats.size() * 4);
    return floats;
  }
  static std::string with_header(const std::string& json, const std::string& data) {
    const uint64_t length = json.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + json + data;
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(dir_.path()), {}));
  }

  test::TempDir dir_;
};

TEST_F(AllreduceRun, OneFileOrOneForEachRank) {
  constexpr size_t kCount = 9'000'001;  // several pieces, the last one odd
  for (int rank = 0; rank < 3; rank++) {
    write_floats("g." + std::to_string(rank), kCount, static_cast<float>(rank));
  }
  const auto one = run({"--in", dir_ / "g.%r", "--out", dir_ / "sum"});
  ASSERT_EQ(one.exit, 0) << one.err;
  EXPECT_NE(one.out.find("3 files of 34.3MiB, sum: "), std::string::npos) << one.out;
  const auto sum = floats_of("sum");
  ASSERT_EQ(sum.size(), kCount);
  for (size_t i = 0; i < kCount; i++) ASSERT_EQ(sum[i], 3 + 3 * static_cast<float>(i % 1000)) << i;
  const auto all = run({"--in", dir_ / "g.%r", "--out", dir_ / "avg.%r", "-o", "avg", "--json"});
  ASSERT_EQ(all.exit, 0) << all.err;
  EXPECT_NE(all.out.find(R"("ranks":3,"bytes":36000004)"), std::string::npos) << all.out;
  const auto average = floats_of("avg.2");
  for (size_t i = 0; i < kCount; i += 999) ASSERT_EQ(average[i], 1 + static_cast<float>(i % 1000));
  EXPECT_EQ(test::read_file(dir_ / "avg.0"), test::read_file(dir_ / "avg.1"));
  EXPECT_EQ(files(), 3u + 1 + 3) << "and no leftover";
}

TEST_F(AllreduceRun, SafetensorsTensorByTensor) {
  const std::string tensors = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                              R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  const std::string data0 = {
      "\0\0\x80\x3f\0\0\0\x40"
      "\1\2\3",
      11};  // 1, 2; 1 2 3
  const std::string data1 = {
      "\0\0\0\x40\0\0\0\x40"
      "\4\5\6",
      11};  // 2, 2; 4 5 6
  test::write_file(dir_ / "0.safetensors", with_header("{" + tensors, data0));
  test::write_file(dir_ / "1.safetensors",
                   with_header(R"({"__metadata__":{"rank":"1"},)" + tensors, data1));
  const auto ran = run({"--in", dir_ / "%r.safetensors", "--out", dir_ / "sum.safetensors"});
  ASSERT_EQ(ran.exit, 0) << ran.err;
  const std::string sum = {
      "\0\0\x40\x40\0\0\x80\x40"
      "\5\7\x9",
      11};  // 3, 4; 5 7 9
  EXPECT_EQ(test::read_file(dir_ / "sum.safetensors"), with_header("{" + tensors, sum));

  const std::string other = R"({"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                            R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  test::write_file(dir_ / "1.safetensors", with_header(other, data1));
  const auto differs = run({"--in", dir_ / "%r.safetensors", "--out", dir_ / "x.safetensors"});
  EXPECT_EQ(differs.exit, 2);
  EXPECT_NE(differs.err.find("has a F32[2] where"), std::string::npos) << differs.err;
  EXPECT_NE(differs.err.find("has a F32[1,2]"), std::string::npos) << differs.err;
}

TEST_F(AllreduceRun, MistakesAreNamedAndLeaveNothing) {
  write_floats("g.0", 10, 0);
  write_floats("g.1", 10, 0);
  write_floats("short.0", 10, 0);
  write_floats("short.1", 9, 0);
  test::write_file(dir_ / "bad.0.safetensors", "not one");
  test::write_file(dir_ / "there", "old");
  struct Case {
    Words words;
    int exit;
    std::string said;
  };
  const std::string in = dir_ / "g.%r", out = dir_ / "new";
  const Case cases[] = {
      {{"--in", dir_ / "g.0", "--out", out}, 2, "Write %r for the number of the rank"},
      {{"--in", dir_ / "g.%x", "--out", out}, 2, "Write %r for the rank"},
      {{"--in", in, "--out", dir_ / "a%"}, 2, "Write %r for the rank"},
      {{"--in", dir_ / "no.%r", "--out", out}, 1, "no.0: no such file"},
      {{"--in", in, "--out", out, "--nproc", "3"}, 1, "g.2: No such file"},
      {{"--in", in, "--out", out, "--nproc", "0"}, 2, "--nproc 0"},
      {{"--in", in, "--out", out, "-d", "int64", "--nproc", "2"}, 0, ""},
      {{"--in", dir_ / "short.%r", "--out", dir_ / "x"}, 2, "has 40 bytes of data"},
      {{"--in", dir_ / "short.%r", "--out", dir_ / "x", "-d", "double"},
       2,
       "whole number of elements"},
      {{"--in", dir_ / "bad.%r.safetensors", "--out", dir_ / "x"}, 1, "bad.0.safetensors"},
      {{"--in", dir_ / "bad.%r.safetensors", "--out", dir_ / "x", "-d", "half"}, 2, "--datatype"},
      {{"--in", in, "--out", dir_ / "there"}, 5, "there: exists already"},
      {{"--in", in, "--out", dir_ / "no/where"}, 1, "no/where"},
  };
  const size_t before = files();
  for (const Case& one : cases) {
    const auto ran = run(one.words);
    EXPECT_EQ(ran.exit, one.exit) << one.said << ": " << ran.err;
    EXPECT_NE(ran.err.find(one.said), std::string::npos) << one.said << ": " << ran.err;
  }
  EXPECT_EQ(files(), before + 1) << "only the one that went well";
  EXPECT_EQ(test::read_file(dir_ / "there"), "old");
  EXPECT_EQ(run({"--in", in, "--out", dir_ / "there", "--force"}).exit, 0);
  EXPECT_EQ(test::read_file(dir_ / "there").size(), 40u);
}

}  // namespace
}  // namespace ff::cmd
