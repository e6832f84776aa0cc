// Copies between two local directories, through the code that also copies into clusters: damage is
// found, interrupted copies are resumed, and no incomplete file gets its final name.
#include "storage/client/tree_copier.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "platform/base/system_loop.h"
#include "platform/io/system_disk.h"
#include "storage/client/local_tree.h"

namespace ff::client {
namespace {

namespace fs = std::filesystem;

// Forwards all calls; one write fails as the test requests.
class BadFile final : public OpenFile {
 public:
  enum class Wrong : uint8_t { nothing, flips, fails };
  BadFile(std::unique_ptr<OpenFile> below, Wrong wrong, uint64_t at)
      : below_(std::move(below)), wrong_(wrong), at_(at) {}

  Result<uint64_t> id() const override { return below_->id(); }
  uint64_t unit() const override { return below_->unit(); }
  Task<Result<uint64_t>> read(uint64_t offset, ByteSpan into) override {
    return below_->read(offset, into);
  }
  Task<Result<io::DataRange>> next_data(uint64_t offset) override {
    return below_->next_data(offset);
  }
  Task<Result<void>> write(uint64_t offset, ByteSpan buffer, uint64_t size) override {
    if (offset == at_ && wrong_ == Wrong::fails) co_return errno_error(EIO, "the disk");
    if (offset == at_ && wrong_ == Wrong::flips) buffer[size / 2] ^= std::byte{1};
    co_return co_await below_->write(offset, buffer, size);
  }
  Task<Result<void>> preallocate(uint64_t size, bool all) override {
    return below_->preallocate(size, all);
  }
  bool supports_holes() const override { return below_->supports_holes(); }
  Task<Result<void>> sync() override { return below_->sync(); }
  Task<Result<void>> finish(uint64_t length) override { return below_->finish(length); }
  Task<Result<void>> close() override { return below_->close(); }

 private:
  std::unique_ptr<OpenFile> below_;
  const Wrong wrong_;
  const uint64_t at_;
};

class BadTree final : public FileTree {
 public:
  explicit BadTree(LocalTree& below) : below_(below) {}
  BadFile::Wrong wrong = BadFile::Wrong::nothing;
  uint64_t at = 0;

  Task<Result<std::optional<FileStat>>> stat(std::string path, bool follow) override {
    return below_.stat(std::move(path), follow);
  }
  Task<Result<std::vector<Entry>>> list(std::string dir, std::string after) override {
    return below_.list(std::move(dir), std::move(after));
  }
  Task<Result<void>> stay_below(std::string dir) override {
    return below_.stay_below(std::move(dir));
  }
  Task<Result<std::unique_ptr<OpenFile>>> open(std::string path, FileStat stat) override {
    return below_.open(std::move(path), std::move(stat));
  }
  Task<Result<std::unique_ptr<OpenFile>>> create(std::string path, uint32_t mode,
                                                 bool keep) override {
    FF_CO_TRY(auto file, co_await below_.create(std::move(path), mode, keep));
    co_return std::make_unique<BadFile>(std::move(file), wrong, at);
  }
  Task<Result<void>> make_dir(std::string path, uint32_t mode) override {
    return below_.make_dir(std::move(path), mode);
  }
  Task<Result<void>> make_symlink(std::string target, std::string path) override {
    return below_.make_symlink(std::move(target), std::move(path));
  }
  Task<Result<void>> remove(std::string path) override { return below_.remove(std::move(path)); }
  Task<Result<void>> rename(std::string from, std::string to) override {
    return below_.rename(std::move(from), std::move(to));
  }
  Task<Result<void>> set(std::string path, Attributes attributes) override {
    return below_.set(std::move(path), attributes);
  }
  Task<Result<void>> sync_names() override { return below_.sync_names(); }
  Task<Result<std::string>> resume_point(std::string path) override {
    return below_.resume_point(std::move(path));
  }
  Task<Result<void>> set_resume_point(std::string path, std::string words) override {
    return below_.set_resume_point(std::move(path), std::move(words));
  }
  std::string display_path(std::string_view path) const override {
    return below_.display_path(path);
  }

