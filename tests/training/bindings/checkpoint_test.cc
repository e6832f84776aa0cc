// Checkpoints of libff.so as a program in C sees them: a state out and in, tensors that the caller
// fills, and what is said of arguments that cannot be.
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "training/bindings/ff.h"

namespace ff {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "ff-library-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
    store_ = dir_ / "store";
    options_.store = store_.c_str();
    ASSERT_EQ(ff_saver_open(&saver_), FF_OK);
  }
  void TearDown() override {
    ff_saver_close(saver_, 0);
    fs::remove_all(dir_);
  }

  static bool said(const char* what) {
    return std::string(ff_error()).find(what) != std::string::npos;
  }
  int begin(const std::vector<ff_tensor>& tensors, std::vector<void*>& places) {
    places.resize(tensors.size());
    const ff_text text = {"key", "value"};
    return ff_save_begin(saver_, &options_, tensors.data(), tensors.size(), &text, 1,
                         places.data());
  }
  int save(const std::vector<ff_tensor>& tensors, ff_saved* saved = nullptr) {
    std::vector<void*> places;
    int code = begin(tensors, places);
    if (code == FF_OK) code = ff_save_start(saver_);
    return code == FF_OK ? ff_save_wait(saver_, saved) : code;
  }
  ff_load_options what_to_load() const {
    return {.size = sizeof(ff_load_options),
            .store = store_.c_str(),
            .run = nullptr,
            .step = FF_STEP_LAST,
            .tensors = nullptr,
            .globs = 0,
            .rank = FF_RANK_ANY,
            .threads = 2};
  }

  fs::path dir_;
  std::string store_;
  ff_saver* saver_ = nullptr;
  ff_save_options options_ = {.size = sizeof(ff_save_options),
                              .store = nullptr,
                              .run = nullptr,
                              .step = FF_STEP_NEXT,
                              .file = nullptr,
                              .rank = 0,
                              .world = 0,
                              .attempt = nullptr,
                              .threads = 2,
                              .replace = 0,
                              .compress = 0};
  const uint64_t shape_[2] = {3, 500'000};
  const std::vector<float> floats_ = std::vector<float>(1'500'000, 1.5F);
  const ff_tensor tensor_ = {"floats", "F32", shape_, 2, 6'000'000, floats_.data()};
};

