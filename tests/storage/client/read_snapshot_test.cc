// When an open file lets other threads read it, and that they never read what an acknowledged
// change has replaced; in a simulated cluster, on one thread.
#include "storage/client/read_snapshot.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "storage/client/chain_reader.h"
#include "storage/client/file_system_world.h"
#include "storage/meta/inode.h"

namespace ff::client {
namespace {

class ReadSnapshotTest : public FileSystemWorld {
 protected:
  explicit ReadSnapshotTest(uint64_t seed = 1) : FileSystemWorld(seed) {}
  void SetUp() override {
    FileSystemWorld::SetUp();
    ASSERT_TRUE(io::ok(run(owner_.files().start(INT64_MAX))));
    reader_.set_routing(owner_.files().routing());
  }
  void TearDown() override { run(reader_.close()); }

  FileRef make_open(std::string name, const std::string& text) {
    auto made = run(owner_.files().create({}, meta::root(), std::move(name), {.mode = 0644}));
    EXPECT_TRUE(io::ok(made));
    EXPECT_TRUE(io::ok(run((*made)->write(0, as_bytes(text)))));
    return *made;
  }
  bool published(const File& file) const { return snapshots_.find(file.inode().id) != nullptr; }
  // As a worker reads; "(owner)": only the owner can answer, "(none)": there is no snapshot.
  std::string read_here(const File& file, uint64_t offset, size_t size) {
    auto snapshot = snapshots_.find(file.inode().id);
    if (snapshot == nullptr) return "(none)";
    return read_with(std::move(snapshot), offset, size);
  }
  std::string read_with(ReadSnapshotRef snapshot, uint64_t offset, size_t size) {
    std::string text(size, '?');
    const ByteSpan into(reinterpret_cast<std::byte*>(text.data()), text.size());
    const auto answer = run(reader_.read(std::move(snapshot), offset, into));
    if (!answer) return "(owner)";
    if (!*answer) return "(" + answer->error().message + ")";
    text.resize(**answer);
    return text;
  }