 private:
  LocalTree& below_;
};

class CopyTest : public testing::Test {
 protected:
  CopyTest() : dir_(fs::temp_directory_path() / fmt::format("ff-copy-{}", ::getpid())) {
    fs::create_directories(dir_);
  }
  ~CopyTest() override { fs::remove_all(dir_); }

  std::string at(const std::string& name) const { return dir_ / name; }
  std::string file(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(at(name)).parent_path());
    std::ofstream(at(name), std::ios::binary) << content;
    return at(name);
  }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::string content(size_t size) {
    std::string text(size, '\0');
    for (size_t i = 0; i < size; i++) text[i] = static_cast<char>(i * 2654435761U >> 13 | 1);
    return text;
  }
  Result<void> copy(std::vector<std::string> from, std::string to, CopyOptions options = {}) {
    TransferMemory memory(loop_, {}, 4 * kMiB);
    errors_.clear();
    TreeCopier copying(local_, bad_, memory, options, progress_, [this](Error error) {
      errors_.push_back(std::move(error));
      return true;
    });
    auto done = run_task(loop_, copying.run(std::move(from), std::move(to)));
    report_ = copying.report();
    return done;
  }

  const fs::path dir_;
  SystemClock clock_;
  SystemLoop loop_{clock_};
  io::SystemDisk disk_;
  io::AsyncQueue queue_{disk_, loop_, 16};
  LocalTree local_{disk_, queue_, 64 * kKiB};
  BadTree bad_{local_};
  Progress progress_;
  CopyReport report_;
  std::vector<Error> errors_;
};

TEST_F(CopyTest, EverySizeComesOutAsItWasAndIsCounted) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{64 * kKiB - 1},
                            size_t{64 * kKiB}, size_t{64 * kKiB + 1}, size_t{3'000'001}}) {
    const std::string from = file("from", content(size));
    progress_.done = progress_.total = 0;
    ASSERT_TRUE(copy({from}, at("to"), {.verify = true}).ok());
    ASSERT_TRUE(errors_.empty()) << errors_[0].message;
    EXPECT_TRUE(read(at("to")) == content(size)) << size;
    EXPECT_EQ(progress_.done, 2 * size);
    EXPECT_EQ(progress_.total, 2 * size);
    EXPECT_FALSE(fs::exists(at(".to.ff-part")));
  }
}

