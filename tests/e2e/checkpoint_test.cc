// `ff checkpoint` as its users meet it: the real binary, its words, exit codes and JSON; with a
// store in a directory, and with one in a cluster.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cmd/options/cluster_access.h"
#include "e2e/child.h"
#include "e2e/local_cluster.h"
#include "platform/base/clock.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"

namespace ff::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

enum class Where : uint8_t { directory, cluster };

class CheckpointCommand : public testing::TestWithParam<Where> {
 protected:
  void SetUp() override {
    if (GetParam() == Where::directory) return;
    static int last = 0;
    const auto url = client::parse_url("ff://" + shared_cluster().address());
    cmd::ClusterAccess::Options options{.url = *url, .meta = {}, .net = {}, .name = "test"};
    options.net.insecure = true;
    cluster_ = cmd::ClusterAccess::open(stop_, local_, options).value();
    home_ = cluster_->path("/home" + std::to_string(++last));
    ASSERT_TRUE(disk().make_dir(home_, 0755).ok());
  }
  io::Disk& disk() { return cluster_ ? cluster_->disk() : local_; }
  // Whether a folder of the store is there and has nothing in it.
  bool is_empty(const std::string& folder) {
    const auto entries = disk().list(store() + "/" + folder);
    return entries && entries->empty();
  }
  ProcessResult checkpoint(std::vector<std::string> words) {
    words.insert(words.begin(), {"ff", "checkpoint"});
    std::map<std::string, std::string> env = {{"FF_STORE", store()}, {"FF_STATE", dir_ / "state"}};
    if (!task_.empty()) env["FF_TASK_DIR"] = task_;
    env.insert(env_.begin(), env_.end());
    return run({.argv = words, .env = env, .program = FF_BINARY});
  }
  Json data(std::vector<std::string> words) {
    words.push_back("--json");
    const ProcessResult ran = checkpoint(words);
    const Json envelope = Json::parse(ran.out, nullptr, false);
    EXPECT_TRUE(envelope.is_object()) << ran.out << ran.err;
    if (!envelope.is_object()) return {};
    EXPECT_EQ(envelope["exit"], ran.exit);
    EXPECT_EQ(envelope["command"], "checkpoint " + words[0]);
    EXPECT_EQ(envelope["error"].is_null(), ran.exit == 0);
    return envelope["data"];
  }
  std::string store() const { return in_store_home("store"); }
  std::string in_store_home(const std::string& name) const {
    return cluster_ ? home_ + "/" + name : dir_ / name;
  }
  std::string input(const std::string& name, const std::string& content) {
    write_file(dir_ / name, content);
    return dir_ / name;
  }
  // Flips a bit in the middle of the largest file of the store.
  void damage() {
    std::string largest;
    uint64_t size = 0;
    const std::string chunks = store() + "/chunks";
    const auto folders = disk().list(chunks);
    ASSERT_TRUE(folders.ok());
    for (const auto& folder : *folders) {
      const auto entries = disk().list(io::join(chunks, folder.name));
      ASSERT_TRUE(entries.ok());
      for (const auto& entry : *entries) {
        const std::string path = io::join(io::join(chunks, folder.name), entry.name);
        const auto info = disk().info(path);
        ASSERT_TRUE(info.ok());
        if (std::exchange(size, std::max(size, info->size)) < size) largest = path;
      }
    }
    const auto file = disk().open(largest, {.access = io::AccessMode::read_write}).value();
    std::byte byte{};
    ASSERT_EQ(file->read_at({&byte, 1}, 5000).value(), 1u);
    byte ^= std::byte{4};
    ASSERT_TRUE(file->write_at({&byte, 1}, 5000).ok());
    ASSERT_TRUE(file->sync().ok());
  }

  TempDir dir_;
  std::string task_;  // its folder, when the commands are in a task
  std::map<std::string, std::string> env_;

 private:
  SystemClock clock_;
  StopToken stop_{clock_};
  io::SystemDisk local_;
  std::unique_ptr<cmd::ClusterAccess> cluster_;
  std::string home_;  // in the cluster
};
INSTANTIATE_TEST_SUITE_P(Stores, CheckpointCommand,
                         testing::Values(Where::directory, Where::cluster), [](const auto& where) {
                           return where.param == Where::directory ? "directory" : "cluster";
                         });

