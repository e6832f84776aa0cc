// `ff checkpoint` as its users meet it: the real binary, its words, exit codes and JSON.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "cli/child.h"

namespace ff::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class CheckpointCommand : public testing::Test {
 protected:
  Ran checkpoint(std::vector<std::string> words) {
    words.insert(words.begin(), {"ff", "checkpoint"});
    return run({.argv = words,
                .env = {{"FF_STORE", store()}, {"FF_STATE", dir_ / "state"}},
                .program = FF_BINARY});
  }
  Json data(std::vector<std::string> words) {
    words.push_back("--json");
    const Ran ran = checkpoint(words);
    const Json envelope = Json::parse(ran.out, nullptr, false);
    EXPECT_TRUE(envelope.is_object()) << ran.out << ran.err;
    if (!envelope.is_object()) return {};
    EXPECT_EQ(envelope["exit"], ran.exit);
    EXPECT_EQ(envelope["command"], "checkpoint " + words[0]);
    EXPECT_EQ(envelope["error"].is_null(), ran.exit == 0);
    return envelope["data"];
  }
  std::string store() const { return dir_ / "store"; }
  std::string input(const std::string& name, const std::string& content) {
    write_file(dir_ / name, content);
    return dir_ / name;
  }
  // Flips a bit in the middle of the largest file of the store.
  void damage() {
    fs::path largest;
    for (const auto& entry : fs::recursive_directory_iterator(store() + "/chunks")) {
      if (!entry.is_regular_file()) continue;
      if (largest.empty() || entry.file_size() > fs::file_size(largest)) largest = entry.path();
    }
    std::fstream file(largest, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(5000);
    const char byte = static_cast<char>(file.get() ^ 4);
    file.seekp(5000);
    file.put(byte);
    ASSERT_TRUE(file.flush());
  }

  TempDir dir_;
};

std::string noise(size_t size) {
  std::string out(size, '\0');
  uint64_t state = 88172645463325252;
  for (char& c : out) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    c = static_cast<char>(state);
  }
  return out;
}

TEST_F(CheckpointCommand, TheWholeStory) {
  const std::string first = noise(5'000'000);
  const auto saved = data({"save", input("model.bin", first)});
  EXPECT_EQ(saved["outcome"], "committed");
  EXPECT_EQ(saved["step"], 1);
  EXPECT_EQ(saved["bytes"], first.size());
  const std::string second = first + noise(1'000'000);
  input("model.bin", second);
  EXPECT_EQ(checkpoint({"save", dir_ / "model.bin"}).out, "default@2\n");
  EXPECT_EQ(checkpoint({"latest"}).out, "2\n");
  EXPECT_EQ(data({"ls"})["steps"].size(), 2U);
  EXPECT_EQ(data({"verify", "--all"})["intact"].size(), 2U);
  EXPECT_NE(checkpoint({"ls"}).out.find("verified"), std::string::npos);
  EXPECT_EQ(data({"show", "@1"})["entries"][0]["file"], "model.bin");
  EXPECT_EQ(data({"diff", "@1", "@2"})["files"]["changed"], 1);
  EXPECT_EQ(checkpoint({"load", "@1", dir_ / "one"}).exit, 0);
  EXPECT_EQ(read_file(dir_ / "one/model.bin"), first);
  const auto plan = data({"forget", "--keep-last", "1"});
  EXPECT_EQ(plan["applied"], false);
  EXPECT_EQ(plan["forgotten"][0], "default@1");
  EXPECT_EQ(data({"ls"})["steps"].size(), 2U);
  EXPECT_EQ(data({"forget", "--keep-last", "1", "--apply"})["applied"], true);
  EXPECT_EQ(data({"ls"})["steps"].size(), 1U);
  EXPECT_EQ(checkpoint({"prune", "--grace", "0s"}).exit, 0);
  EXPECT_EQ(checkpoint({"load", "default", dir_ / "two"}).exit, 0);
  EXPECT_EQ(read_file(dir_ / "two/model.bin"), second);
}

TEST_F(CheckpointCommand, StandardInput) {
  Child child({.argv = {"ff", "checkpoint", "save", "--name", "state.tar", "-"},
               .env = {{"FF_STORE", store()}},
               .program = FF_BINARY,
               .stdin_open = true});
  child.write_stdin("from a pipe");
  child.close_stdin();
  EXPECT_EQ(child.finish(), 0) << child.err;
  EXPECT_EQ(checkpoint({"load", "default", dir_ / "out"}).exit, 0);
  EXPECT_EQ(read_file(dir_ / "out/state.tar"), "from a pipe");
}