TEST_F(CopyTest, AFlippedBitIsFoundAndTheOldFileStays) {
  const std::string from = file("from", content(300'000));
  file("to", "old");
  bad_.wrong = BadFile::Wrong::flips;
  bad_.at = 128 * kKiB;
  ASSERT_TRUE(copy({from}, at("to"), {.verify = true}).ok());
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_EQ(errors_[0].code, Errc::corrupt);
  EXPECT_NE(errors_[0].message.find("between bytes 131072"), std::string::npos)
      << errors_[0].message;
  EXPECT_EQ(read(at("to")), "old");
  EXPECT_FALSE(fs::exists(at(".to.ff-part")));
}

TEST_F(CopyTest, OneThatFailsDoesNotKeepTheOthersBack) {
  file("tree/a", content(10));
  file("tree/b", content(100'000));
  file("tree/sub/c", content(10));
  bad_.wrong = BadFile::Wrong::fails;
  bad_.at = 64 * kKiB;
  ASSERT_TRUE(copy({at("tree")}, at("to"), {.recursive = true}).ok());
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_NE(errors_[0].message.find("tree/b"), std::string::npos) << errors_[0].message;
  EXPECT_EQ(report_.files, 2u);
  EXPECT_TRUE(fs::exists(at("to/a")) && fs::exists(at("to/sub/c")));
  EXPECT_FALSE(fs::exists(at("to/b")) || fs::exists(at("to/.b.ff-part")));
}

// Others may write in the destination, too: a link there must not lead the copy to other files.
TEST_F(CopyTest, NoLinkBelowTheDestinationIsFollowed) {
  file("src/sub/x", content(10));
  file("src/y", content(10));
  fs::create_directories(at("out"));
  fs::create_directories(at("to/src"));
  fs::create_directory_symlink(at("out"), at("to/src/sub"));
  fs::create_symlink(at("out/y"), at("to/src/y"));
  ASSERT_TRUE(copy({at("src")}, at("to"), {.recursive = true, .preserve = true}).ok());
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_NE(errors_[0].message.find("src/sub"), std::string::npos) << errors_[0].message;
  EXPECT_TRUE(fs::is_empty(at("out")));
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(at("to/src/y"))));
}

TEST_F(CopyTest, TheDestinationItselfMayBeALink) {
  file("src/sub/x", "new");
  fs::create_directories(at("real"));
  fs::create_directory_symlink("real", at("link"));
  for (const std::string& to : {at("link"), at("link/")}) {
    ASSERT_TRUE(copy({at("src/.")}, to, {.recursive = true, .preserve = true}).ok());
    ASSERT_TRUE(errors_.empty()) << errors_[0].message;
    EXPECT_EQ(read(at("real/sub/x")), "new");
    fs::remove_all(at("real/sub"));
  }
  ASSERT_TRUE(copy({at("src")}, at("link/other"), {.recursive = true}).ok());
  EXPECT_EQ(read(at("real/other/sub/x")), "new");
}

TEST_F(CopyTest, APartIsGoneOnWithWhenItIsOfThisSource) {
  const std::string text = content(400'000);
  const std::string from = file("from", text);
  const auto stat = run_task(loop_, local_.stat(from, false)).value();
  const auto part = [&](uint64_t size) {
    file(".to.ff-part", std::string(128 * kKiB, 'x'));
    file(".to.ff-part.note", fmt::format("1 {} {} {}", size, stat->mtime_ns, 128 * kKiB));
  };
  // The resume point is trusted: the x stay.
  part(400'000);
  ASSERT_TRUE(copy({from}, at("to"), {.resume = true}).ok());
  EXPECT_EQ(report_.resumed, 1u);
  EXPECT_TRUE(read(at("to")) == std::string(128 * kKiB, 'x') + text.substr(128 * kKiB));
  EXPECT_FALSE(fs::exists(at(".to.ff-part.note")));
  // --verify finds them.
  fs::remove(at("to"));
  part(400'000);
  ASSERT_TRUE(copy({from}, at("to"), {.verify = true, .resume = true}).ok());
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_EQ(errors_[0].code, Errc::corrupt);
  // A part of another source, or a copy without --resume.
  for (const bool resume : {true, false}) {
    part(resume ? 400'001 : 400'000);
    ASSERT_TRUE(copy({from}, at("to"), {.resume = resume}).ok());
    EXPECT_EQ(report_.resumed, 0u);
    EXPECT_TRUE(read(at("to")) == text);
    fs::remove(at("to"));
  }
}

TEST_F(CopyTest, WhatIsThereIsLeftOut) {
  const std::string from = file("from", content(1000));
  ASSERT_TRUE(copy({from}, at("to"), {.resume = true}).ok());
  EXPECT_EQ(report_.files, 1u);
  ASSERT_TRUE(copy({from}, at("to"), {.resume = true}).ok());
  EXPECT_EQ(report_.skipped, 1u);
  fs::last_write_time(from, fs::last_write_time(from) + std::chrono::seconds(1));
  ASSERT_TRUE(copy({from}, at("to"), {.resume = true}).ok());
  EXPECT_EQ(report_.files, 1u);
}

// Another copy has replaced our part: it must not be renamed.
TEST_F(CopyTest, APartOfAnotherIsNotPublished) {
  file("part", "another's");
  const auto part = run_task(loop_, local_.stat(at("part"), false)).value();
  const auto published = run_task(loop_, rename_part(local_, at("part"), part->id + 1, at("to")));
  ASSERT_FALSE(published.ok());
  EXPECT_EQ(published.error().code, Errc::stale);
  EXPECT_TRUE(fs::exists(at("part")) && !fs::exists(at("to")));
  EXPECT_TRUE(run_task(loop_, rename_part(local_, at("part"), part->id, at("to"))).ok());
  EXPECT_EQ(read(at("to")), "another's");
}

TEST_F(CopyTest, PartsAreHiddenAndOfALengthThatIsAllowed) {
  EXPECT_EQ(part_path("a/b"), "a/.b.ff-part");
  EXPECT_EQ(part_path("b"), ".b.ff-part");
  EXPECT_EQ(part_path("/b/"), "/.b.ff-part");
  EXPECT_EQ(part_path("/" + std::string(255, 'n')).size(), 1 + 255u);
}

}  // namespace
}  // namespace ff::client