TEST_P(CheckpointCommand, TheWholeStory) {
  const std::string first = noise(5'000'000);
  const auto saved = data({"save", input("model.bin", first)});
  EXPECT_EQ(saved["outcome"], "committed");
  EXPECT_EQ(saved["step"], 1);
  EXPECT_EQ(saved["bytes"], first.size());
  const std::string second = first + noise(1'000'000);
  input("model.bin", second);
  EXPECT_EQ(checkpoint({"save", dir_ / "model.bin"}).out, "default@2\n");
  EXPECT_EQ(checkpoint({"latest"}).out, "2\n");
  EXPECT_EQ(data({"list"})["steps"].size(), 2U);
  EXPECT_EQ(data({"verify", "--all"})["intact"].size(), 2U);
  EXPECT_NE(checkpoint({"list"}).out.find("verified"), std::string::npos);
  EXPECT_EQ(data({"show", "@1"})["entries"][0]["file"], "model.bin");
  EXPECT_EQ(data({"diff", "@1", "@2"})["files"]["changed"], 1);
  EXPECT_EQ(checkpoint({"load", "@1", dir_ / "one"}).exit, 0);
  EXPECT_EQ(read_file(dir_ / "one/model.bin"), first);
  const auto plan = data({"forget", "--keep-last", "1", "--dry-run"});
  EXPECT_EQ(plan["applied"], false);
  EXPECT_EQ(plan["forgotten"][0], "default@1");
  EXPECT_EQ(data({"list"})["steps"].size(), 2U);
  // Nobody is there to confirm.
  const auto refused = checkpoint({"forget", "--keep-last", "1"});
  EXPECT_EQ(refused.exit, 5);
  EXPECT_NE(refused.err.find("--yes"), std::string::npos) << refused.err;
  EXPECT_EQ(checkpoint({"forget", "--keep-last", "1", "--yes", "--dry-run"}).exit, 2);
  EXPECT_EQ(data({"list"})["steps"].size(), 2U);
  EXPECT_EQ(data({"forget", "--keep-last", "1", "--yes"})["applied"], true);
  EXPECT_EQ(data({"list"})["steps"].size(), 1U);
  EXPECT_EQ(checkpoint({"prune", "--grace", "0s"}).exit, 0);
  EXPECT_EQ(checkpoint({"load", "default", dir_ / "two"}).exit, 0);
  EXPECT_EQ(read_file(dir_ / "two/model.bin"), second);
}

TEST_P(CheckpointCommand, ForgetAsksOnATerminal) {
  for (const char* content : {"one", "two"}) {
    EXPECT_EQ(checkpoint({"save", input("model.bin", content)}).exit, 0);
  }
  for (const bool yes : {false, true}) {
    Child child({.argv = {"ff", "checkpoint", "forget", "--keep-last", "1"},
                 .env = {{"FF_STORE", store()}, {"FF_STATE", dir_ / "state"}},
                 .program = FF_BINARY,
                 .terminal = true});
    ASSERT_TRUE(child.wait_for_out("Type yes to remove this checkpoint:")) << child.out;
    child.write_stdin(yes ? "yes\n" : "no\n");
    EXPECT_EQ(child.finish(), yes ? 0 : 5) << child.out;
    EXPECT_EQ(data({"list"})["steps"].size(), yes ? 1U : 2U);
  }
}

TEST_P(CheckpointCommand, TheAgentOfItsTaskIsTold) {
  task_ = dir_ / "task";
  fs::create_directory(task_);
  const std::string file = input("model.bin", noise(1000));
  ASSERT_EQ(checkpoint({"save", "--step", "120", file}).exit, 0);
  EXPECT_EQ(read_file(dir_ / "task/saved"), "120\n");
  ASSERT_EQ(checkpoint({"save", "--step", "7", "--run", "other", file}).exit, 0);
  EXPECT_EQ(read_file(dir_ / "task/saved"), "7\n");
  ASSERT_EQ(checkpoint({"save", "--step", "120", file}).exit, 0);
  EXPECT_EQ(read_file(dir_ / "task/saved"), "120\n") << "it is there, whoever saved it";
  // Half a checkpoint is none, nor is one that was refused.
  const std::vector<std::string> shard = {"save", "--step",    "130",   "--world", "2",
                                          file,   "--attempt", "try-1", "--rank"};
  std::vector<std::string> words = shard;
  words.push_back("1");
  ASSERT_EQ(data(words)["outcome"], "waiting");
  input("model.bin", noise(2000));
  ASSERT_EQ(checkpoint({"save", "--step", "120", file}).exit, 5);
  EXPECT_EQ(read_file(dir_ / "task/saved"), "120\n");
  input("model.bin", noise(1000));
  words = shard;
  words.push_back("0");
  ASSERT_EQ(data(words)["outcome"], "committed");
  EXPECT_EQ(read_file(dir_ / "task/saved"), "130\n");
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(task_)) left.push_back(entry.path().filename());
  EXPECT_EQ(left, std::vector<std::string>{"saved"});
}

