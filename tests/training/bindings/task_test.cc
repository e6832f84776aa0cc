// Tasks of libff.so as a program in C sees them: asked to stop, telling what was saved and where it
// is, in a task and outside of any.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "training/bindings/ff.h"

namespace ff {
namespace {

namespace fs = std::filesystem;

class LibraryTaskTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "ff-library-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
    ::setenv("FF_TASK_DIR", dir_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("FF_TASK_DIR");
    fs::remove_all(dir_);
  }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name) << text;
  }
  std::string content(const std::string& name) const {
    std::ifstream in(dir_ / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  fs::path dir_;
};

TEST_F(LibraryTaskTest, AskedToStop) {
  EXPECT_EQ(ff_task_should_stop(nullptr), 0);
  ff_stop stop = {"before", 1};
  EXPECT_EQ(ff_task_should_stop(&stop), 0);
  EXPECT_STREQ(stop.reason, "before");
  const std::string longest(sizeof stop.reason - 1, 'x');
  put("stop", longest + " 1790000000\n");
  EXPECT_EQ(ff_task_should_stop(nullptr), 1);
  EXPECT_TRUE(fs::exists(dir_ / "ack"));
  EXPECT_EQ(ff_task_should_stop(&stop), 1);
  EXPECT_EQ(stop.reason, longest);
  EXPECT_EQ(stop.deadline, 1'790'000'000);
  put("stop", "drained 5\n");
  EXPECT_EQ(ff_task_should_stop(&stop), 1);
  EXPECT_STREQ(stop.reason, "drained");
}

TEST_F(LibraryTaskTest, Tells) {
  EXPECT_EQ(ff_task_saved(120), FF_OK) << ff_error();
  EXPECT_EQ(ff_task_heartbeat(3, 121), FF_OK) << ff_error();
  uint32_t word = 1;
  EXPECT_EQ(ff_task_life_state(&word), FF_OK) << ff_error();
  EXPECT_EQ(word, 0u);
  EXPECT_EQ(ff_task_set_life_state(UINT32_MAX), FF_OK) << ff_error();
  EXPECT_EQ(ff_task_life_state(&word), FF_OK);
  EXPECT_EQ(word, UINT32_MAX);
  EXPECT_EQ(content("saved"), "120\n");
  EXPECT_EQ(content("heartbeat.3"), "121\n");
  EXPECT_EQ(content("life_state"), "4294967295\n");
  const pid_t child = ::fork();
  if (child == 0) ::_exit(ff_task_saved(122));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(content("saved"), "122\n") << "a child may, too";
  put("life_state", "seven\n");
  EXPECT_EQ(ff_task_life_state(&word), FF_CORRUPT);
  EXPECT_NE(std::string(ff_error()).find("life_state"), std::string::npos) << ff_error();
  EXPECT_EQ(word, 0u);
  EXPECT_EQ(ff_task_life_state(nullptr), FF_USAGE);
}

TEST_F(LibraryTaskTest, AFolderThatIsGone) {
  ::setenv("FF_TASK_DIR", (dir_ / "gone").c_str(), 1);
  EXPECT_EQ(ff_task_should_stop(nullptr), 0);
  EXPECT_EQ(ff_task_saved(1), FF_FAILED);
  EXPECT_NE(std::string(ff_error()).find("FF_TASK_DIR"), std::string::npos) << ff_error();
  EXPECT_EQ(ff_task_heartbeat(0, 1), FF_FAILED);
  EXPECT_EQ(ff_task_set_life_state(1), FF_FAILED);
  EXPECT_FALSE(fs::exists(dir_ / "gone"));
}

TEST_F(LibraryTaskTest, InNoTask) {
  put("stop", "drained 5\n");
  ::unsetenv("FF_TASK_DIR");
  fs::current_path(dir_);
  EXPECT_EQ(ff_task_should_stop(nullptr), 0);
  EXPECT_EQ(ff_task_saved(1), FF_OK);
  EXPECT_EQ(ff_task_heartbeat(0, 1), FF_OK);
  EXPECT_EQ(ff_task_set_life_state(1), FF_OK);
  uint32_t word = 1;
  EXPECT_EQ(ff_task_life_state(&word), FF_OK);
  EXPECT_EQ(word, 0u);
  ::setenv("FF_TASK_DIR", "", 1);
  EXPECT_EQ(ff_task_saved(1), FF_OK);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 1);
  fs::current_path("/");
}

// Saves tell the agent themselves, once the checkpoint is whole.
TEST_F(LibraryTaskTest, SavesTellIt) {
  ff_saver* saver = nullptr;
  ASSERT_EQ(ff_saver_open(&saver), FF_OK);
  const std::string store = dir_ / "store";
  ff_save_options options = {};
  options.size = sizeof options;
  options.store = store.c_str();
  options.step = 120;
  options.threads = 1;
  const auto save = [&] {
    void* place = nullptr;
    int code = ff_save_begin(saver, &options, nullptr, 0, nullptr, 0, &place);
    if (code == FF_OK) code = ff_save_start(saver);
    return code == FF_OK ? ff_save_wait(saver, nullptr) : code;
  };
  ASSERT_EQ(save(), FF_OK) << ff_error();
  EXPECT_EQ(content("saved"), "120\n");
  options.step = 130;
  options.world = 2;
  options.attempt = "try-1";
  ASSERT_EQ(save(), FF_OK) << ff_error();
  EXPECT_EQ(content("saved"), "120\n") << "the other rank is missing";
  options.rank = 1;
  ASSERT_EQ(save(), FF_OK) << ff_error();
  EXPECT_EQ(content("saved"), "130\n");

  ::setenv("FF_TASK_DIR", (dir_ / "gone").c_str(), 1);
  options.step = 140;
  options.rank = 0;
  options.world = 0;
  testing::internal::CaptureStderr();
  EXPECT_EQ(save(), FF_OK) << ff_error();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("step 140 is saved, but the task's agent was not told"), std::string::npos)
      << said;
  uint64_t step = 0;
  EXPECT_EQ(ff_latest_step(store.c_str(), nullptr, &step), FF_OK);
  EXPECT_EQ(step, 140u);
  ::unsetenv("FF_TASK_DIR");
  options.step = 150;
  testing::internal::CaptureStderr();
  EXPECT_EQ(save(), FF_OK) << ff_error();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(content("saved"), "130\n");
  ff_saver_close(saver, 0);
}

}  // namespace
}  // namespace ff