TEST_F(CheckpointCommand, CtrlCLeavesNothingHalfMade) {
  for (const int number : {SIGINT, SIGTERM}) {
    Child child({.argv = {"ff", "checkpoint", "save", "-"},
                 .env = {{"FF_STORE", store()}},
                 .program = FF_BINARY,
                 .stdin_open = true});
    child.write_stdin("the beginning of a stream that never ends");
    // Its lease shows that it is at work.
    const auto working = [&] {
      std::error_code error;
      return fs::exists(store() + "/tmp", error) && !fs::is_empty(store() + "/tmp", error);
    };
    SystemClock clock;
    for (int i = 0; i < 6000 && !working(); i++) clock.sleep_ns(10 * kMillisecond);
    ASSERT_TRUE(working());
    child.signal(number);
    EXPECT_EQ(child.finish(), 130) << child.err;
    EXPECT_TRUE(fs::is_empty(store() + "/tmp"));
    EXPECT_TRUE(fs::is_empty(store() + "/runs"));
  }
}

TEST_F(CheckpointCommand, TimeoutEndsIt) {
  Child child({.argv = {"ff", "checkpoint", "save", "--timeout", "100ms", "-"},
               .env = {{"FF_STORE", store()}},
               .program = FF_BINARY,
               .stdin_open = true});
  EXPECT_TRUE(child.wait_for_err("--timeout"));  // its input stays open
  EXPECT_EQ(child.finish(), 6) << child.err;
  EXPECT_TRUE(fs::is_empty(store() + "/tmp"));
}

// Each mistake has its exit code, names the thing and says what to do next.
TEST_F(CheckpointCommand, MistakesAreExplained) {
  const auto expect = [&](std::vector<std::string> words, int exit, const std::string& says) {
    const Ran ran = checkpoint(words);
    EXPECT_EQ(ran.exit, exit) << words[0] << ran.err;
    EXPECT_NE(ran.err.find(says), std::string::npos) << ran.err;
    EXPECT_EQ(ran.out, "") << words[0];
  };
  expect({"save", dir_ / "missing"}, 1, "no such file");
  expect({"save", input("x.safetensors", "no")}, 1, "not a safetensors file");
  expect({"sve", "x"}, 2, "save");
  expect({"save"}, 2, "PATH");
  expect({"save", "--step", "-1", dir_ / "x"}, 2, "--step");
  expect({"load", "default", dir_ / "out"}, 1, "committed");
  ASSERT_EQ(checkpoint({"save", input("f", "1")}).exit, 0);
  expect({"load", "default@9", dir_ / "out"}, 1, "default@9");
  expect({"load", "nobody", dir_ / "out"}, 1, "nobody");
  expect({"load", "default@x", dir_ / "out"}, 2, "RUN@STEP");
  expect({"load", "default", store()}, 5, "not empty");
  input("f", "2");
  expect({"save", "--step", "1", dir_ / "f"}, 5, "--replace");
  expect({"forget"}, 2, "--keep-last");
  expect({"ls", "--store", dir_ / "nowhere"}, 1, "no such store");
  input("other/file", "something");
  expect({"ls", "--store", dir_ / "other"}, 5, "not a checkpoint store");
  const Ran nowhere = run({.argv = {"ff", "checkpoint", "ls"}, .program = FF_BINARY});
  EXPECT_EQ(nowhere.exit, 2);
  EXPECT_NE(nowhere.err.find("FF_STORE"), std::string::npos) << nowhere.err;
}