  ReadSnapshots snapshots_;
  User owner_{stage_, "owner", false, &snapshots_};
  User worker_{stage_, "worker"};
  ChainReader reader_{worker_.context(), [] {}};
};

TEST_F(ReadSnapshotTest, AWorkerReadsWhatStorageHas) {
  const std::string text = text_of(1, 3 * kChunk + 100);
  const FileRef file = make_open("a", text);
  EXPECT_EQ(read_here(*file, 0, 10), "(none)");
  file->publish_snapshot();
  EXPECT_EQ(read_here(*file, 0, text.size()), text);
  EXPECT_EQ(read_here(*file, kChunk - 5, 10), text.substr(kChunk - 5, 10));
  // Only the owner knows whether the file has become longer.
  EXPECT_EQ(read_here(*file, 3 * kChunk, 101), "(owner)");
  EXPECT_TRUE(io::ok(run(file->close())));
}

TEST_F(ReadSnapshotTest, BytesInWriteBehindWithdrawItUntilStorageHasThem) {
  const FileRef file = make_open("a", "old text");
  file->publish_snapshot();
  ASSERT_TRUE(published(*file));
  EXPECT_TRUE(io::ok(run(file->write_behind(0, as_bytes("new")))));
  EXPECT_FALSE(published(*file));
  file->publish_snapshot();
  EXPECT_FALSE(published(*file));
  EXPECT_TRUE(io::ok(run(file->flush())));
  file->publish_snapshot();
  EXPECT_EQ(read_here(*file, 0, 8), "new text");
  EXPECT_TRUE(io::ok(run(file->close())));
}

TEST_F(ReadSnapshotTest, ATruncationWithdrawsIt) {
  const FileRef file = make_open("a", "old text");
  file->publish_snapshot();
  EXPECT_TRUE(io::ok(run(file->truncate(3))));
  EXPECT_FALSE(published(*file));
  file->publish_snapshot();
  EXPECT_EQ(read_here(*file, 0, 3), "old");
  EXPECT_EQ(read_here(*file, 0, 8), "(owner)");
  // Another client truncates it, and this one is told.
  auto view = run(metadata().truncate({}, file->ref(), 1, std::nullopt));
  ASSERT_TRUE(io::ok(view));
  file->on_update(std::move(*view), stage_.world.loop().now_ns());
  EXPECT_FALSE(published(*file));
  EXPECT_TRUE(io::ok(run(file->close())));
}

// A reply that has been under way since before a truncation does not bring the old length back.
TEST_F(ReadSnapshotTest, ALateReplyDoesNotUndoATruncation) {
  const FileRef file = make_open("a", "old text");
  const int64_t asked_ns = stage_.world.loop().now_ns();
  EXPECT_TRUE(io::ok(run(file->truncate(8))));  // the servers know the length
  auto late = run(metadata().stat(file->ref(), false));
  ASSERT_TRUE(io::ok(late));
  EXPECT_TRUE(io::ok(run(file->truncate(3))));
  file->on_update(*late, asked_ns);
  EXPECT_EQ(file->inode().length, 3u);
  EXPECT_TRUE(io::ok(run(file->write(3, as_bytes(" end")))));
  EXPECT_TRUE(io::ok(run(file->publish_length())));
  EXPECT_EQ(run(metadata().stat(file->ref(), false))->inode.length, 7u);
  // Servers that have lost the truncation say so again.
  pass(kSecond);
  file->on_update(std::move(*late), stage_.world.loop().now_ns());
  EXPECT_EQ(file->inode().length, 8u);
  EXPECT_TRUE(io::ok(run(file->close())));
}

// As replies to reads past the end, which arrive while the truncation is under way.
TEST_F(ReadSnapshotTest, RepliesDuringATruncationDoNotUndoIt) {
  const FileRef file = make_open("a", "old text");  // no server knows its length
  auto view = run(metadata().truncate({}, file->ref(), 3, std::nullopt));
  ASSERT_TRUE(io::ok(view));
  for (int i = 0; i < 3; i++) {
    file->on_update(*view, stage_.world.loop().now_ns());
    EXPECT_EQ(file->inode().length, view->inode.length);
  }
  EXPECT_TRUE(io::ok(run(file->close())));
  EXPECT_EQ(run(metadata().stat(file->ref(), false))->inode.length, 3u);
}

TEST_F(ReadSnapshotTest, AClosedFileHasNone) {
  const FileRef file = make_open("a", "text");
  const FileRef reader = owner_.files().reader(*file);
  for (const FileRef& one : {file, reader}) {
    one->publish_snapshot();
    ASSERT_TRUE(published(*one));
    EXPECT_TRUE(io::ok(run(one->close())));
    EXPECT_FALSE(published(*one));
    one->publish_snapshot();  // a read that ends after the close
    EXPECT_FALSE(published(*one));
  }
}

TEST_F(ReadSnapshotTest, HolesAndOldCapabilitiesAreForTheOwner) {
  const FileRef file = make_open("a", "text");
  EXPECT_TRUE(io::ok(run(file->write(2 * kChunk, as_bytes("end")))));
  file->publish_snapshot();
  EXPECT_EQ(read_here(*file, kChunk, 10), "(owner)");
  EXPECT_EQ(read_here(*file, 0, 10), std::string("text\0\0\0\0\0\0", 10));  // a short chunk
  ReadSnapshot old = *snapshots_.find(file->inode().id);
  old.until_ns = stage_.world.loop().now_ns();
  EXPECT_EQ(read_with(std::make_shared<const ReadSnapshot>(old), 0, 4), "(owner)");
  EXPECT_TRUE(io::ok(run(file->close())));
}

// Each acknowledged change of a random history is what a worker reads from then on, if it may read
// at all.
TEST_F(ReadSnapshotTest, WorkersNeverReadWhatAnAcknowledgedChangeHasReplaced) {
  size_t read = 0;
  for (uint64_t seed = 1; seed <= 3; seed++) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRng rng(seed);
    const FileRef file = make_open("f" + std::to_string(seed), "");
    std::string model;
    for (int step = 0; step < 100; step++) {
      const uint64_t offset = rng.below(3 * kChunk);
      const std::string data = text_of(rng.next(), 1 + rng.below(kChunk));
      const uint64_t kind = rng.below(6);
      if (kind <= 2) {
        model.resize(std::max<size_t>(model.size(), offset + data.size()));
        model.replace(offset, data.size(), data);
        if (kind == 0) {
          EXPECT_TRUE(io::ok(run(file->flush())));  // as Operations::write()
        }
        EXPECT_TRUE(io::ok(run(kind == 0 ? file->write(offset, as_bytes(data))
                                         : file->write_behind(offset, as_bytes(data)))));
      } else if (kind == 3) {
        model.resize(offset);
        EXPECT_TRUE(io::ok(run(file->truncate(offset))));
      } else if (kind == 4) {
        if (offset < model.size()) {
          const size_t size = std::min(data.size(), model.size() - offset);
          model.replace(offset, size, std::string(size, '\0'));
        }
        EXPECT_TRUE(io::ok(run(file->punch_hole(offset, data.size()))));
      } else {
        EXPECT_TRUE(io::ok(run(file->flush())));
      }
      const auto check = [&] {
        const uint64_t at = model.empty() ? 0 : rng.below(model.size());
        const size_t size = std::min<size_t>(model.size() - at, 1 + rng.below(2 * kChunk));
        const std::string got = size == 0 ? "(none)" : read_here(*file, at, size);
        if (got == "(none)" || got == "(owner)") return;
        read++;
        ASSERT_TRUE(got == model.substr(at, size)) << "step " << step << ", kind " << kind;
      };
      check();
      if (rng.below(2) == 0) file->publish_snapshot();
      check();
    }
    EXPECT_TRUE(io::ok(run(file->close())));
  }
  EXPECT_GT(read, 20u);
}

}  // namespace
}  // namespace ff::client