TEST_F(CheckpointTest, OutAndIn) {
  const uint64_t bytes[1] = {5};
  std::vector<void*> places;
  // What is narrow comes behind, so that all are aligned.
  ASSERT_EQ(begin({{"bytes", "U8", bytes, 1, 5, nullptr}, tensor_}, places), FF_OK) << ff_error();
  std::memcpy(places[0], "12345", 5);
  EXPECT_EQ(static_cast<char*>(places[1]) + 6'000'000, places[0]);
  ASSERT_EQ(ff_save_start(saver_), FF_OK);
  ff_saved saved = {};
  ASSERT_EQ(ff_save_wait(saver_, &saved), FF_OK) << ff_error();
  EXPECT_EQ(ff_save_wait(saver_, nullptr), FF_OK);
  int busy = 2;
  EXPECT_EQ(ff_save_busy(saver_, &busy), FF_OK);
  EXPECT_EQ(busy, 0);
  EXPECT_EQ(saved.step, 1u);
  EXPECT_EQ(saved.outcome, FF_COMMITTED);
  EXPECT_GT(saved.bytes, 6'000'005u);
  uint64_t step = 0;
  EXPECT_EQ(ff_latest_step(store_.c_str(), "other", &step), FF_OK);
  EXPECT_EQ(step, FF_STEP_NONE);
  EXPECT_EQ(ff_latest_step(store_.c_str(), "default", &step), FF_OK);
  EXPECT_EQ(step, 1u);

  ff_loading* loading = nullptr;
  const ff_load_options wanted = what_to_load();
  ASSERT_EQ(ff_load_begin(&loading, &wanted), FF_OK) << ff_error();
  EXPECT_EQ(ff_load_step(loading), 1u);
  ASSERT_EQ(ff_load_files(loading), 1u);
  ASSERT_EQ(ff_load_tensors(loading), 2u);
  ff_file file = {};
  ASSERT_EQ(ff_load_file(loading, 0, &file), FF_OK);
  EXPECT_STREQ(file.name, "state.safetensors");
  ff_text text = {};
  ASSERT_EQ(file.texts, 1u);
  ASSERT_EQ(ff_load_text(loading, 0, 0, &text), FF_OK);
  EXPECT_STREQ(text.value, "value");
  ff_tensor tensor = {};
  ASSERT_EQ(ff_load_tensor(loading, 0, &tensor), FF_OK);
  EXPECT_STREQ(tensor.name, "floats");
  EXPECT_EQ(tensor.shape[1], 500'000u);
  std::vector<float> floats(1'500'000);
  std::string five(5, '.');
  void* into[2] = {floats.data(), five.data()};
  ASSERT_EQ(ff_load_read(loading, into), FF_OK) << ff_error();
  EXPECT_EQ(floats, floats_);
  EXPECT_EQ(five, "12345");
  EXPECT_EQ(ff_load_file(loading, 1, &file), FF_USAGE);
  EXPECT_EQ(ff_load_text(loading, 0, 1, &text), FF_USAGE);
  EXPECT_EQ(ff_load_tensor(loading, 2, &tensor), FF_USAGE);
  into[1] = nullptr;
  EXPECT_EQ(ff_load_read(loading, into), FF_USAGE);
  EXPECT_TRUE(said("the memory for tensor 'bytes' is null")) << ff_error();
  ff_load_end(loading);
}

TEST_F(CheckpointTest, TensorsThatCannotBe) {
  std::vector<void*> places;
  ff_tensor wrong = tensor_;
  wrong.name = "";
  EXPECT_EQ(begin({wrong}, places), FF_USAGE);
  wrong.name = "\xff";
  EXPECT_EQ(begin({wrong}, places), FF_USAGE);
  wrong = tensor_;
  wrong.dtype = "float";
  EXPECT_EQ(begin({wrong}, places), FF_USAGE);
  EXPECT_TRUE(said("tensor 'floats'")) << ff_error();
  wrong = tensor_;
  wrong.bytes = 1;
  EXPECT_EQ(begin({wrong}, places), FF_USAGE);
  const uint64_t huge[2] = {UINT64_MAX, 2};
  wrong = {"huge", "F32", huge, 2, 8, floats_.data()};
  EXPECT_EQ(begin({wrong}, places), FF_USAGE);
  EXPECT_EQ(ff_save_start(saver_), FF_USAGE) << "what failed to begin was started";
  EXPECT_EQ(ff_save_wait(saver_, nullptr), FF_USAGE);
  EXPECT_EQ(save({tensor_, tensor_}), FF_FAILED);
  EXPECT_TRUE(said("given twice")) << ff_error();
  EXPECT_EQ(save({}), FF_OK) << ff_error();
}

TEST_F(CheckpointTest, OptionsThatCannotBe) {
  const ff_save_options good = options_;
  const auto refused = [&](const char* what) {
    const int code = save({tensor_});
    options_ = good;
    return code == FF_USAGE && said(what);
  };
  options_.size = 8;
  EXPECT_TRUE(refused("another version")) << ff_error();
  options_.store = nullptr;
  EXPECT_TRUE(refused("the store is null")) << ff_error();
  options_.run = "a/b";
  EXPECT_TRUE(refused("a/b")) << ff_error();
  options_.file = "state.pt";
  EXPECT_TRUE(refused("state.pt")) << ff_error();
  options_.world = 2;
  options_.step = 1;
  EXPECT_TRUE(refused("one attempt")) << ff_error();
  options_.rank = 1;
  EXPECT_TRUE(refused("no rank 1 of 1")) << ff_error();
  EXPECT_EQ(ff_saver_open(nullptr), FF_USAGE);
  EXPECT_EQ(ff_save_start(nullptr), FF_USAGE);
  EXPECT_EQ(ff_save_busy(saver_, nullptr), FF_USAGE);
  ff_saver_close(nullptr, 1);
  ff_load_options wanted = what_to_load();
  ff_loading* loading = nullptr;
  EXPECT_EQ(ff_load_begin(&loading, &wanted), FF_FAILED);
  EXPECT_TRUE(said("no such store")) << ff_error();
  wanted.size = 1;
  EXPECT_EQ(ff_load_begin(&loading, &wanted), FF_USAGE);
  EXPECT_EQ(loading, nullptr);
  EXPECT_EQ(ff_load_tensors(nullptr), 0u);
  EXPECT_EQ(ff_load_read(nullptr, nullptr), FF_USAGE);
  ff_load_end(nullptr);
}

TEST_F(CheckpointTest, AForkHasNoSaver) {
  ASSERT_EQ(save({tensor_}), FF_OK) << ff_error();
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<void*> places;
    const bool refused = begin({tensor_}, places) == FF_USAGE && said("does not outlive a fork") &&
                         ff_save_start(saver_) == FF_USAGE &&
                         ff_save_wait(saver_, nullptr) == FF_USAGE;
    ff_saver_close(saver_, 0);
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ff_saved saved = {};
  ASSERT_EQ(save({tensor_}, &saved), FF_OK) << ff_error();
  EXPECT_EQ(saved.step, 2u);
  EXPECT_EQ(saved.bytes_written, 0u);
}

// Threads that start while it lives run only when a processor has nothing else to do, so that the
// thread that started them is the first to reach its end on a busy machine, too.
class StartsIdleThreads {
 public:
  StartsIdleThreads() { be(SCHED_IDLE); }
  ~StartsIdleThreads() { be(SCHED_OTHER); }

 private:
  static void be(int policy) {
    const sched_param none = {};
    sched_setscheduler(0, policy, &none);
  }
};

// Ends the program in the middle of a save: as soon as the first bytes are in the store.
void exit_in_the_middle_of(ff_saver* saver, const fs::path& store) {
  {
    const StartsIdleThreads idle;
    if (ff_save_start(saver) != FF_OK) ::_exit(1);
  }
  while (fs::is_empty(store)) SystemClock().sleep_ns(kMillisecond);
  std::exit(0);
}

// As if it were killed, but cleanly: the writer works while the program's own things go away.
TEST_F(CheckpointTest, AProgramThatExitsInTheMiddle) {
  ASSERT_EQ(save({tensor_}), FF_OK) << ff_error();
  fs::create_directory(dir_ / "shared");
  fs::permissions(dir_ / "shared", fs::perms::all);  // and so it has sha256
  const std::string shared = dir_ / "shared";
  std::fflush(nullptr);  // the child's end would write it again
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<float> large(64'000'000);
    for (size_t i = 0; i < large.size(); i++) large[i] = static_cast<float>(i);
    const uint64_t shape[1] = {large.size()};
    const ff_tensor tensor = {"large", "F32", shape, 1, 4 * large.size(), large.data()};
    options_.store = shared.c_str();
    options_.threads = 1;
    std::vector<void*> places;
    if (ff_saver_open(&saver_) != FF_OK || begin({tensor}, places) != FF_OK) ::_exit(1);
    exit_in_the_middle_of(saver_, shared);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  uint64_t step = 0;
  EXPECT_EQ(ff_latest_step(shared.c_str(), nullptr, &step), FF_OK);
  EXPECT_EQ(step, FF_STEP_NONE);
}

}  // namespace
}  // namespace ff