TEST_P(CheckpointCommand, AnAgentThatCannotBeToldIsAWarning) {
  task_ = dir_ / "gone";
  const std::string file = input("model.bin", noise(1000));
  const ProcessResult ran = checkpoint({"save", file});
  EXPECT_EQ(ran.exit, 0) << ran.err;
  EXPECT_EQ(ran.out, "default@1\n");
  EXPECT_NE(ran.err.find("default@1 is saved, but ff could not tell the agent of the task"),
            ran.err.npos)
      << ran.err;
  EXPECT_NE(ran.err.find("FF_TASK_DIR"), ran.err.npos) << ran.err;
  const ProcessResult json = checkpoint({"save", file, "--json"});
  EXPECT_EQ(json.exit, 0);
  EXPECT_EQ(Json::parse(json.out)["warnings"].size(), 1U) << json.out;
  EXPECT_FALSE(fs::exists(task_));
  task_.clear();
  EXPECT_EQ(checkpoint({"save", file}).err.find("agent"), std::string::npos);
}

TEST_P(CheckpointCommand, StandardInput) {
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

TEST_P(CheckpointCommand, CtrlCLeavesNothingHalfMade) {
  for (const int number : {SIGINT, SIGTERM}) {
    Child child({.argv = {"ff", "checkpoint", "save", "-"},
                 .env = {{"FF_STORE", store()}},
                 .program = FF_BINARY,
                 .stdin_open = true});
    child.write_stdin("the beginning of a stream that never ends");
    // Its lease shows that it is at work.
    const auto working = [&] {
      const auto entries = disk().list(store() + "/tmp");
      return entries && !entries->empty();
    };
    SystemClock clock;
    for (int i = 0; i < 6000 && !working(); i++) clock.sleep_ns(10 * kMillisecond);
    ASSERT_TRUE(working());
    child.signal(number);
    EXPECT_EQ(child.finish(), 130) << child.err;
    EXPECT_TRUE(is_empty("tmp"));
    EXPECT_TRUE(is_empty("runs"));
  }
}

TEST_P(CheckpointCommand, TimeoutEndsIt) {
  Child child({.argv = {"ff", "checkpoint", "save", "--timeout", "100ms", "-"},
               .env = {{"FF_STORE", store()}},
               .program = FF_BINARY,
               .stdin_open = true});
  EXPECT_TRUE(child.wait_for_err("--timeout"));  // its input stays open
  EXPECT_EQ(child.finish(), 6) << child.err;
  EXPECT_TRUE(is_empty("tmp"));
}

// Each mistake has its exit code, names the thing and says what to do next.
TEST_P(CheckpointCommand, MistakesAreExplained) {
  const auto expect = [&](std::vector<std::string> words, int exit, const std::string& says) {
    const ProcessResult ran = checkpoint(words);
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
  input("full/file", "1");
  expect({"load", "default", dir_ / "full"}, 5, "not empty");
  input("f", "2");
  expect({"save", "--step", "1", dir_ / "f"}, 5, "--replace");
  expect({"forget"}, 2, "--keep-last");
  expect({"ls", "--store", in_store_home("nowhere")}, 1, "no such store");
  const std::string other = in_store_home("other");
  ASSERT_TRUE(disk().make_dir(other, 0755).ok());
  ASSERT_TRUE(io::replace_file(disk(), other + "/file", "something", "new").ok());
  expect({"ls", "--store", other}, 5, "not a checkpoint store");
  const ProcessResult nowhere = run({.argv = {"ff", "checkpoint", "list"}, .program = FF_BINARY});
  EXPECT_EQ(nowhere.exit, 2);
  EXPECT_NE(nowhere.err.find("FF_STORE"), std::string::npos) << nowhere.err;
}

TEST_P(CheckpointCommand, DamageIsNamedAndSalvaged) {
  ASSERT_EQ(checkpoint({"save", input("good", noise(9000)), input("bad", noise(200'000))}).exit, 0);
  damage();
  const ProcessResult verified = checkpoint({"verify"});
  EXPECT_EQ(verified.exit, 3);
  EXPECT_NE(verified.out.find("file 'bad'"), std::string::npos) << verified.out;
  const ProcessResult loaded = checkpoint({"load", "default", dir_ / "out"});
  EXPECT_EQ(loaded.exit, 3);
  EXPECT_NE(loaded.err.find("file 'bad'"), std::string::npos) << loaded.err;
  EXPECT_FALSE(fs::exists(dir_ / "out"));
  const ProcessResult salvaged = checkpoint({"salvage", "default", dir_ / "rescued"});
  EXPECT_EQ(salvaged.exit, 3);
  EXPECT_EQ(read_file(dir_ / "rescued/good"), noise(9000));
  EXPECT_FALSE(fs::exists(dir_ / "rescued/bad"));
}

// Damage, then an intact store again, by each command that can do it.
TEST_P(CheckpointCommand, DamageIsRepaired) {
  const std::string file = input("model.bin", noise(200'000));
  ASSERT_EQ(checkpoint({"save", file}).exit, 0);
  damage();
  EXPECT_EQ(checkpoint({"verify"}).exit, 3);
  const auto steps = data({"list"})["steps"];
  EXPECT_EQ(steps[0]["state"], "damaged");
  EXPECT_TRUE(steps[0]["created_ns"].is_string() && steps[0]["created_seconds"].is_number_float());
  EXPECT_NE(checkpoint({"list"}).out.find("damaged"), std::string::npos);
  const auto saved = data({"save", file});
  EXPECT_EQ(saved["chunks_new"], 1);
  EXPECT_EQ(data({"verify", "--all"})["intact"].size(), 2U);
  damage();
  ASSERT_EQ(checkpoint({"verify"}).exit, 3);
  const ProcessResult other = checkpoint({"repair", "default", input("other", noise(100))});
  EXPECT_EQ(other.exit, 3);
  EXPECT_NE(other.out.find("repaired 0 of 1 damaged chunk"), std::string::npos) << other.out;
  const ProcessResult repaired = checkpoint({"repair", "default", file});
  EXPECT_EQ(repaired.exit, 0) << repaired.err;
  EXPECT_EQ(repaired.out, "default@2: repaired 1 of 1 damaged chunk\n");
  damage();
  EXPECT_EQ(checkpoint({"verify", "--all"}).exit, 3);
  // A run without an intact checkpoint keeps all, others do not; and it can be removed.
  for (const char* content : {"one", "two"}) {
    ASSERT_EQ(checkpoint({"save", "--run", "fine", input("model.bin", content)}).exit, 0);
  }
  const ProcessResult forgot = checkpoint({"forget", "--keep-last", "1", "--yes"});
  EXPECT_EQ(forgot.exit, 4);
  EXPECT_NE(forgot.err.find("forget --run default --all"), std::string::npos) << forgot.err;
  EXPECT_EQ(data({"list", "fine"})["steps"].size(), 1U);
  EXPECT_EQ(data({"list", "default"})["steps"].size(), 2U);
  EXPECT_EQ(checkpoint({"forget", "--run", "default", "--all"}).exit, 5);
  EXPECT_EQ(checkpoint({"forget", "--run", "default", "--all", "--yes"}).exit, 0);
  EXPECT_EQ(checkpoint({"list", "default"}).exit, 1);
  EXPECT_EQ(checkpoint({"verify", "--all"}).exit, 0);
}

// Shards of two starts of a job never become one checkpoint.
TEST_P(CheckpointCommand, ARankNeedsTheIdOfItsStart) {
  const std::string file = input("model.bin", noise(1000));
  const std::vector<std::string> save = {"save", "--step", "5", file};
  env_ = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  for (const char* id : {"", "none"}) {
    env_["TORCHELASTIC_RUN_ID"] = id;
    const ProcessResult refused = checkpoint(save);
    EXPECT_EQ(refused.exit, 2);
    EXPECT_NE(refused.err.find("no attempt id"), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find("--attempt"), std::string::npos) << refused.err;
  }
  EXPECT_EQ(checkpoint({"save", "--step", "4", "--world", "1", file}).out, "default@4\n");
  env_.insert({{"FF_TASK_OF", "c0ffee"}, {"FF_TASK", "12"}, {"FF_TASK_ATTEMPT", "1"}});
  const ProcessResult waits = checkpoint(save);
  EXPECT_EQ(waits.out, "default@5: rank 1 is stored; waiting for 1 more\n") << waits.err;
  env_["FF_TASK_ATTEMPT"] = "2";  // another start
  env_["RANK"] = "0";
  EXPECT_EQ(data(save)["outcome"], "waiting");
  env_["RANK"] = "1";
  EXPECT_EQ(data(save)["outcome"], "committed");
}

TEST_P(CheckpointCommand, NamesCannotForgeTerminalLines) {
  const std::string evil = "evil\x1b[2J\r\nfake@1";
  ASSERT_EQ(checkpoint({"save", input(evil, "1")}).exit, 0);
  const ProcessResult shown = checkpoint({"show", "default"});
  EXPECT_EQ(shown.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(shown.out.find('\r'), std::string::npos);
  EXPECT_EQ(std::count(shown.out.begin(), shown.out.end(), '\n'), 2);  // the header, and the file
  EXPECT_EQ(data({"show", "default"})["entries"][0]["file"], evil);
}

TEST_P(CheckpointCommand, WatchOnce) {
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
    setenv("FF_INSECURE", "1", 1);
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

TEST_P(CheckpointCommand, AMillionTensorsInBoundedMemory) {
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
  EXPECT_LE(peak_mib({"ff", "checkpoint", "list"}, store()), kMemoryMib);
  EXPECT_LE(peak_mib({"ff", "checkpoint", "show", "default"}, store()), kMemoryMib);
  EXPECT_LE(
      peak_mib({"ff", "checkpoint", "load", "default", dir_ / "one", "--tensor", "layers.77777.w"},
               store()),
      kMemoryMib);
  EXPECT_LE(peak_mib({"ff", "checkpoint", "load", "default", dir_ / "all"}, store()), kMemoryMib);
  EXPECT_EQ(read_file(dir_ / "all/many.safetensors"), read_file(path));
}

TEST_P(CheckpointCommand, ATerabyteOfHolesInBoundedMemory) {
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

// A storage node dies while a checkpoint is saved, and another while it is loaded: nobody notices.
TEST(CheckpointInACluster, OutlivesAStorageNode) {
  LocalCluster cluster;
  TempDir dir;
  const std::string store = "ff://" + cluster.address() + "/deep/in/it/store";
  const std::string content = noise(60'000'000);
  Child save({.argv = {"ff", "checkpoint", "save", "--name", "state", "-"},
              .env = {{"FF_STORE", store}},
              .program = FF_BINARY,
              .stdin_open = true});
  save.write_stdin(content.substr(0, content.size() / 2));
  cluster.kill(1);
  save.write_stdin(content.substr(content.size() / 2));
  save.close_stdin();
  EXPECT_EQ(save.finish(), 0) << save.err;
  EXPECT_EQ(save.out, "default@1\n");
  const ProcessResult verified = run_ff({"checkpoint", "verify", "--all"}, {{"FF_STORE", store}});
  EXPECT_EQ(verified.exit, 0) << verified.out << verified.err;
  cluster.start(1);
  cluster.until_whole();
  Child load({.argv = {"ff", "checkpoint", "load", "default", dir / "out"},
              .env = {{"FF_STORE", store}},
              .program = FF_BINARY});
  // Something of it is there already, under the name that it has until all of it is.
  SystemClock clock;
  for (int i = 0; i < 6000 && fs::is_empty(dir.path()); i++) clock.sleep_ns(kMillisecond);
  load.signal(SIGSTOP);
  cluster.kill(2);
  load.signal(SIGCONT);
  EXPECT_EQ(load.finish(), 0) << load.err;
  EXPECT_TRUE(read_file(dir / "out/state") == content);
}

TEST(CheckpointPlan, SaysHowOftenToSave) {
  const std::vector<std::string> words = {"checkpoint", "plan", "--save-seconds", "300",
                                          "--mtbf",     "128d", "--nodes",        "128",
                                          "--restart",  "600"};
  const ProcessResult ran = run_ff(words);
  EXPECT_EQ(ran.exit, 0) << ran.err;
  EXPECT_EQ(ran.out,
            "save every     1h57m\n"
            "a failure each 1d\n"
            "time lost      8.74 %, of which saves 3.91 %\n");
  std::vector<std::string> wrong = words;
  wrong[3] = "0";
  EXPECT_EQ(run_ff(wrong).exit, 2);
  wrong[3] = "nan";
  EXPECT_EQ(run_ff(wrong).exit, 2);
}

}  // namespace
}  // namespace ff::test
