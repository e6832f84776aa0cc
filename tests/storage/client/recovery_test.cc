// What a client leaves in the recovery table, and what its successor makes of it: the client is cut
// off at some moment, and the successor continues from a copy of the memory of that moment.
#include <algorithm>
#include <cerrno>

#include "storage/client/survivor.h"

namespace ff::client {
namespace {

using Kind = RecoveryTable::Kind;

TEST(RecoveryTableTest, RecordsAreFoundInTheirOrderUntilTheyAreFreed) {
  Memory memory(RecoveryTable::bytes_for(0));
  auto table = table_on(memory);
  EXPECT_FALSE(table->continues());
  auto first = table->add({.kind = Kind::buffer, .fixed = {1, 2}, .live = {3}});
  auto freed = table->add({.kind = Kind::buffer, .fixed = {9}});
  auto second = table->add({.kind = Kind::buffer, .fixed = {4}, .text = "text"});
  const auto other = table->add({.kind = Kind::handle, .fixed = {5}});
  freed = RecoveryTable::Record();
  const auto third = table->add({.kind = Kind::buffer, .fixed = {6}});  // where `freed` was
  first.set_live(0, 7);
  table->set_root(8, "proof");

  const Memory copy(memory);
  auto successor = table_on(copy);
  EXPECT_TRUE(successor->continues());
  EXPECT_EQ(successor->torn(), 0U);
  EXPECT_EQ(successor->root(), 8U);
  EXPECT_EQ(successor->root_proof(), "proof");
  const auto found = successor->take(Kind::buffer);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].fixed(1), 2U);
  EXPECT_EQ(found[0].live(0), 7U);
  EXPECT_EQ(found[1].text(), "text");
  EXPECT_EQ(found[2].fixed(0), 6U);
  EXPECT_TRUE(successor->take(Kind::buffer).empty());
  EXPECT_EQ(successor->used(), 4U);
  successor->drop_untaken();
  EXPECT_EQ(successor->used(), 3U);
}

TEST(RecoveryTableTest, ATornRecordIsDropped) {
  Memory memory(RecoveryTable::bytes_for(0));
  auto table = table_on(memory);
  const auto whole = table->add({.kind = Kind::error, .text = "whole"});
  const auto torn = table->add({.kind = Kind::error, .text = "torn text"});
  Memory copy(memory);
  const std::string_view all = as_text(copy.span());
  copy.span()[all.find("torn text")] = std::byte{'x'};
  auto successor = table_on(copy);
  EXPECT_EQ(successor->torn(), 1U);
  const auto found = successor->take(Kind::error);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].text(), "whole");
  // Its place is free again.
  const auto added = successor->add({.kind = Kind::error});
  EXPECT_EQ(successor->used(), 2U);
}

TEST(RecoveryTableTest, AFullTableGivesNoRecord) {
  Memory memory(RecoveryTable::bytes_for(0));
  auto table = table_on(memory);
  std::vector<RecoveryTable::Record> all;
  for (size_t i = 0; i < table->capacity(); i++) all.push_back(table->add({.kind = Kind::proof}));
  EXPECT_TRUE(std::ranges::all_of(all, [](const auto& one) { return static_cast<bool>(one); }));
  EXPECT_FALSE(static_cast<bool>(table->add({.kind = Kind::proof})));
  all.pop_back();
  EXPECT_TRUE(static_cast<bool>(table->add({.kind = Kind::proof})));
  const std::string longest(RecoveryTable::kTextMax + 1, 'x');
  EXPECT_FALSE(static_cast<bool>(table->add({.kind = Kind::proof, .text = longest})));
}

// A program of version 1 knows no records of changes, and would drop them.
TEST(RecoveryTableTest, OnlyATableWithChangesIsOneOfVersion2) {
  Memory memory(RecoveryTable::bytes_for(0));
  auto table = table_on(memory);
  const auto older = table->add({.kind = Kind::setting});
  EXPECT_EQ(memory.span()[8], std::byte{1});
  const auto change = table->add({.kind = Kind::change});
  EXPECT_EQ(memory.span()[8], std::byte{2});
  EXPECT_EQ(table_on(memory)->take(Kind::change).size(), 1U);
}

TEST(RecoveryTableTest, AnotherVersionIsRefused) {
  Memory memory(RecoveryTable::bytes_for(0));
  (void)table_on(memory);
  memory.span()[8] = std::byte{99};
  const auto table = RecoveryTable::open(memory.span());
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, Errc::unsupported);
}