TEST_F(CheckpointCommand, DamageIsNamedAndSalvaged) {
  ASSERT_EQ(checkpoint({"save", input("good", noise(9000)), input("bad", noise(200'000))}).exit, 0);
  damage();
  const Ran verified = checkpoint({"verify"});
  EXPECT_EQ(verified.exit, 3);
  EXPECT_NE(verified.out.find("file 'bad'"), std::string::npos) << verified.out;
  const Ran loaded = checkpoint({"load", "default", dir_ / "out"});
  EXPECT_EQ(loaded.exit, 3);
  EXPECT_NE(loaded.err.find("file 'bad'"), std::string::npos) << loaded.err;
  EXPECT_FALSE(fs::exists(dir_ / "out"));
  const Ran salvaged = checkpoint({"salvage", "default", dir_ / "rescued"});
  EXPECT_EQ(salvaged.exit, 3);
  EXPECT_EQ(read_file(dir_ / "rescued/good"), noise(9000));
  EXPECT_FALSE(fs::exists(dir_ / "rescued/bad"));
}

TEST_F(CheckpointCommand, NamesCannotForgeTerminalLines) {
  const std::string evil = "evil\x1b[2J\r\nfake@1";
  ASSERT_EQ(checkpoint({"save", input(evil, "1")}).exit, 0);
  const Ran shown = checkpoint({"show", "default"});
  EXPECT_EQ(shown.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(shown.out.find('\r'), std::string::npos);
  EXPECT_EQ(std::count(shown.out.begin(), shown.out.end(), '\n'), 1);
  EXPECT_EQ(data({"show", "default"})["entries"][0]["file"], evil);
}

TEST_F(CheckpointCommand, WatchOnce) {
  input("in/model-30.bin", "thirty");
  const auto told = checkpoint({"watch", "--once", "--settle", "0s", dir_ / "in"});
  EXPECT_EQ(told.exit, 0) << told.err;
  EXPECT_EQ(told.out, "default@30\n");
}

// Runs ff and returns its peak memory in MiB.
long peak_mib(const std::vector<std::string>& words, const std::string& store_path) {
  const pid_t child = fork();
  if (child == 0) {
    std::vector<char*> argv;
    for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    setenv("FF_STORE", store_path.c_str(), 1);
    if (freopen("/dev/null", "w", stdout) == nullptr) _exit(99);
    execv(FF_BINARY, argv.data());
    _exit(99);
  }
  int status = 0;
  rusage usage{};
  EXPECT_EQ(wait4(child, &status, 0, &usage), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << words[2];
  return usage.ru_maxrss / 1024;
}

constexpr long kMemoryMib = 512;  // the promise of the checkpoint design for both cases below

TEST_F(CheckpointCommand, AMillionTensorsInBoundedMemory) {
  constexpr int kTensors = 1'000'000;
  std::string header = "{";
  for (int i = 0; i < kTensors; i++) {
    header += "\"layers." + std::to_string(i) + ".w\":{\"dtype\":\"F32\",\"shape\":[1],";
    header +=
        "\"data_offsets\":[" + std::to_string(4 * i) + "," + std::to_string(4 * i + 4) + "]},";
  }
  header.back() = '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  uint64_t length = header.size();
  const std::string word(reinterpret_cast<const char*>(&length), 8);
  const std::string path = input("many.safetensors", word + header + noise(4 * kTensors));
  EXPECT_LE(peak_mib({"ff", "checkpoint", "save", path}, store()), kMemoryMib);
  EXPECT_LE(peak_mib({"ff", "checkpoint", "ls"}, store()), kMemoryMib);
  EXPECT_LE(peak_mib({"ff", "checkpoint", "show", "default"}, store()), kMemoryMib);
  EXPECT_LE(
      peak_mib({"ff", "checkpoint", "load", "default", dir_ / "one", "--tensor", "layers.77777.w"},
               store()),
      kMemoryMib);
  EXPECT_LE(peak_mib({"ff", "checkpoint", "load", "default", dir_ / "all"}, store()), kMemoryMib);
  EXPECT_EQ(read_file(dir_ / "all/many.safetensors"), read_file(path));
}

TEST_F(CheckpointCommand, ATerabyteOfHolesInBoundedMemory) {
  const std::string path = input("sparse", "begin");
  fs::resize_file(path, uint64_t{1} << 40);
  {
    std::ofstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp((int64_t{1} << 40) - 3);
    file << "end";
  }
  EXPECT_LE(peak_mib({"ff", "checkpoint", "save", path}, store()), kMemoryMib);
  EXPECT_LE(peak_mib({"ff", "checkpoint", "load", "default", dir_ / "out"}, store()), kMemoryMib);
  EXPECT_EQ(fs::file_size(dir_ / "out/sparse"), uint64_t{1} << 40);
  std::ifstream file(dir_ / "out/sparse", std::ios::binary);
  file.seekg((int64_t{1} << 40) - 3);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "end");
}

}  // namespace
}  // namespace ff::test