class RecoveryTest : public FileSystemWorld {
 protected:
  void SetUp() override {
    FileSystemWorld::SetUp();
    first_ = std::make_unique<Survivor>(stage_, "first", Memory(RecoveryTable::bytes_for(0)),
                                        Memory(8 * kMiB));
    ASSERT_TRUE(io::ok(run(first_->files.start(INT64_MAX))));
  }
  // The first client is killed: nothing of it reaches a server any more.
  FileSystem::Restored kill() {
    second_ = std::make_unique<Survivor>(stage_, "second", first_->records, first_->data);
    cut_off(cluster_, "first");
    EXPECT_TRUE(io::ok(run(second_->files.start(INT64_MAX))));
    auto restored = run(second_->files.restore());
    EXPECT_TRUE(io::ok(restored));
    return restored ? std::move(*restored) : FileSystem::Restored();
  }
  FileRef make_open(const std::string& name) {
    auto file = run(first_->files.create({}, meta::root(), name, {.mode = 0644}));
    EXPECT_TRUE(io::ok(file));
    return file ? *file : nullptr;
  }
  static Result<void> behind(RecoveryTest& world, File& file, uint64_t offset,
                             std::string_view text) {
    return world.run(file.write_behind(offset, as_bytes(text)));
  }
  std::string content(uint64_t inode) {
    auto file = open(inode);
    EXPECT_TRUE(io::ok(file));
    return file ? read(**file, 0, 1 << 20) : "";
  }

  std::unique_ptr<Survivor> first_, second_;
};

TEST_F(RecoveryTest, AcknowledgedBytesAndTheirLengthAreStored) {
  const FileRef file = make_open("a");
  const std::string text = text_of(7, 3 * kChunk + 100);
  ASSERT_TRUE(io::ok(behind(*this, *file, 0, text.substr(0, kChunk + 10))));
  ASSERT_TRUE(io::ok(behind(*this, *file, kChunk + 10, text.substr(kChunk + 10))));
  ASSERT_TRUE(io::ok(behind(*this, *file, 50, "newer")));
  auto restored = kill();
  ASSERT_EQ(restored.writers.size(), 1U);
  EXPECT_EQ(restored.writers[0]->inode().length, text.size());
  ASSERT_TRUE(io::ok(run(restored.writers[0]->close())));
  std::string expected = text;
  expected.replace(50, 5, "newer");
  EXPECT_EQ(content(file->inode().id), expected);
  EXPECT_EQ(second_->table->used(), 0U);
}

TEST_F(RecoveryTest, ALengthThatWasNotReportedIsReported) {
  const FileRef file = make_open("a");
  ASSERT_TRUE(io::ok(run(file->write(0, as_bytes(std::string_view("written through"))))));
  auto restored = kill();
  ASSERT_EQ(restored.writers.size(), 1U);
  ASSERT_TRUE(io::ok(run(restored.writers[0]->publish_length())));
  EXPECT_EQ(content(file->inode().id), "written through");
}

TEST_F(RecoveryTest, AnErrorThatNoSyncHasReportedIsReportedOnce) {
  const FileRef file = make_open("a");
  Error lost = errno_error(EIO, "the chain");
  first_->files.report_lost(file->inode().id, std::move(lost));
  const auto restored = kill();
  const auto state = second_->files.state_of(file->inode().id);
  auto cursor = state->errors.sample();
  const auto first = state->errors.check_and_advance(cursor);
  ASSERT_FALSE(first.ok());
  EXPECT_EQ(first.error().sys, EIO);
  EXPECT_TRUE(io::ok(state->errors.check_and_advance(cursor)));
}

TEST_F(RecoveryTest, ARepeatedChangeIsMadeOnce) {
  meta::Caller caller;
  caller.origin = 42;
  auto& metadata = first_->files.metadata();
  const auto session = metadata.new_session(42);
  ASSERT_TRUE(io::ok(run(metadata.create(caller, meta::root(), "a",
                                         {.mode = 0644, .exclusive = true, .session = session}))));
  auto restored = kill();
  auto& successor = second_->files.metadata();
  EXPECT_EQ(successor.new_session(42), session);
  // The repeated request gets the reply of the first one, where a new one fails.
  const auto repeated = run(successor.create(
      caller, meta::root(), "a", {.mode = 0644, .exclusive = true, .session = session}));
  ASSERT_TRUE(io::ok(repeated));
  caller.origin = 43;
  const auto fresh =
      run(successor.create(caller, meta::root(), "a", {.mode = 0644, .exclusive = true}));
  ASSERT_FALSE(fresh.ok());
  EXPECT_EQ(fresh.error().sys, EEXIST);
  // Once it is answered, the same number means another request.
  successor.end_origin(42);
  caller.origin = 42;
  EXPECT_FALSE(
      run(successor.create(caller, meta::root(), "a", {.mode = 0644, .exclusive = true})).ok());
  EXPECT_NE(successor.new_session(42), session);
}

TEST_F(RecoveryTest, AWriteThatCannotBeRecordedIsStoredAtOnce) {
  std::vector<RecoveryTable::Record> all;
  const FileRef file = make_open("a");
  while (auto record = first_->table->add({.kind = Kind::proof})) all.push_back(std::move(record));
  ASSERT_TRUE(io::ok(behind(*this, *file, 0, "not recorded")));
  EXPECT_EQ(first_->files.dirty_bytes(), 0U);
  const auto none = run(first_->files.open({}, {.id = file->inode().id}, meta::kMayWrite));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().sys, ENFILE);
}

}  // namespace
}  // namespace ff::client
